"""What a worker does while its runner samples: its own watch over the frames, and heartbeats to a real Redis.

`python -m benchmarks.watched FRAMES_FD` claims a job from a Redis of its own and says so, then reads frames as a
supervisor does until stdin tells how the runner ended, and prints how many heartbeats it sent. It has no launcher, so
its heartbeats come without a look at what the runner holds of the host.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dyno.devices.discovery import discover
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
from dyno.workloads import resolve
from workers.heartbeat import Heartbeat
from workers.launcher import LogTail, RunnerProcess
from workers.monitor import RunLimits, RunnerMonitor, StopReason, StopSwitch

_ENDED = b'{"status": 0}\n'  # as a zygote says it
_NEVER = RunLimits(stall_s=math.inf, term_grace_s=math.inf, deadline_s=math.inf)


class Watcher:
    """The process for it, asleep but inside `awake`. Its Redis idles beside it all the time."""

    def __init__(self) -> None:
        read_fd, self.frames_fd = os.pipe()
        command = [sys.executable, "-m", "benchmarks.watched", str(read_fd)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[read_fd],
            cwd=Path(__file__).parent.parent,
        )
        os.close(read_fd)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("the reader of frames has claimed no job")
        self._sleep()

    @property
    def pid(self) -> int:
        return self._process.pid

    @contextmanager
    def awake(self) -> Iterator[int]:
        """The descriptor to write frames to, while they are read."""
        self._process.send_signal(signal.SIGCONT)
        try:
            yield self.frames_fd
        finally:
            self._sleep()

    def close(self) -> int:
        """End it; how many heartbeats it has sent."""
        os.close(self.frames_fd)
        self._process.send_signal(signal.SIGCONT)
        said, _ = self._process.communicate(_ENDED)
        return int(said)

    def _sleep(self) -> None:
        """Returns when it does."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


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
        pulse = _Counted(_claimed(leases, settings), leases, settings.heartbeat_s, time.monotonic)
        print("claimed", flush=True)
        runner = RunnerProcess("forked", frames_fd, sys.stdin.fileno(), LogTail(), kill_zygote=lambda: None)
        ended = RunnerMonitor(runner, 0, _NEVER, pulse, StopSwitch(), time.monotonic).until_ended()
    assert ended.stopped_for is None, ended.stopped_for
    assert pulse.heard, "Redis didn't answer"
    print(pulse.beats)


def _claimed(leases: Leases, settings: Settings) -> Claim:
    """A job that stands for the one that is sampled; all that counts of it is that a worker has it."""
    device = discover("cpu", settings)
    asyncio.run(_submitted(resolve(Spec.model_validate({"workload": "matmul", "device": "cpu"})).spec, settings))
    worker = WorkerRef(id="watched", device=device.full_id, host=device.host)
    claim = leases.claim(device.full_id, queues_served(device), worker)
    assert claim is not None
    return claim


async def _submitted(spec: Spec, settings: Settings) -> None:
    async with async_client(settings) as client:
        await Jobs(client, settings).submit(spec)


if __name__ == "__main__":
    main(int(sys.argv[1]), os.getppid())
