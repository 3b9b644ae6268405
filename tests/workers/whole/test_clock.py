"""A worker whose host's wall clock jumps: leases, timeouts and figures don't depend on it.

As on a real host, the monotonic clock doesn't jump.
"""

import pytest

from chaos.injectors import JumpingClock
from dyno.models.job import Status
from tests.cores import HERE
from tests.waiting import eventually
from tests.workers.conftest import Store, tiny
from tests.workers.whole.looking import (
    events_of,
    jobs_of,
    submit,
    until_idle,
    until_sampling,
    until_status,
)

SAMPLING_S = 4.0


@pytest.fixture
def clock(tmp_path):
    found = JumpingClock(tmp_path)
    if found.left_out is not None:
        pytest.skip(found.left_out)
    return found


@pytest.mark.verify
def test_a_clock_that_jumps_in_mid_run_neither_ends_the_job_nor_changes_what_it_measured(
    clock, start_worker, short_lease
):
    start_worker(HERE, short_lease, env={**clock.env, "DYNO_RUNNER_ENV": "JUMPING_CLOCK"})
    until_idle(short_lease, 1)
    measure = {"target_rel_ci": 1, "min_samples": 20, "min_s": SAMPLING_S, "max_s": SAMPLING_S}
    [job_id] = submit(short_lease, tiny(measure=measure, params={"n": 256, "repeats": 1}, timeout_s=60))
    until_sampling(short_lease, job_id)
    for jump_s in (3600, -3600):  # an hour ahead, then back, to an hour behind
        before = jobs_of(short_lease, job_id)[0].version
        clock.jump(jump_s)
        eventually(lambda before=before: jobs_of(short_lease, job_id)[0].version > before, what="a heartbeat after it")
    job = until_status(short_lease, job_id, Status.SUCCEEDED)
    assert (job.attempt, events_of(short_lease, job_id)) == (1, ["submit", "claim", "succeed"])
    assert job.started_at is not None
    assert job.finished_at is not None
    assert SAMPLING_S <= (job.finished_at - job.started_at).total_seconds() < 60  # by Redis' clock
    [run] = Store(short_lease).samples(job_id)
    taken_s = [sample_s * run.executions_per_sample for sample_s in run.samples]
    assert min(taken_s) > 0
    assert 0.4 * SAMPLING_S < sum(taken_s) < 60  # warming up takes half of the time at most
    [after] = submit(short_lease, tiny())
    assert until_status(short_lease, after, Status.SUCCEEDED).attempt == 1
