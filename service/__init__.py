"""HTTP in, JSON out. `__main__` runs `server` with the application of `app`.

Imports between these parts go down the list only (tests/test_architecture.py):

- `app`: builds the application; `openapi`: its OpenAPI document.
- `routes`: one module per route group.
- `streaming`: responses that stay open or are held back.
- `dependencies`: what a route declares in its signature: parameters, headers, pages.
- `auth`: which key a route needs, and who calls.
- `submission`, `admission`, `validation`: from a request body to a job in its queue.
- `state`: what lives as long as the process; `anonymous_access`: when no key is needed.
- `server`: connections, before there is a request.
- `middleware`, `problems`: shared by `server` and the application.
"""
