"""The API process and its connections.

It imports only `middleware` and `problems` of the service, for its own responses and metrics. Only `__main__` runs it;
routes may import `response_transport`, for the size of a piece.
"""
