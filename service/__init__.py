"""The HTTP service: JSON and pages over HTTP. `__main__` runs the application of `app` on the server of `server`.

Each feature is a folder with its routes, its logic, its page and its templates. Features share these modules:

- `app` builds the application, `pages` collects the dashboard's pages, `openapi` builds the OpenAPI document.
- `dashboard`: code and files that all pages use. `docs`: the API's documentation and the guide.
- `streaming`: streams and long polls.
- `dependencies`: parameters, headers and pages that routes declare in their signatures.
- `auth`: the scope that each route needs, and the caller of a request.
- `submission`, `admission`, `validation`: turn a request body into a queued job.
- `state`: objects that live as long as the process.
- `anonymous_access`: requests without a key.
- `server`: the process and its connections.
- `middleware`, `problems`: shared by `server` and the application.

tests/test_architecture.py says which features each feature may import.
"""
