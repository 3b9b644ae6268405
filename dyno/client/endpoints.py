"""Build requests to the API and read responses, for calls that need more than a path and a model.

Ids are quoted, so that each stays one segment of a path.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import httpx
from pydantic import Field, JsonValue, RootModel

from dyno.client.exceptions import ComparisonNotMade
from dyno.client.http_transport import PATIENT, SUBMIT, Request, check_stream, read_model, read_text, retry_after_s
from dyno.models.comparison import Comparison, UnfinishedComparison
from dyno.models.inventory import AwayDevice, DeviceList
from dyno.models.job import Job, Stored
from dyno.models.result_export import MAX_LINES, MEDIA_TYPE, ImportReport, ResultRow, ResultRows
from dyno.models.spec import Spec
from dyno.models.sweep import Sweep

ALIVE_S = 2.0  # longer than /livez ever takes, because it needs no other service
LONG_POLL_S = 20  # below the API's limit of 60 s, so that proxies with a limit of 30 s don't end the request
SILENT_S = 45.0  # the service sends a comment into a stream of events every 15 s
EXPORT_S = 60.0  # timeout for each piece of a page of exported results
EXPORTED_JOBS = 50  # per page: about 5 MB with all samples
IMPORT_BYTES = 2**20  # per request, unless a single line is longer
PLOT_S = 60.0  # the service draws plots one at a time
UPLOAD_S = 60.0  # timeout for each piece and for the response, which follows after the service has written the file
LOG_TIMEOUT = httpx.Timeout(10.0, read=None)  # a runner may print nothing
DEFAULT_LIMIT = 50
MAX_PAGE_SIZE = 200  # the API's limit for a page

T = TypeVar("T")
AnySpec = Spec | Mapping[str, JsonValue]
Filter = str | datetime | bool | None


def path_segment(name: str) -> str:
    """Quote `name` as one path segment. HTTPX resolves `..`, so dots are quoted in a name of only dots."""
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def request(method: str, read: Callable[[httpx.Response], T], path: str, *ids: str, **options: Any) -> Request[T]:
    """A request for `path`, which has a `{}` for each id. `options`: other fields of Request."""
    return Request(method, path.format(*map(path_segment, ids)), read, **options)


def query(**filters: Filter) -> dict[str, str]:
    """The filters that aren't None, as query parameters."""
    return {name: _text(value) for name, value in filters.items() if value is not None}


def _text(value: str | datetime | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else value


def once(key: str | None) -> dict[str, Any]:
    """Options of a POST request with one idempotency key for all its retries."""
    return {"headers": {"Idempotency-Key": secrets.token_hex(16) if key is None else key}, "retry": SUBMIT}


def spec_document(spec: AnySpec, *, exclude_unset: bool = False) -> dict[str, JsonValue]:
    return spec.model_dump(mode="json", exclude_unset=exclude_unset) if isinstance(spec, Spec) else dict(spec)


class ListPage(Stored, Generic[T]):
    """One page of a list. `next_cursor` is null on the last page."""

    data: list[T]
    next_cursor: str | None = None

    @property
    def size(self) -> int:
        """The number of items in this page to which the list's limit applies."""
        return len(self.data)


class RowPage(ListPage[ResultRow]):
    """A page of the table of results. The limit applies to jobs, not to rows."""

    @property
    def size(self) -> int:
        return len({row.job for row in self.data})


class AnyComparison(RootModel[Annotated[Comparison | UnfinishedComparison, Field(discriminator="status")]]):
    """A comparison, finished or not."""


def read_rows(response: httpx.Response) -> RowPage:
    return RowPage(data=read_model(ResultRows, response).root, next_cursor=_next_cursor(response))


def read_lines(response: httpx.Response) -> ListPage[str]:
    """A page of exported results, each a line of JSON."""
    lines = read_text(response).split("\n")
    return ListPage[str](data=[line for line in lines if line], next_cursor=_next_cursor(response))


def _next_cursor(response: httpx.Response) -> str | None:
    """The cursor in the Link header."""
    cursor: str | None = httpx.URL(response.links.get("next", {}).get("url", "")).params.get("cursor")
    return cursor


def read_comparison(response: httpx.Response) -> Comparison:
    comparison = read_model(AnyComparison, response).root
    if isinstance(comparison, UnfinishedComparison):
        raise ComparisonNotMade(comparison)
    return comparison


def read_cordoned_away(response: httpx.Response) -> list[AwayDevice]:
    names = (name.partition("@") for name in read_model(DeviceList, response).cordoned_away)
    return [AwayDevice(id=device, host=host) for device, _, host in names]


class Poll(NamedTuple):
    """The response to a long poll: the job (None if a proxy ended the request), and the pause before the next poll."""

    job: Job | None
    pause_s: float = 0.0


def next_version(now: Job) -> Request[Poll]:
    """Request the job's next version. The response is `now` itself if nothing changed during the long poll."""

    def read(response: httpx.Response) -> Poll:
        if response.status_code == httpx.codes.GATEWAY_TIMEOUT:
            return Poll(None)
        changed = now if response.status_code == httpx.codes.NOT_MODIFIED else read_model(Job, response)
        return Poll(changed, retry_after_s(response) or 0.0)

    known_version, wait = {"If-None-Match": f'"{now.version}"'}, {"wait": LONG_POLL_S}
    timeout_s = LONG_POLL_S + 10
    options: dict[str, Any] = {"headers": known_version, "timeout": timeout_s, "retry": PATIENT}
    return request("GET", read, "/v1/jobs/{}", now.id, params=wait, **options)


def next_sweep_look_s(now: Sweep) -> float:
    """Seconds until the next poll of a running sweep: a twentieth of the time left, from 1 s to 5 s."""
    return min(max(1.0, (now.eta_s or 0.0) / 20), 5.0)


def events(job_id: str | None, after: str | None) -> Request[None]:
    """Request a stream of one job's events, or of all events if `job_id` is None, starting after the event `after`."""
    of_job = ("/v1/events",) if job_id is None else ("/v1/jobs/{}/events", job_id)
    headers = {"Last-Event-ID": after} if after else None
    return request("GET", check_stream, *of_job, headers=headers, timeout=SILENT_S)


def import_requests(lines: Iterable[str], source: str | None) -> Iterator[Request[ImportReport]]:
    """The requests that import the lines. Each has as many lines as the service accepts, without blank lines."""
    batch, size, first = list[str](), 0, 1
    for number, line in enumerate(lines, 1):
        if batch and (len(batch) == MAX_LINES or size + len(line) > IMPORT_BYTES):
            yield _import(batch, first, source)
            batch, size = [], 0
        if not batch:
            first = number
            if not line.strip():
                continue
        batch.append(line.rstrip("\r\n"))
        size += len(line)
    if batch:
        yield _import(batch, first, source)


def _import(lines: Iterable[str], first: int, source: str | None) -> Request[ImportReport]:
    """An import request. It may be sent again, since a second import of a result changes nothing."""
    return request(
        "POST",
        partial(read_model, ImportReport),
        "/v1/results/import",
        params=query(first_line=str(first), **{"from": source}),
        content="\n".join(lines).encode(),
        headers={"Content-Type": MEDIA_TYPE},
        timeout=EXPORT_S,
        retry=PATIENT,
    )
