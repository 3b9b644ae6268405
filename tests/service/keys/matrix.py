"""Every operation of the served document, with all requests that can name an owner's data."""

import itertools
import json
import re
import time
from typing import NamedTuple

from service.openapi.components import recorded_examples

WITHIN_S = 30  # timeout for a stream that should end
IMPORT = {  # the owner has imported it before
    "content": recorded_examples()["requests"]["importResults"]["line"],
    "headers": {"Content-Type": "application/x-ndjson"},
}
QUERIES = {"getAdvice": {"workload": "matmul", "params": '{"n": 64}'}}  # of jobs that the owner has
QUEUED = {"workload": "matmul", "params": {"n": 64}, "device": "tpu", "queue_if_absent": True}
_PLACE = re.compile(r"([\w-]+)/{\w+}")
_CODE_OF_PAGE = re.compile(r"[45]\d\d <code>([a-z-]+)</code>")

# By the path's folder or the name of the parameter.


class Operation(NamedTuple):
    """`id` is None for routes that aren't in the document."""

    method: str
    path: str
    id: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    takes_body: bool = False

    def __str__(self):
        return f"{self.method} {self.path}"


class Told(NamedTuple):
    """A response; `text` is all of it except the time."""

    status: int
    code: str | None
    text: str


def operations(document):
    """All operations; those that delete come last."""
    found = [
        Operation(
            method.upper(),
            path,
            operation["operationId"],
            tuple((each["in"], each["name"]) for each in operation.get("parameters", ()) if each["in"] != "path"),
            "requestBody" in operation,
        )
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return sorted(found, key=lambda each: each.method == "DELETE")


def asks(operation, names):
    """One request per known body, and one per parameter that can name an owner's data.

    Raises KeyError for a path or a body of an unknown kind: add its requests here.
    """
    url = _PLACE.sub(lambda found: f"{found[1]}/{names[found[1]]}", operation.path)
    plain = {"method": operation.method, "url": url}
    if operation.id in QUERIES:
        plain["params"] = QUERIES[operation.id]
    bodies = _bodies(operation.id, names) if operation.takes_body else [{}]
    whole = [plain | body for body in bodies]
    if ("query", "last_event_id") in operation.parameters:  # a stream from now on is endless
        return [each | {"params": {"last_event_id": "0-0"}} for each in whole]
    for place, name in operation.parameters:
        if name in names:
            whole.append(whole[0] | {"params" if place == "query" else "headers": {name: names[name]}})
    return whole


def _bodies(operation_id, names):
    weights = {"job": names["jobs"], "name": names["artifacts"]}
    starting = {"workload": "mnist_cnn", "queue_if_absent": True, "params": {"weights": weights}}
    by_id = {
        "submitJob": [{"json": QUEUED}, {"json": starting}, {"json": QUEUED | {"baseline": names["baselines"]}}],
        "putBaseline": [{"json": {"job": names["jobs"]}}],
        "putSchedule": [{"json": {"cron": "0 3 * * *", "spec": starting}}],
        "createComparison": [
            {"json": {"jobs": [names["jobs"], names["job"]]}},
            {"json": {"pairs": 2, "specs": [starting, starting]}},
        ],
        "createSweep": [{"json": {"spec": starting, "grid": {"params.epochs": [1, 2]}}}],
        "importResults": [IMPORT],
        "createKey": [{"json": {"name": "made", "scope": "read"}}],
        "putArtifact": [{"content": b"0"}],
    }
    return by_id[operation_id]


def told(http, ask, last=None, authorization=None):
    """Send the request. Of a stream, read up to the end of the job `last`, or only its beginning without one."""
    headers = ask.get("headers", {}) | {"X-Request-ID": "same"}
    if authorization is not None:
        headers["Authorization"] = authorization
    with http.stream(**ask | {"headers": headers}) as answer:
        lines = answer.iter_lines()
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            lines = _up_to(last, lines) if last else iter(())
        body = "\n".join(lines)
    is_problem = answer.headers.get("content-type") == "application/problem+json" and body
    of_page = _CODE_OF_PAGE.search(body)
    code = json.loads(body)["code"] if is_problem else of_page and of_page[1]
    head = "\n".join(f"{name}: {value}" for name, value in answer.headers.items() if name != "date")
    return Told(answer.status_code, code, f"{head}\n{body}")


def _up_to(job_id, lines):
    end_s = time.monotonic() + WITHIN_S
    for line in itertools.takewhile(lambda _: time.monotonic() < end_s, lines):
        if not line.startswith(":"):  # sign of life
            yield line
        if job_id in line and '"done":true' in line:
            return


def canceled(http):
    """Make a canceled job; returns its id."""
    job = http.post("/v1/jobs", json=QUEUED).raise_for_status().json()
    return str(http.post(f"{job['urls']['self']}/cancel").raise_for_status().json()["id"])
