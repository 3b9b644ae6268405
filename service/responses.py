"""Responses with the stored documents of jobs and results, for the routes and for `service/hot_routes.py`."""

from collections.abc import Mapping

from fastapi import Response

from dyno.models.job import Job
from dyno.store.documents import RESULT_SHAPE, StoredJob, StoredResult
from dyno.store.records import RecordPage
from service.dependencies import etag_matches

JSON = "application/json"
DEFAULT_LIMIT = 50  # jobs on a page
# A result never changes, but another version of Dyno may show more of its fields.
_RESULT_HEADERS = {"ETag": f'W/"{RESULT_SHAPE}"', "Cache-Control": "private, max-age=86400, immutable"}


def job_etag(job: Job | StoredJob) -> str:
    """A weak ETag: the same version of a record may be shown with another position in the queue."""
    return f'W/"{job.version}"'


def job_response(job: StoredJob, if_none_match: str | None, more: Mapping[str, str] | None = None) -> Response:
    """200, or 304 if the caller has this version. `more`: further headers."""
    headers = {"ETag": job_etag(job), "Cache-Control": "no-cache", **(more or {})}
    if etag_matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(job.document, 200, headers, JSON)


def result_response(result: StoredResult, if_none_match: str | None) -> Response:
    """200, or 304 if the caller has the result."""
    if etag_matches(if_none_match, _RESULT_HEADERS["ETag"]):
        return Response(status_code=304, headers=_RESULT_HEADERS)
    return Response(result.document, 200, _RESULT_HEADERS, JSON)


def list_response(page: RecordPage[StoredJob]) -> Response:
    """One page of jobs. The caller adds the link to the next."""
    data = ",".join([stored.document for stored in page.data])
    cursor = "null" if page.next_cursor is None else f'"{page.next_cursor}"'
    more = "true" if page.has_more else "false"
    return Response(f'{{"data":[{data}],"next_cursor":{cursor},"has_more":{more}}}', media_type=JSON)
