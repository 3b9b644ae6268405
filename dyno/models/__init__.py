"""The documents that go over the wire or into the store: requests, records, results and events.

Every process imports these modules, runners included, so they import nothing heavier than Pydantic.
"""
