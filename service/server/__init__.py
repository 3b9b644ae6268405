"""The process and its connections, below any request: who comes, what they may make us hold, who has to go.

It imports `edge`, `meter` and `problems` of the service, for what it answers and counts by itself. `__main__` alone
runs it; a route may look at `line`, for the size of a piece.
"""
