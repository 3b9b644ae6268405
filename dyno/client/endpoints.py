"""The API's endpoints, as requests: method, path, params, body, and how to read the response.

Ids are quoted, so each stays one segment of a path.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import httpx
from pydantic import Field, JsonValue, RootModel

from dyno.client import exceptions, http_transport
from dyno.models import api_key, inventory, webhook
from dyno.models.advice import Advice
from dyno.models.baseline import Baseline, BaselineList
from dyno.models.comparison import Comparison, UnfinishedComparison
from dyno.models.history import Alarm, History
from dyno.models.job import Job, Stored, Validation
from dyno.models.job_schedule import JobSchedule, ScheduleList
from dyno.models.result import Artifact, ArtifactList, Result, SampleList
from dyno.models.result_export import MAX_LINES, MEDIA_TYPE, ImportReport, ResultRow, ResultRows
from dyno.models.spec import Spec
from dyno.models.sweep import Sweep, SweepSummary

ALIVE_S = 2.0  # /livez needs no other service, so Dyno answers sooner
LONG_POLL_S = 20  # below the 60 s that the API allows, so that proxies with a 30 s limit don't cut it off
SILENT_S = 45.0  # the service sends a comment into a stream of events every 15 s
EXPORT_S = 60.0  # for each piece of a page of exported results
EXPORTED_JOBS = 50  # of one page: about 5 MB with all samples
IMPORT_BYTES = 2**20  # of one request, unless a single line is longer
PLOT_S = 60.0  # the service draws one plot after the other
UPLOAD_S = 60.0  # for each piece and for the response, which the service sends after it has written the file
LOG_TIMEOUT = httpx.Timeout(10.0, read=None)  # a runner may print nothing
OCTETS = {"Content-Type": "application/octet-stream"}
DEFAULT_LIMIT = 50
MAX_PAGE_SIZE = 200  # the API's limit for a page

T = TypeVar("T")
AnySpec = Spec | Mapping[str, JsonValue]
Filter = str | datetime | bool | None


def path_segment(name: str) -> str:
    """Quote `name` as one path segment. HTTPX resolves `..`, so a name of dots only has its dots quoted too."""
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


class Endpoint(Generic[T]):
    """Call it with the ids in its path to get a Request."""

    def __init__(self, method: str, path: str, read: Callable[[httpx.Response], T], **options: Any) -> None:
        self._template = http_transport.Request(method, path, read, **options)

    def __call__(self, *ids: str, **options: Any) -> http_transport.Request[T]:
        return replace(self._template, path=self._template.path.format(*map(path_segment, ids)), **options)


def returns(model: type[http_transport.M]) -> Callable[[httpx.Response], http_transport.M]:
    return partial(http_transport.read_model, model)


class ListPage(Stored, Generic[http_transport.M]):
    """One page of a list. `next_cursor` is null on the last page."""

    data: list[http_transport.M]
    next_cursor: str | None = None

    @property
    def size(self) -> int:
        """How much of the list's limit the page uses."""
        return len(self.data)


class RowPage(ListPage[ResultRow]):
    """A page of the table of results. The limit counts jobs, not rows."""

    @property
    def size(self) -> int:
        return len({row.job for row in self.data})


class AnyComparison(RootModel[Annotated[Comparison | UnfinishedComparison, Field(discriminator="status")]]):
    """A comparison, finished or not."""


def _read_rows(response: httpx.Response) -> RowPage:
    """The rows, and the cursor in the Link header."""
    return RowPage(data=http_transport.read_model(ResultRows, response).root, next_cursor=_next_cursor(response))


def _next_cursor(response: httpx.Response) -> str | None:
    cursor: str | None = httpx.URL(response.links.get("next", {}).get("url", "")).params.get("cursor")
    return cursor


def _read_comparison(response: httpx.Response) -> Comparison:
    comparison = http_transport.read_model(AnyComparison, response).root
    if isinstance(comparison, UnfinishedComparison):
        raise exceptions.ComparisonNotMade(comparison)
    return comparison


