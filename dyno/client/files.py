"""The calls that are about what a job leaves behind: readings, log, files."""

from __future__ import annotations

from pathlib import Path

from dyno.client.call import call
from dyno.client.errors import DownloadDamaged
from dyno.client.paths import in_path
from dyno.client.steps import Receive, Steps, asked, text_of
from dyno.result import Artifact, ArtifactList
from dyno.samples import RunSamples, SampleList


class FileCalls:
    """Of both clients."""

    @call
    def samples(self, job_id: str) -> Steps[list[RunSamples]]:
        """Every reading that the result rests on, run by run."""
        return (yield from asked(SampleList, "GET", f"/v1/jobs/{in_path(job_id)}/samples")).data

    @call
    def logs(self, job_id: str) -> Steps[str]:
        """What the job's runners have printed, the last 256 KiB at most."""
        return text_of(f"/v1/jobs/{in_path(job_id)}/logs")

    @call
    def artifacts(self, job_id: str) -> Steps[list[Artifact]]:
        """The files that a job has left behind."""
        return (yield from asked(ArtifactList, "GET", f"/v1/jobs/{in_path(job_id)}/artifacts")).data

    @call
    def download(self, job_id: str, artifact: Artifact, to: Path) -> Steps[None]:
        """One of them, written to the file `to`. Raises DownloadDamaged where size or SHA-256 aren't as listed."""
        unchecked = to.with_name(f"{to.name}.part")
        try:
            with unchecked.open("wb") as file:
                digest = yield Receive(file_path(job_id, artifact.name), file)
            if digest != artifact.sha256:
                raise DownloadDamaged(f"{artifact.name} of {job_id} arrived with another SHA-256 than its result lists")
            unchecked.replace(to)
        finally:
            unchecked.unlink(missing_ok=True)


def file_path(job_id: str, name: str) -> str:
    """Of a file that a job left."""
    return f"/v1/jobs/{in_path(job_id)}/artifacts/{in_path(name)}"
