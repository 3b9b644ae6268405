"""The documents that Dyno sends over the wire or stores: requests, records, results and events.

Every process imports these modules, runners included, so they import nothing heavier than Pydantic.
"""