def _read_cordoned_away(response: httpx.Response) -> list[inventory.AwayDevice]:
    names = (name.partition("@") for name in http_transport.read_model(inventory.DeviceList, response).cordoned_away)
    return [inventory.AwayDevice(id=device, host=host) for device, _, host in names]


def _read_bytes(response: httpx.Response) -> bytes:
    http_transport.check_status(response)
    return response.content


job = Endpoint("GET", "/v1/jobs/{}", returns(Job))
cancel = Endpoint("POST", "/v1/jobs/{}/cancel", returns(Job))
delete = Endpoint("DELETE", "/v1/jobs/{}", http_transport.check_status)
result = Endpoint("GET", "/v1/jobs/{}/result", returns(Result))
samples = Endpoint("GET", "/v1/jobs/{}/samples", lambda got: http_transport.read_model(SampleList, got).data)
logs = Endpoint("GET", "/v1/jobs/{}/logs", http_transport.read_text)
follow_logs = Endpoint(
    "GET", "/v1/jobs/{}/logs", http_transport.check_status, params={"follow": "true"}, timeout=LOG_TIMEOUT
)
artifacts = Endpoint(
    "GET", "/v1/jobs/{}/artifacts", lambda response: http_transport.read_model(ArtifactList, response).data
)
artifact = Endpoint("GET", "/v1/jobs/{}/artifacts/{}", http_transport.check_status)
upload = Endpoint("PUT", "/v1/jobs/{}/artifacts/{}", returns(Artifact), headers=OCTETS, timeout=UPLOAD_S)
compare = Endpoint("POST", "/v1/comparisons", returns(Comparison))
comparison = Endpoint("GET", "/v1/comparisons/{}", _read_comparison)
sweep = Endpoint("GET", "/v1/sweeps/{}", returns(Sweep))
cancel_sweep = Endpoint("POST", "/v1/sweeps/{}/cancel", returns(Sweep))
sweep_table = Endpoint("GET", "/v1/sweeps/{}/table", http_transport.read_text)
sweep_plot = Endpoint("GET", "/v1/sweeps/{}/plot", _read_bytes, timeout=PLOT_S)
bars = Endpoint("GET", "/v1/comparisons/{}/bars.svg", http_transport.read_text)
save_baseline = Endpoint("PUT", "/v1/baselines/{}", returns(Baseline))
baseline = Endpoint("GET", "/v1/baselines/{}", returns(Baseline))
baselines = Endpoint("GET", "/v1/baselines", lambda got: http_transport.read_model(BaselineList, got).data)
delete_baseline = Endpoint("DELETE", "/v1/baselines/{}", http_transport.check_status)
save_schedule = Endpoint("PUT", "/v1/schedules/{}", returns(JobSchedule))
schedule = Endpoint("GET", "/v1/schedules/{}", returns(JobSchedule))
schedules = Endpoint("GET", "/v1/schedules", lambda got: http_transport.read_model(ScheduleList, got).data)
delete_schedule = Endpoint("DELETE", "/v1/schedules/{}", http_transport.check_status)
workloads = Endpoint(
    "GET", "/v1/workloads", lambda response: http_transport.read_model(inventory.WorkloadList, response).data
)
workload = Endpoint("GET", "/v1/workloads/{}", returns(inventory.WorkloadEntry))
devices = Endpoint(
    "GET", "/v1/devices", lambda response: http_transport.read_model(inventory.DeviceList, response).data
)
cordoned_away = Endpoint("GET", "/v1/devices", _read_cordoned_away)
workers = Endpoint(
    "GET", "/v1/workers", lambda response: http_transport.read_model(inventory.WorkerList, response).data
)
cordon = Endpoint("POST", "/v1/devices/{}/cordon", returns(inventory.Cordon))
uncordon = Endpoint("POST", "/v1/devices/{}/uncordon", returns(inventory.Cordon))
me = Endpoint("GET", "/v1/me", returns(api_key.Me))
keys = Endpoint("GET", "/v1/keys", lambda got: http_transport.read_model(api_key.KeyList, got).data)
create_key = Endpoint("POST", "/v1/keys", returns(api_key.CreatedKey))
revoke_key = Endpoint("DELETE", "/v1/keys/{}", http_transport.check_status)
redeliver = Endpoint("POST", "/v1/webhook-deliveries/{}/redeliver", returns(webhook.Delivery))
alive = Endpoint("GET", "/livez", lambda response: response.status_code == 200, timeout=ALIVE_S, authenticate=False)
ready = Endpoint("GET", "/readyz", http_transport.check_status)


