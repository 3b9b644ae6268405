"""A worker whose host's clock jumps: leases and timeouts don't go by it, nor do the figures.

`libfaketime` shifts what the worker and its runners read of the wall clock. The monotonic clock, which no jump moves
on a real host either, is left alone.
"""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path

import pytest

from dyno.job import Status
from dyno.settings import Settings
from tests.waiting import eventually
from tests.workers.conftest import Store, tiny
from tests.workers.whole.looking import (
    StartWorker,
    events_of,
    jobs_of,
    submit,
    until_idle,
    until_sampling,
    until_status,
)

NAME = "libfaketime.so.1"  # not ...MT: that one is for programs that start threads before it is ready
FOLDERS = ("/usr/lib", "/usr/local/lib", "/opt")
SAMPLING_S = 6.0


@pytest.fixture
def jumping(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The file that says how far the clock is off, and the environment in which that is looked at."""
    installed = chain.from_iterable(Path(folder).rglob(NAME) for folder in FOLDERS)
    found = os.environ.get("LIBFAKETIME") or next(installed, None)
    if found is None:
        pytest.skip(f"no {NAME} here: the package libfaketime isn't installed, and LIBFAKETIME names none")
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    env = {
        "LD_PRELOAD": str(found),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    return offset, env


@pytest.mark.parametrize("jump", ["+1h", "-1h"])
def test_a_clock_that_jumps_in_mid_run_neither_ends_the_job_nor_changes_what_it_measured(
    jump: str, jumping: tuple[Path, dict[str, str]], start_worker: StartWorker, short_lease: Settings
) -> None:
    offset, env = jumping
    start_worker("cpu:0-0", short_lease, env=env)
    until_idle(short_lease, 1)
    measure = {"min_samples": 20, "min_s": SAMPLING_S, "max_s": SAMPLING_S}
    [job_id] = submit(short_lease, tiny(measure=measure, params={"n": 256, "repeats": 1}, timeout_s=60))
    before = until_sampling(short_lease, job_id)
    offset.write_text(f"{jump}\n")
    eventually(lambda: jobs_of(short_lease, job_id)[0].version > before.version, what="a heartbeat after the jump")
    job = until_status(short_lease, job_id, Status.SUCCEEDED)
    assert (job.attempt, events_of(short_lease, job_id)) == (1, ["submit", "claim", "succeed"])
    assert job.started_at is not None
    assert job.finished_at is not None
    assert SAMPLING_S <= (job.finished_at - job.started_at).total_seconds() < 60  # by Redis' clock
    [run] = Store(short_lease).samples(job_id)
    taken_s = [sample_s * run.executions_per_sample for sample_s in run.samples]
    assert min(taken_s) > 0
    assert SAMPLING_S / 2 < sum(taken_s) < 2 * SAMPLING_S
    [after] = submit(short_lease, tiny())
    assert until_status(short_lease, after, Status.SUCCEEDED).attempt == 1
