"""HTTP in, JSON out. `__main__` runs `server` with the application of `app`.

Arrows between packages go down this list; single files are held to no circle (tests/test_architecture.py):

- `app`: all there is, put together; `openapi`: the document of it.
- `routes`: one file per route group.
- `answers`: those that wait, stay open or come in pages.
- `dependencies`: what a route may ask for in its signature.
- `requests`: from a body to a job in its queue.
- `access` and `state`, with the files that only they import.
- `server`: connections, before there is a request.
- `edge`, `problems`, `meter`, which `server` and the application share; `strict_json`, `errors`.
"""