def submit(spec: AnySpec, key: str | None) -> http_transport.Request[Job]:
    return _once(Job, "/v1/jobs", key)(json=spec_document(spec))


def rerun(job_id: str, key: str | None) -> http_transport.Request[Job]:
    return _once(Job, "/v1/jobs/{}/rerun", key)(job_id)


def begin_comparison(
    first: AnySpec, second: AnySpec, options: Mapping[str, JsonValue], key: str | None = None
) -> http_transport.Request[UnfinishedComparison]:
    """The second spec takes the fields that it omits from the first."""
    specs: list[JsonValue] = [spec_document(spec, exclude_unset=True) for spec in (first, second)]
    return _once(UnfinishedComparison, "/v1/comparisons", key)(json={"specs": specs, **options})


def begin_sweep(request: Mapping[str, JsonValue], key: str | None) -> http_transport.Request[Sweep]:
    return _once(Sweep, "/v1/sweeps", key)(json=dict(request))


def next_sweep_look_s(now: Sweep) -> float:
    """Seconds until the next look at a sweep that runs: a twentieth of the time left, from 1 s to 5 s."""
    return min(max(1.0, (now.eta_s or 0.0) / 20), 5.0)


def sweeps() -> http_transport.Request[ListPage[SweepSummary]]:
    return http_transport.Request("GET", "/v1/sweeps", returns(ListPage[SweepSummary]))


def _once(model: type[http_transport.M], path: str, key: str | None) -> Endpoint[http_transport.M]:
    """A POST under one idempotency key, so that it may be sent again."""
    headers = {"Idempotency-Key": secrets.token_hex(16) if key is None else key}
    return Endpoint("POST", path, returns(model), headers=headers, retry=http_transport.SUBMIT)


def validate(spec: AnySpec) -> http_transport.Request[Validation]:
    return http_transport.Request(
        "POST", "/v1/jobs", returns(Validation), params={"validate_only": True}, json=spec_document(spec)
    )


def spec_document(spec: AnySpec, *, exclude_unset: bool = False) -> dict[str, JsonValue]:
    return spec.model_dump(mode="json", exclude_unset=exclude_unset) if isinstance(spec, Spec) else dict(spec)


class Poll(NamedTuple):
    """What a long poll found: the job, None if a proxy ended the request, and the pause that the service asks for."""

    job: Job | None
    pause_s: float = 0.0


def next_version(now: Job) -> http_transport.Request[Poll]:
    """The job at its next version, or after the long poll."""

    def read(response: httpx.Response) -> Poll:
        if response.status_code == httpx.codes.GATEWAY_TIMEOUT:
            return Poll(None)
        changed = now if response.status_code == httpx.codes.NOT_MODIFIED else http_transport.read_model(Job, response)
        return Poll(changed, http_transport.retry_after_s(response) or 0.0)

    known_version, wait = {"If-None-Match": f'"{now.version}"'}, {"wait": LONG_POLL_S}
    timeout_s = LONG_POLL_S + 10
    return http_transport.Request(
        "GET", job(now.id).path, read, wait, headers=known_version, timeout=timeout_s, retry=http_transport.PATIENT
    )


def events(job_id: str | None, after: str | None) -> http_transport.Request[None]:
    ids, path = ([], "/v1/events") if job_id is None else ([job_id], "/v1/jobs/{}/events")
    headers = {"Last-Event-ID": after} if after else None
    return Endpoint("GET", path, http_transport.check_stream, headers=headers, timeout=SILENT_S)(*ids)


def jobs(**filters: Filter) -> http_transport.Request[ListPage[Job]]:
    return http_transport.Request("GET", "/v1/jobs", returns(ListPage[Job]), params=_params(filters))


