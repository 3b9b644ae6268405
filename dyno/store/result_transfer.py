"""Export results as JSON lines, and import results of another Dyno.

An imported result is the record of a done job with the field `imported`. It affects neither the Prometheus metrics nor
the durations and bands that Dyno learns from its own jobs. The files of jobs aren't exported.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import anyio.to_thread

from dyno.errors import RecordUnreadable
from dyno.models.job import SCHEMA, Imported, Job, imported_job_id
from dyno.models.result import Result
from dyno.models.result_export import ExportedResult, ImportedLine, ImportReport
from dyno.models.spec import InterleavedSpec, Spec
from dyno.settings import Settings
from dyno.store.jobs import Jobs
from dyno.store.pipelining import PipeliningRedis
from dyno.store.records import SHAPE, StoredJob
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script, store_errors
from dyno.store.stored_results import (
    StoredResult,
    decompress,
    encode_outcome,
    encode_result,
    encode_samples,
    execute_raw,
)

_AT_ONCE = 10  # results that are read together: up to 100 kB each, with their samples


async def exported_lines(
    client: PipeliningRedis, settings: Settings, jobs: Sequence[StoredJob], source: str
) -> AsyncGenerator[str, None]:
    """A line of JSON for each job, in the format of `ExportedResult`. Leaves out jobs without a readable result."""
    keys = Keys(settings.namespace)
    for start in range(0, len(jobs), _AT_ONCE):
        some = jobs[start : start + _AT_ONCE]
        names = [keys.result(job.id) for job in some] + [keys.samples(job.id) for job in some]
        with store_errors():
            values: list[bytes | None] = await execute_raw(client, "MGET", *names)
        for job, result, samples in zip(some, values[: len(some)], values[len(some) :], strict=True):
            with contextlib.suppress(RecordUnreadable):  # logged already
                if result is not None:
                    yield _line(job, StoredResult(job.id, result), samples, source)
            await asyncio.sleep(0)


def _line(job: StoredJob, result: StoredResult, samples: bytes | None, source: str) -> str:
    """The stored documents as one line. JSON documents without indentation have no line breaks."""
    readings = "null"
    if samples is not None:
        with contextlib.suppress(ValueError):  # a damaged value
            readings = decompress(samples)
    return f'{{"from":{json.dumps(source)},"job":{job.document},"result":{result.document},"samples":{readings}}}\n'


class NumberedLine(NamedTuple):
    number: int
    content: ExportedResult


class ResultImports:
    """Stores exported results for the viewer of `jobs`."""

    def __init__(self, client: PipeliningRedis, settings: Settings, jobs: Jobs) -> None:
        self._viewer, self._namespace = jobs.viewer, settings.namespace
        self._key_expires_in_s = settings.key_expires_in_s
        self._script = client.cached_script(SCRIPT_SOURCES[Script.IMPORT])

    async def store(self, lines: Sequence[NumberedLine]) -> ImportReport:
        """Import all of the lines in one step. Raises StoreUnavailable; then no line is imported."""
        args = await anyio.to_thread.run_sync(self._arguments, lines)
        with store_errors():
            reply: Any = await self._script([], args)
        report = [
            ImportedLine(line=line.number, original=_original(line.content.job), job=job_id, new=bool(new))
            for line, (job_id, new) in zip(lines, reply, strict=True)
        ]
        new = sum(line.new for line in report)
        return ImportReport(imported=new, already=len(report) - new, lines=report)

    def _arguments(self, lines: Sequence[NumberedLine]) -> list[Any]:
        owner = self._viewer.owner
        args: list[Any] = [self._namespace, owner or "", int(self._viewer.sees_all), len(lines)]
        now = datetime.now(UTC)
        for _, line in lines:
            original = _original(line.job)
            job_id = imported_job_id(original, owner)
            result = encode_result(_without_files(line.result, job_id))
            samples = b"" if line.samples is None else encode_samples(line.samples)
            fields = self._record(line, original, now)
            args += [job_id, original, result, samples, len(fields)]
            args += [part for field in fields.items() for part in field]
        return args

    def _record(self, line: ExportedResult, original: str, now: datetime) -> dict[str, str]:
        job, spec = line.job, self._within_rights(line.job.spec)
        source = job.imported.source if job.imported else line.source
        parts = {
            "imported": Imported(source=source, at=now, job=original),
            "worker": job.worker,
            "progress": job.progress,
        }
        times = {"started_at": job.started_at, "finished_at": job.finished_at}
        record = {
            "schema": str(SCHEMA),
            "spec": spec.model_dump_json(exclude=_NOT_HERE),
            "workload": spec.workload,
            "queue": job.queue.name,
            "attempt": str(job.attempt),
            "expires_in_s": str(spec.expires_in_s),
            "warnings": f"[{','.join(warning.model_dump_json() for warning in job.warnings)}]",
            "created_ms": str(int(job.created_at.timestamp() * 1000)),
            "created_at": _seconds(job.created_at),
            "queued_at": _seconds(job.queued_at),
        }
        record |= {name: part.model_dump_json() for name, part in parts.items() if part is not None}
        record |= {name: _seconds(time) for name, time in times.items() if time is not None}
        if job.baseline is not None:
            record["judged"] = encode_outcome(job.baseline)
        if not isinstance(spec, InterleavedSpec):
            record["shape"] = SHAPE
        return record

    def _within_rights(self, spec: Spec) -> Spec:
        """The spec, with `expires_in_s` reduced to the maximum of this key."""
        most_s = self._viewer.expires_in_s or (self._viewer.owner and self._key_expires_in_s)
        return spec.model_copy(update={"expires_in_s": min(spec.expires_in_s, most_s or spec.expires_in_s)})


_NOT_HERE: Any = {"webhook": True, "against": {"webhook"}}  # the Dyno that ran the job notified the webhook


def _original(job: Job) -> str:
    """The job's id in the Dyno that ran it. The exporting Dyno may itself have imported the job."""
    return job.imported.job if job.imported else job.id


def _seconds(time: datetime) -> str:
    return f"{time.timestamp():.6f}"


def _without_files(result: Result, job_id: str) -> Result:
    """The result with the job id `job_id`, and without artifacts, which stay in the Dyno that ran the job."""
    arms = [_without_files(arm, job_id) for arm in result.arms]
    return result.model_copy(update={"job": job_id, "artifacts": [], "arms": arms})
