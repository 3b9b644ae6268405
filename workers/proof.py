"""Proof, at a worker's start and on its own device, that a forked runner works; if it doesn't, runners are spawned."""

from __future__ import annotations

import logging
import math
import time

from dyno.devices.device import Device
from dyno.devices.locks import lock_paths, shared_lock_paths
from dyno.frames import ProgressFrame, RunRequest
from dyno.settings import Settings
from dyno.spec import Measure, Processes, Spec
from workers.launcher import DEFAULT_FRAMEWORK, Launcher
from workers.log import event
from workers.outcome import failure_of
from workers.stop import StopReason, StopSwitch
from workers.watch import Limits, Watch

DEADLINE_S = 45.0  # an import without compiled bytecode takes 6 s on an idle machine
# The smallest job there is: it starts the device, multiplies, reads the result back and checks it.
_SPEC = Spec(
    workload="matmul",
    params={"n": 64, "repeats": 1},
    measure=Measure(processes=Processes(min=1, max=1), min_samples=1, min_s=0, max_s=1),
)


class _NoHeart:
    """Nobody leases a proof."""

    due_s = math.inf

    def beat(self, frame: ProgressFrame | None, run: int) -> StopReason | None:
        return None


def prove_fork(launcher: Launcher, device: Device, settings: Settings, deadline_s: float = DEADLINE_S) -> None:
    """Run one tiny forked job; falls back to spawning if it fails, or hasn't ended after `deadline_s`.

    A device that someone else's runner still holds, or a full host, proves nothing: forking is then left to the
    first job.
    """
    if not launcher.forks(DEFAULT_FRAMEWORK)[0] or DEFAULT_FRAMEWORK not in device.frameworks:
        return
    request = RunRequest(
        job="proof",
        spec=_SPEC,
        run=0,
        runs=1,
        device=device,
        lock_paths=lock_paths(device, settings),
        shared_lock_paths=shared_lock_paths(device, settings),
    )
    limits = Limits(deadline_s, settings.term_grace_s, time.monotonic() + deadline_s)
    with launcher.start(request) as runner:
        ended = Watch(runner, 0, limits, _NoHeart(), StopSwitch(), time.monotonic).until_ended()
    failure = failure_of(ended, deadline_s, deadline_s)
    if failure is None or (ended.failed is not None and ended.first_op_at_s is not None):
        event("fork-proved", device=device.id)  # an error of the workload's own, told in order, is no fork's fault
    elif failure.reason == "device_busy" or ended.exit.passing:
        event("fork-not-proved", logging.WARNING, device=device.id, why=failure.message)
    else:
        launcher.fall_back(DEFAULT_FRAMEWORK, f"a forked runner failed at start: {failure.reason}: {failure.message}")
        event("fork-failed", logging.WARNING, reason=failure.reason, message=failure.message, log=failure.log_tail)