def deliveries(**filters: Filter) -> http_transport.Request[ListPage[webhook.Delivery]]:
    return http_transport.Request(
        "GET", "/v1/webhook-deliveries", returns(ListPage[webhook.Delivery]), params=_params(filters)
    )


def results(**filters: Filter) -> http_transport.Request[RowPage]:
    return http_transport.Request("GET", "/v1/results", _read_rows, params=_params(filters))


class LinePage(NamedTuple):
    """Exported results, a line each, and the next page, if there is one."""

    lines: list[str]
    following: http_transport.Request["LinePage"] | None


def exported(**filters: Filter) -> http_transport.Request[LinePage]:
    """A page of results as JSON lines."""

    def read(response: httpx.Response) -> LinePage:
        lines = http_transport.read_text(response).split("\n")
        cursor = _next_cursor(response)
        following = None if cursor is None else exported(**filters | {"cursor": cursor})
        return LinePage([line for line in lines if line], following)

    params = _params(filters) | {"format": "jsonl", "limit": str(EXPORTED_JOBS)}
    retry = http_transport.PATIENT
    return http_transport.Request("GET", "/v1/results", read, params=params, timeout=EXPORT_S, retry=retry)


def import_requests(lines: Iterable[str], source: str | None) -> Iterator[http_transport.Request[ImportReport]]:
    """The requests that import the lines, as many lines in each as the service takes. Blank lines are left out."""
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


def _import(lines: Iterable[str], first: int, source: str | None) -> http_transport.Request[ImportReport]:
    """May be sent again: a second import of a result changes nothing."""
    return http_transport.Request(
        *("POST", "/v1/results/import", returns(ImportReport)),
        params=given_params(first_line=str(first), **{"from": source}),
        content="\n".join(lines).encode(),
        headers={"Content-Type": MEDIA_TYPE},
        timeout=EXPORT_S,
        retry=http_transport.PATIENT,
    )


def advice(
    workload: str, params: Mapping[str, JsonValue], framework: str, metric: str | None
) -> http_transport.Request[Advice]:
    query = given_params(workload=workload, params=json.dumps(params), framework=framework, metric=metric)
    return http_transport.Request("GET", "/v1/advice", returns(Advice), params=query)


def history(**filters: Filter) -> http_transport.Request[History]:
    return http_transport.Request("GET", "/v1/history", returns(History), params=_params(filters))


def acknowledge(alarm: Alarm) -> http_transport.Request[Alarm]:
    """The query of the alarm's URL is that of the history which shows it."""
    url = httpx.URL(alarm.acknowledge_url)
    return http_transport.Request("POST", url.path, returns(Alarm), params=dict(url.params))


def given_params(**options: str | None) -> dict[str, str]:
    """The options that aren't None, as query parameters."""
    return _params(options)


def _params(filters: Mapping[str, Filter]) -> dict[str, str]:
    return {name: _text(value) for name, value in filters.items() if value is not None}


def _text(value: str | datetime | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else value


class Listing(Generic[http_transport.M]):
    """The first `limit` items (None: all), over as many pages as necessary. Any page may be short.

    `request` asks for the next page, and is None after the last one.
    """

    def __init__(self, first: http_transport.Request[ListPage[http_transport.M]], limit: int | None) -> None:
        self.items: list[http_transport.M] = []
        self._first, self._left = first, limit
        self.request: http_transport.Request[ListPage[http_transport.M]] | None = self._page()

    def add(self, page: ListPage[http_transport.M]) -> None:
        self.items += page.data
        if self._left is not None:
            self._left -= page.size
        is_last = page.next_cursor is None or (self._left is not None and self._left <= 0)
        self.request = None if is_last else self._page(cursor=page.next_cursor)

    def _page(self, **cursor: str | None) -> http_transport.Request[ListPage[http_transport.M]]:
        size = MAX_PAGE_SIZE if self._left is None else min(MAX_PAGE_SIZE, self._left)
        return replace(self._first, params={**(self._first.params or {}), **cursor, "limit": size})
