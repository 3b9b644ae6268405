"""A result for jobs that no worker runs."""

from __future__ import annotations

from collections.abc import Sequence

from dyno.models.result import Artifact, Energy, Memory, Peak, Phases, Result, Verdict


def a_result(job_id: str, artifacts: Sequence[Artifact] = ()) -> Result:
    return Result(
        job=job_id,
        workload="mnist_cnn",
        verdict=Verdict.INDICATIVE,
        warnings=[],
        metrics=[],
        phases=Phases(),
        runs=[],
        peak=Peak(value=None),
        memory=Memory(),
        energy=Energy(),
        device={},
        environment={},
        artifacts=list(artifacts),
    )
