"""Responses with the stored documents of jobs and results, for the routes and for `service/hot_routes.py`."""

import re
from collections.abc import Mapping
from functools import lru_cache

from fastapi import Response

from dyno.models.job import Job
from dyno.store.pages import RecordPage
from dyno.store.records import StoredJob
from dyno.store.results import RESULT_SHAPE, StoredResult
from service.dependencies import etag_matches

JSON = "application/json"
DEFAULT_LIMIT = 50  # jobs on a page
_NO_WEIGHT = re.compile(r"q\s*=\s*0(\.0{0,3})?")
# A result never changes, but another version of Dyno may show more of its fields. The weak ETag identifies the result,
# compressed or not.
_RESULT_HEADERS = {
    "ETag": f'W/"{RESULT_SHAPE}"',
    "Cache-Control": "private, max-age=86400, immutable",
    "Vary": "Accept-Encoding",
}
_GZIP_HEADERS = _RESULT_HEADERS | {"Content-Encoding": "gzip"}


def job_etag(job: Job | StoredJob) -> str:
    """A weak ETag: the same version of a record may be shown with another position in the queue."""
    return f'W/"{job.version}"'


def job_response(job: StoredJob, if_none_match: str | None, more: Mapping[str, str] | None = None) -> Response:
    """200, or 304 if the caller has this version. `more`: further headers."""
    headers = {"ETag": job_etag(job), "Cache-Control": "no-cache", **(more or {})}
    if etag_matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(job.document, 200, headers, JSON)


def result_response(result: StoredResult, if_none_match: str | None, accept_encoding: str) -> Response:
    """200, or 304 if the caller has the result. A client that accepts gzip gets it compressed."""
    if etag_matches(if_none_match, _RESULT_HEADERS["ETag"]):
        return Response(status_code=304, headers=_RESULT_HEADERS)
    if accepts_gzip(accept_encoding) and (packed := result.gzip):
        return Response(packed, 200, _GZIP_HEADERS, JSON)
    return Response(result.document, 200, _RESULT_HEADERS, JSON)


@lru_cache(maxsize=64)  # a client sends the same value with each request
def accepts_gzip(accept_encoding: str) -> bool:
    """Whether the header's value lists gzip or `*`, with a weight above 0. An explicit gzip counts more than `*`."""
    weights: dict[str, bool] = {}
    for part in accept_encoding.lower().split(","):
        coding, *parameters = (word.strip() for word in part.split(";"))
        weights[coding] = not any(_NO_WEIGHT.fullmatch(parameter) for parameter in parameters)
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", False)))


def list_response(page: RecordPage[StoredJob]) -> Response:
    """One page of jobs. The caller adds the link to the next."""
    data = ",".join([stored.document for stored in page.data])
    cursor = "null" if page.next_cursor is None else f'"{page.next_cursor}"'
    more = "true" if page.has_more else "false"
    return Response(f'{{"data":[{data}],"next_cursor":{cursor},"has_more":{more}}}', media_type=JSON)
