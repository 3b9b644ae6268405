"""Routes for the raw samples of jobs (JSON, CSV, JSON lines) and for their files: list, download, upload by workers.

An upload is written to disk as it arrives, with limits on its size and its pauses.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from dyno import artifact_store, errors, tables
from dyno.models.result import Artifact, ArtifactList, RunSamples, SampleList
from dyno.models.result_export import MEDIA_TYPE
from dyno.store.artifacts import check_token, note_files_async
from service import auth, middleware, problems
from service.dependencies import (
    ArtifactName,
    AttemptToken,
    IfNoneMatch,
    JobId,
    JobsDep,
    StateDep,
    etag_matches,
    sends,
    takes,
)

SILENT_S = 30.0  # the longest time between two pieces of an upload; a live worker sends pieces more often


@dataclass(frozen=True)
class Upload:
    """A complete file. `path` is deleted when the block of `received_upload` ends, unless the file was moved."""

    path: Path
    bytes: int
    sha256: str


@asynccontextmanager
async def received_upload(request: Request, folder: Path, max_bytes: int) -> AsyncIterator[Upload]:
    """Receive the body into a file in `folder`. Raises ArtifactTooLarge, BodyTooSlow, ArtifactStoreUnavailable."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > max_bytes:
        raise errors.ArtifactTooLarge(f"the file has {declared[:20]} bytes; the limit is {max_bytes}")
    path = folder / f".{secrets.token_hex(8)}"
    try:
        yield await _receive_upload(request, path, max_bytes)
    finally:
        path.unlink(missing_ok=True)


async def _receive_upload(request: Request, path: Path, max_bytes: int) -> Upload:
    digest, size_bytes = hashlib.sha256(), 0
    try:
        with path.open("xb") as file:

            def add(piece: bytes) -> None:
                file.write(piece)
                digest.update(piece)

            async for piece in _body_pieces(request):
                size_bytes += len(piece)
                if size_bytes > max_bytes:
                    raise errors.ArtifactTooLarge(f"the file exceeds the limit of {max_bytes} bytes")
                await anyio.to_thread.run_sync(add, piece)
    except ClientDisconnect as error:
        raise problems.BodyTooSlow("the connection closed before the file was complete") from error
    except OSError as error:
        raise errors.ArtifactStoreUnavailable(f"{path.parent} can't be written: {error.strerror or error}") from error
    return Upload(path, size_bytes, digest.hexdigest())


async def _body_pieces(request: Request) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(SILENT_S):
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise problems.BodyTooSlow(f"the client sent no data for {SILENT_S:.0f} s") from error
        yield piece  # outside the timeout, which must not include slow writes to disk


router = APIRouter(prefix="/v1/jobs/{job_id}")

_TABLES = {"text/csv": {"schema": {"type": "string"}}, MEDIA_TYPE: {"schema": {"type": "string"}}}


@router.get(
    "/samples",
    tags=["jobs"],
    operation_id="getSamples",
    summary="Read a job's samples",
    response_model=SampleList,
    responses={
        200: {"content": _TABLES, **sends("Disposition")},
        **problems.documented("job-not-found", "result-not-ready", "no-result", "record-unreadable"),
    },
)
@auth.requires(auth.READ, auth.OWN)
async def samples(
    job_id: JobId, jobs: JobsDep, format: Annotated[Literal["json", "csv", "jsonl"], Query()] = "json"
) -> SampleList | StreamingResponse:
    """Read all samples in the order in which they were taken; warm-up is separate. Times are seconds per execution.

    CSV has a line for each sample, `jsonl` one for each run and case.
    """
    all_runs = await jobs.samples(job_id)
    if format == "json":
        return SampleList(data=all_runs)
    headers = {"Content-Disposition": f'attachment; filename="{job_id}-samples.{format}"'}
    if format == "jsonl":
        lines = (f"{run.model_dump_json()}\n" for run in all_runs)
        return StreamingResponse(lines, media_type=MEDIA_TYPE, headers=headers)
    return StreamingResponse(csv_pieces(all_runs), media_type="text/csv; charset=utf-8", headers=headers)


def csv_pieces(runs: Sequence[RunSamples]) -> Iterator[str]:
    """The table in one piece per run, not per line: each piece costs a thread switch of 0.1 ms, each line only 4 µs."""
    yield tables.csv_text(tables.lines_of(tables.SAMPLE_COLUMNS, ()))
    for run in runs:
        yield tables.csv_text(tables.lines_of(tables.SAMPLE_COLUMNS, tables.sample_rows(run), header=False))


_JSON = "application/json"
_BYTES: dict[str, Any] = {artifact_store.OCTET_STREAM: {"schema": {"type": "string", "format": "binary"}}}
# Bytes first: clients generated from the document use the first type that they know.
_SERVED = _BYTES | {
    media_type.partition(";")[0]: {} if media_type == _JSON else _BYTES[artifact_store.OCTET_STREAM]
    for media_type in artifact_store.MEDIA_TYPES.values()
}


