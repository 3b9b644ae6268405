"""Test on a worker's own device whether a framework's runners can be forked; if not, spawn them.

The worker tests the default framework at its start, and every other framework just before it forks its first runner.
"""

import logging
import math
import time
from contextlib import closing
from functools import partial

from dyno.bench.devices.locks import lock_paths, shared_lock_paths
from dyno.bench.runner.failures import failure_of
from dyno.bench.runner.launcher import DEFAULT_FRAMEWORK, Launcher
from dyno.bench.runner.monitor import RunLimits, RunnerMonitor, StopReason, StopSwitch
from dyno.logging import event
from dyno.models.device import Device
from dyno.models.job import DEVICE_BUSY
from dyno.models.runner_protocol import ProgressFrame, RunRequest
from dyno.models.spec import Measure, Processes, Spec
from dyno.settings import Settings

PROOF_TIMEOUT_S = 45.0  # an import without compiled bytecode takes 6 s on an idle machine
_LEASE_SHARE = 0.75  # of the lease: no heartbeat extends a job's lease while it waits for a self-test
# The smallest possible job: it starts the device, multiplies, reads the product back and checks it.
_SPEC = Spec(
    workload="matmul",
    params={"n": 64, "repeats": 1},
    measure=Measure(processes=Processes(min=1, max=1), min_samples=1, min_s=0, max_s=1),
)


class _NoHeartbeat:
    """A self-test has no lease, so it needs no heartbeats."""

    due_s = math.inf

    def beat(self, frame: ProgressFrame | None, run: int) -> StopReason | None:
        return None


def prove_fork(launcher: Launcher, device: Device, settings: Settings, deadline_s: float = PROOF_TIMEOUT_S) -> None:
    """Test the default framework now, and let the launcher test every other framework before its first runner.

    Falls back to spawning if a tiny forked job fails, or hasn't ended after `deadline_s`. If another runner still holds
    the device, or the host is full, the test is inconclusive: the first job then forks.
    """
    if DEFAULT_FRAMEWORK in device.frameworks and launcher.forks(DEFAULT_FRAMEWORK)[0]:
        _prove(launcher, device, settings, deadline_s, DEFAULT_FRAMEWORK)
    with_a_job_s = min(deadline_s, _LEASE_SHARE * settings.lease_s)
    launcher.prove_with(partial(_prove, launcher, device, settings, with_a_job_s), proven=DEFAULT_FRAMEWORK)


def _prove(launcher: Launcher, device: Device, settings: Settings, deadline_s: float, framework: str) -> None:
    spec = _SPEC.model_copy(update={"framework": framework})
    request = RunRequest(
        job="proof",
        spec=spec,
        run=0,
        runs=1,
        device=device,
        lock_paths=lock_paths(device, settings),
        shared_lock_paths=shared_lock_paths(device, settings),
    )
    limits = RunLimits(deadline_s, settings.term_grace_s, time.monotonic() + deadline_s)
    with closing(StopSwitch()) as stop, launcher.start(request) as runner:
        ended = RunnerMonitor(runner, 0, limits, _NoHeartbeat(), stop, time.monotonic).until_ended()
    failure = failure_of(ended, deadline_s, deadline_s)
    if failure is None or (ended.failed is not None and ended.first_op_at_s is not None):
        event("fork-proved", framework=framework, device=device.id)  # a fork doesn't cause a regular error frame
    elif failure.reason == DEVICE_BUSY or ended.exit.passing:
        event("fork-not-proved", logging.WARNING, framework=framework, device=device.id, why=failure.message)
    else:
        launcher.fall_back(framework, f"a forked runner failed at start: {failure.reason}: {failure.message}")
        event(
            "fork-failed",
            logging.WARNING,
            framework=framework,
            reason=failure.reason,
            message=failure.message,
            log=failure.log_tail,
        )
