"""The headers of answers, by status and by route."""

from __future__ import annotations

from typing import Any

_HEADERS = {
    "RequestId": ("string", "The caller's own `X-Request-ID`, or one made for this request"),
    "RetryAfter": ("integer", "Seconds after which to ask again"),
    "Challenge": ("string", "`Bearer`: a key or a token is needed"),
    "RateLimitPolicy": ("string", "Of a limit that is reached: its quota, and the seconds that this is for"),
    "RateLimit": ("string", "What is left of it, and when it is anew"),
    "ETag": ("string", "The version; for `If-None-Match`"),
    "FileETag": ("string", "The SHA-256 of the file; for `If-None-Match`"),
    "Disposition": ("string", "`attachment`, with the name to save it under"),
    "Location": ("string", "Where what was made is"),
    "Link": ("string", "The next page, where there is one"),
    "Replayed": ("string", "`true`: the answer to an earlier request with this idempotency key"),
    "Preferred": ("string", "The `wait` that was granted"),
}
_ALWAYS = {"X-Request-ID": "RequestId"}
_OF_STATUS = {
    "401": {"WWW-Authenticate": "Challenge"},
    "429": {"Retry-After": "RetryAfter", "RateLimit": "RateLimit", "RateLimit-Policy": "RateLimitPolicy"},
    "503": {"Retry-After": "RetryAfter"},
}
_READ, _FILE = ("GET", "HEAD"), "/v1/jobs/{job_id}/artifacts/{name}"
_QUEUED = {"Location": "Location", "Retry-After": "RetryAfter", "Idempotent-Replayed": "Replayed"}
_JOB = {"ETag": "ETag", "Retry-After": "RetryAfter"}
_OF_ANSWER = {
    ("POST", "/v1/jobs", "202"): _QUEUED | {"ETag": "ETag", "Preference-Applied": "Preferred"},
    ("POST", "/v1/jobs/{job_id}/rerun", "202"): _QUEUED | {"ETag": "ETag", "Preference-Applied": "Preferred"},
    ("POST", "/v1/comparisons", "202"): _QUEUED,
    ("POST", "/v1/comparisons", "201"): {"Location": "Location"},
    ("GET", "/v1/jobs", "200"): {"Link": "Link"},
    ("GET", "/v1/results", "200"): {"Link": "Link", "Content-Disposition": "Disposition"},
    ("GET", "/v1/webhook-deliveries", "200"): {"Link": "Link"},
    ("GET", "/v1/jobs/{job_id}/samples", "200"): {"Content-Disposition": "Disposition"},
    **{("GET", "/v1/jobs/{job_id}", status): _JOB for status in ("200", "304")},
    **{("POST", "/v1/jobs/{job_id}/cancel", status): {"ETag": "ETag"} for status in ("200", "202")},
    **{(method, _FILE, "200"): {"ETag": "FileETag", "Content-Disposition": "Disposition"} for method in _READ},
    **{(method, _FILE, "304"): {"ETag": "FileETag"} for method in _READ},
}


def describe_headers(document: dict[str, Any]) -> None:
    """Say which headers each answer has; what every answer of the edge has for browsers is left out."""
    document["components"]["headers"] = {
        name: {"description": text, "schema": {"type": kind}} for name, (kind, text) in _HEADERS.items()
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                of_answer = _OF_ANSWER.get((method.upper(), path, status), {})
                names = _ALWAYS | _OF_STATUS.get(status, {}) | of_answer
                answer["headers"] = {
                    name: {"$ref": f"#/components/headers/{component}"} for name, component in names.items()
                }
