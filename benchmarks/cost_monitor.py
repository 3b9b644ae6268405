"""The monitor of `benchmarks.cost`: `python -m benchmarks.cost_monitor FRAMES_FD` claims a job and says so.

It reads frames as a supervisor does until stdin tells how the runner ended, and prints the number of its heartbeats.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time

from dyno.bench.devices.discovery import discover
from dyno.bench.registry import resolve
from dyno.bench.runner.launcher import LogTail, RunnerProcess
from dyno.bench.runner.monitor import RunLimits, RunnerMonitor, StopReason, StopSwitch
from dyno.models.job import WorkerRef
from dyno.models.runner_protocol import ProgressFrame
from dyno.models.spec import Spec
from dyno.processes import die_with_parent
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.placement import queues_served
from dyno.store.redis import async_client, sync_client
from workers.heartbeat import Heartbeat

_NO_LIMITS = RunLimits(stall_s=math.inf, term_grace_s=math.inf, deadline_s=math.inf)


class _Counted(Heartbeat):
    beats = 0

    def beat(self, frame: ProgressFrame | None, run: int) -> StopReason | None:
        self.beats += 1
        return super().beat(frame, run)


def main(frames_fd: int, parent_pid: int) -> None:
    die_with_parent(parent_pid)
    os.set_blocking(frames_fd, False)
    with EmbeddedServer() as server:
        settings = Settings().model_copy(update={"redis_url": server.url})
        leases = Leases(sync_client(settings), settings)
        stop = StopSwitch()
        heartbeat = _Counted(_claimed(leases, settings), leases, settings.heartbeat_s, time.monotonic, stop)
        print("claimed", flush=True)
        runner = RunnerProcess("forked", frames_fd, sys.stdin.fileno(), LogTail(), kill_zygote=lambda: None)
        ended = RunnerMonitor(runner, 0, _NO_LIMITS, heartbeat, stop, time.monotonic).until_ended()
    assert ended.stopped_for is None, ended.stopped_for
    assert heartbeat.heard, "Redis didn't answer"
    print(heartbeat.beats)


def _claimed(leases: Leases, settings: Settings) -> Claim:
    """Submit and claim a job in place of the sampled work: heartbeats need a claim, whatever the job."""
    device = discover("cpu", settings)
    asyncio.run(_submit(resolve(Spec.model_validate({"workload": "matmul", "device": "cpu"})).spec, settings))
    worker = WorkerRef(id="monitored", device=device.full_id, host=device.host)
    claim = leases.claim(device.full_id, queues_served(device), worker)
    assert claim is not None
    return claim


async def _submit(spec: Spec, settings: Settings) -> None:
    async with async_client(settings) as client:
        await Jobs(client, settings).submit(spec)


if __name__ == "__main__":
    main(int(sys.argv[1]), os.getppid())
