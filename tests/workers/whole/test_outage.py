"""A Redis outage during a benchmark: the benchmark isn't affected, and its result is written afterwards."""

import os
import signal
import time

import pytest

from dyno.models.job import Status
from dyno.store.embedded import EmbeddedServer
from tests.cores import HERE
from tests.servers import kill_once_written
from tests.waiting import eventually
from tests.workers.conftest import Store, tiny
from tests.workers.whole.looking import submit, until_idle, until_sampling, until_status

OUTAGE_S = float(os.environ.get("DYNO_TEST_OUTAGE_S", "5"))
AROUND_S = 1.5  # duration of the benchmark before and after the outage
LEASE_S = min(30.0, 0.75 * OUTAGE_S)  # runs out during the outage


def dead(server):
    kill_once_written(server)
    return server.revive


def silent(server):
    os.kill(server.pid, signal.SIGSTOP)
    return lambda: os.kill(server.pid, signal.SIGCONT)


@pytest.mark.timeout(300 + 3 * OUTAGE_S)
@pytest.mark.parametrize("fault", [dead, pytest.param(silent, marks=pytest.mark.verify)])
def test_a_benchmark_goes_on_while_redis_is_away_and_its_result_arrives_once_it_is_back(fault, start_worker, settings):
    sampling_s = OUTAGE_S + AROUND_S
    with EmbeddedServer() as server:
        # A reaper without the grace period would have taken the lease before the next heartbeat.
        quick = {"redis_url": server.url, "lease_s": LEASE_S, "heartbeat_s": LEASE_S / 4, "reap_every_s": 0.1}
        there = settings.model_copy(update=quick)
        start_worker(HERE, there)
        until_idle(there, 1)
        measure = {"target_rel_ci": 1, "min_samples": 20, "min_s": sampling_s, "max_s": sampling_s}
        [job_id] = submit(there, tiny(measure=measure, params={"n": 256, "repeats": 1}))
        until_sampling(there, job_id)
        end_it, since_s = fault(server), time.monotonic()
        eventually(lambda: time.monotonic() - since_s > OUTAGE_S, OUTAGE_S + 60, "the outage is over")
        end_it()
        job = until_status(there, job_id, Status.SUCCEEDED)
        [run] = Store(there).samples(job_id)
    assert job.attempt == 1
    taken_s = [sample_s * run.executions_per_sample for sample_s in run.samples]
    # Warming up takes half of the time at most. Beside the outage there would be AROUND_S alone.
    assert sum(taken_s) > 0.4 * sampling_s > AROUND_S, "they were taken during the outage, too"
    assert max(taken_s) < 0.9 * OUTAGE_S, "none of them waited for its end"
