"""A result for jobs that no worker runs."""

from dyno.models.result import Energy, Memory, Peak, Phases, Result, Verdict


def a_result(job_id, artifacts=()):
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