_OF_LIST = problems.documented("job-not-found", "result-not-ready", "no-result", "record-unreadable")
_OF_FILE: dict[int | str, dict[str, Any]] = {
    304: {"description": "The file hasn't changed since the given ETag", **sends("FileETag")},
    **problems.documented(
        *("job-not-found", "artifact-not-found", "result-not-ready", "no-result"),
        *("record-unreadable", "store-unavailable"),
        "artifact-store-unavailable",
    ),
}
_FILE_SENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file; its ETag is its SHA-256", "content": _SERVED, **sends("FileETag", "Disposition")}
}
_FILE_TOLD: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file's size, type and ETag", **sends("FileETag", "Disposition")}
}


@router.head(
    "/artifacts",
    tags=["artifacts"],
    operation_id="checkArtifacts",
    summary="Check that a job's files can be listed",
    responses=_OF_LIST,
)
@router.get(
    "/artifacts", tags=["artifacts"], operation_id="listArtifacts", summary="List a job's files", responses=_OF_LIST
)
@auth.requires(auth.READ, auth.OWN)
async def browse(job_id: JobId, jobs: JobsDep) -> ArtifactList:
    """List the files of a succeeded job by name. They are deleted with the job."""
    return ArtifactList(data=(await jobs.result(job_id)).artifacts)


@router.head(
    "/artifacts/{name}",
    tags=["artifacts"],
    operation_id="checkArtifact",
    summary="Read a file's headers",
    response_class=Response,
    responses=_FILE_TOLD | _OF_FILE,
)
@router.get(
    "/artifacts/{name}",
    tags=["artifacts"],
    operation_id="getArtifact",
    summary="Download a file",
    response_class=Response,
    responses=_FILE_SENT | _OF_FILE,
)
@auth.requires(auth.READ, auth.OWN)
async def download(
    job_id: JobId, name: ArtifactName, request: Request, state: StateDep, if_none_match: IfNoneMatch
) -> Response:
    """Download one file. Browsers save it and never display it."""
    listed = (await state.jobs.result(job_id)).artifacts
    artifact = next((entry for entry in listed if entry.name == name), None)
    if artifact is None:
        raise errors.ArtifactNotFound(f'{job_id} has no file "{name}"; files: {_names(listed)}')
    headers = {"ETag": f'"{artifact.sha256}"', "Cache-Control": "private, no-cache"}
    if etag_matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    file = await anyio.to_thread.run_sync(state.artifacts.open, job_id, artifact)
    headers |= {
        "Content-Length": str(artifact.bytes),
        "Content-Disposition": f'attachment; filename="{name}"',
        # Browsers neither guess the type of the bytes nor execute them.
        **middleware.SANDBOXED,
    }
    if request.method == "HEAD":
        await anyio.to_thread.run_sync(file.close)
        return Response(headers=headers, media_type=artifact_store.media_type(name))
    return StreamingResponse(_file_pieces(file), headers=headers, media_type=artifact_store.media_type(name))


def _file_pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(artifact_store.PIECE_BYTES):
            yield piece


def _names(listed: list[Artifact]) -> str:
    return ", ".join(artifact.name for artifact in listed) or "none"


@router.put(
    "/artifacts/{name}",
    tags=["artifacts"],
    operation_id="putArtifact",
    summary="Store a file",
    openapi_extra=takes(_BYTES[artifact_store.OCTET_STREAM]["schema"], artifact_store.OCTET_STREAM),
    responses=problems.documented(
        *("not-authorized", "job-not-found", "artifact-not-found", "body-timeout", "stale-token", "artifact-too-large"),
        *("store-unavailable", "artifact-store-unavailable"),
    ),
)
@auth.requires(auth.Keyless.TO_ATTEMPTS, auth.OWN)
async def keep(job_id: JobId, name: ArtifactName, request: Request, state: StateDep, token: AttemptToken) -> Artifact:
    """For workers: store the body as a file of the job that the attempt's token belongs to.

    Files are listed once the job succeeds. Repeating the request with the same content changes nothing.
    """
    with problems.hide_store_details():
        await check_token(state.client, state.settings, job_id, token)
    await note_files_async(state.client, state.settings, job_id)
    folder = await anyio.to_thread.run_sync(state.artifacts.incoming, job_id)
    async with received_upload(request, folder, state.settings.artifact_max_bytes) as upload:
        await check_token(state.client, state.settings, job_id, token)  # the attempt may have ended meanwhile
        await anyio.to_thread.run_sync(state.artifacts.keep, job_id, name, upload.sha256, upload.path)
    return Artifact(name=name, bytes=upload.bytes, sha256=upload.sha256, url=artifact_store.artifact_url(job_id, name))
