"""The HTTP service: JSON over HTTP. `__main__` runs the application of `app` in `server`.

Each part imports only parts below it in this list (tests/test_architecture.py):

- `app`: builds the application; `openapi`: its OpenAPI document.
- `routes`: one module per route group.
- `streaming`: streams and long polls.
- `dependencies`: parameters, headers and pages that routes declare in their signatures.
- `auth`: the key that each route needs, and the caller.
- `submission`, `admission`, `validation`: turn a request body into a queued job.
- `state`: objects that live as long as the process.
- `anonymous_access`: requests without a key.
- `server`: the process and its connections.
- `middleware`, `problems`: shared by `server` and the application.
"""
