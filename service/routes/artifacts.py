"""The files that a job left behind: their list, each of them, and where its worker puts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from dyno.artifact_store import MEDIA_TYPES, OCTET_STREAM, PIECE_BYTES, artifact_url, media_type
from dyno.errors import ArtifactNotFound
from dyno.models.result import Artifact, ArtifactList
from dyno.store.artifacts import check_token, note_files_async
from service.answers.conditional import matches
from service.dependencies import ArtifactName, AttemptToken, IfNoneMatch, JobId, JobsDep, StateDep
from service.edge import SANDBOXED
from service.errors import as_to_a_stranger
from service.problems import documented
from service.requests.upload import received

router = APIRouter(prefix="/v1/jobs/{job_id}")

_JSON = "application/json"
_BYTES: dict[str, Any] = {OCTET_STREAM: {"schema": {"type": "string", "format": "binary"}}}
# Bytes first: clients made of the document take the first one that they know.
_SERVED = _BYTES | {
    each.partition(";")[0]: {} if each == _JSON else _BYTES[OCTET_STREAM] for each in MEDIA_TYPES.values()
}


_OF_LIST = documented("job-not-found", "result-not-ready", "no-result", "record-unreadable", "store-unavailable")
_OF_FILE: dict[int | str, dict[str, Any]] = {
    304: {"description": "The ETag given is that of the file"},
    **documented(
        *("job-not-found", "artifact-not-found", "result-not-ready", "no-result"),
        *("record-unreadable", "store-unavailable"),
        "artifact-store-unavailable",
    ),
}
_FILE_SENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file; its ETag is its SHA-256", "content": _SERVED}
}
_FILE_TOLD: dict[int | str, dict[str, Any]] = {200: {"description": "Its size, type and ETag, without the file"}}


@router.head("/artifacts", tags=["artifacts"], responses=_OF_LIST)
@router.get("/artifacts", tags=["artifacts"], responses=_OF_LIST)
async def browse(job_id: JobId, jobs: JobsDep) -> ArtifactList:
    """The files of a job that succeeded, by name. They go with its record."""
    return ArtifactList(data=(await jobs.result(job_id)).artifacts)


@router.head("/artifacts/{name}", tags=["artifacts"], response_class=Response, responses=_FILE_TOLD | _OF_FILE)
@router.get("/artifacts/{name}", tags=["artifacts"], response_class=Response, responses=_FILE_SENT | _OF_FILE)
async def download(
    job_id: JobId, name: ArtifactName, request: Request, state: StateDep, if_none_match: IfNoneMatch
) -> Response:
    """One file, as it was left: to be saved, never to be shown in place."""
    listed = (await state.jobs.result(job_id)).artifacts
    artifact = next((each for each in listed if each.name == name), None)
    if artifact is None:
        raise ArtifactNotFound(f'{job_id} left no file "{name}"; it left: {_names(listed)}')
    headers = {"ETag": f'"{artifact.sha256}"', "Cache-Control": "private, no-cache"}
    if matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    file = await anyio.to_thread.run_sync(state.artifacts.open, job_id, artifact)
    headers |= {
        "Content-Length": str(artifact.bytes),
        "Content-Disposition": f'attachment; filename="{name}"',
        # Whatever the bytes are: no browser takes them for something else, nor runs what is in them.
        **SANDBOXED,
    }
    if request.method == "HEAD":
        await anyio.to_thread.run_sync(file.close)
        return Response(headers=headers, media_type=media_type(name))
    return StreamingResponse(_pieces(file), headers=headers, media_type=media_type(name))


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _names(listed: list[Artifact]) -> str:
    return ", ".join(each.name for each in listed) or "none"


@router.put(
    "/artifacts/{name}",
    tags=["artifacts"],
    openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
    responses=documented(
        *("not-authorized", "job-not-found", "artifact-not-found", "body-timeout", "stale-token", "artifact-too-large"),
        *("store-unavailable", "artifact-store-unavailable"),
    ),
)
async def keep(job_id: JobId, name: ArtifactName, request: Request, state: StateDep, token: AttemptToken) -> Artifact:
    """For workers: keep the body as a file of the job that the attempt's token holds. Listed once the job succeeds.

    Repeating it with the same content changes nothing.
    """
    with as_to_a_stranger():
        await check_token(state.client, state.settings, job_id, token)
    await note_files_async(state.client, state.settings, job_id)
    folder = await anyio.to_thread.run_sync(state.artifacts.incoming, job_id)
    async with received(request, folder, state.settings.artifact_max_bytes) as upload:
        await check_token(state.client, state.settings, job_id, token)  # it may have lost the job while it sent
        await anyio.to_thread.run_sync(state.artifacts.keep, job_id, name, upload.sha256, upload.path)
    return Artifact(name=name, bytes=upload.bytes, sha256=upload.sha256, url=artifact_url(job_id, name))
