"""The process and its connections, before there is a request.

Of the service it imports `middleware` and `problems`, for what it answers and counts by itself. `__main__` alone runs
it; routes may import `response_transport`, for the size of a piece.
"""
