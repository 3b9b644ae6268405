"""Real runners from real zygotes, on one core; misbehaving ones are small programs in a real spawned process."""

from __future__ import annotations

import math
import os
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dyno.devices import discover
from dyno.devices.device import Device
from dyno.frames import ProgressFrame, RunRequest
from dyno.settings import Settings
from dyno.spec import Spec
from dyno.workloads import normalise
from workers.launcher import Launcher
from workers.running import Runner
from workers.stop import StopReason, StopSwitch
from workers.watch import Ended, Limits, Watch


def tiny(**fields: object) -> Spec:
    """The smallest job there is: one run, one sample."""
    measure = {"processes": 1, "min_samples": 1, "min_s": 0, "max_s": 0.02, **fields.pop("measure", {})}  # type: ignore[dict-item]
    body = {"workload": "matmul", "params": {"n": 64, "repeats": 1}, "device": "cpu", "measure": measure}
    return normalise(Spec.model_validate(body | fields))


class Heart:
    """Counts its beats, and answers each with what `orders` says."""

    def __init__(self, every_s: float = math.inf, orders: Callable[[], StopReason | None] = lambda: None) -> None:
        self.beats: list[ProgressFrame | None] = []
        self._every_s, self._orders = every_s, orders
        self.due_s = time.monotonic() + every_s

    def beat(self, frame: ProgressFrame | None, run: int) -> StopReason | None:
        self.beats.append(frame)
        self.due_s = time.monotonic() + self._every_s
        return self._orders()


class Misbehaving(Launcher):
    """Starts `program` in place of the runner: Python text that finds the frames' pipe at descriptor 3."""

    def __init__(self, program: str) -> None:
        super().__init__("spawn", [0])
        self.program = program

    def start(self, request: RunRequest) -> Runner:
        return self.spawn(["-P", "-c", self.program], request.model_dump_json().encode())


def watched(
    runner: Runner,
    heart: Heart | None = None,
    stop: StopSwitch | None = None,
    *,
    stall_s: float = 60,
    grace_s: float = 5,
    timeout_s: float = 60,
) -> Ended:
    limits = Limits(stall_s, grace_s, time.monotonic() + timeout_s)
    with runner:
        return Watch(runner, 0, limits, heart or Heart(), stop or StopSwitch(), time.monotonic).until_ended()


def until_begun(runner: Runner) -> int:
    """The runner's pid, once its zygote has said it."""
    with selectors.DefaultSelector() as selector:
        selector.register(runner.status_fd, selectors.EVENT_READ)
        while runner.pid is None:
            assert selector.select(30), "no word from the zygote in 30 s"
            runner.read_status()
            assert runner.exit is None, runner.exit
    return runner.pid


def until_gone(pid: int, within_s: float) -> bool:
    """Whether the process, not our child perhaps, ends in time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        gone = bool(selector.select(within_s))
    os.close(fd)
    return gone


def eventually(condition: Callable[[], bool], within_s: float = 30) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"the condition did not come true in {within_s} s"
        time.sleep(0.01)


def children_of(pid: int) -> set[int]:
    """Its child processes, those of all its threads."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found |= {int(child) for child in (task / "children").read_text().split()}
    return found


@pytest.fixture(scope="session")
def here() -> Device:
    return discover("cpu:0-0", Settings())


@pytest.fixture(scope="session")
def forking(here: Device) -> Iterator[Launcher]:
    """A launcher whose TensorFlow zygote the tests share; those that break one bring their own."""
    with closing(Launcher("fork", here.cores)) as launcher:
        launcher.prepare("tensorflow")
        yield launcher


@pytest.fixture
def request_for(here: Device, tmp_path: Path) -> Callable[..., RunRequest]:
    def made(spec: Spec | None = None, run: int = 0) -> RunRequest:
        lock = str(tmp_path / "device.lock")
        return RunRequest(job="job", spec=spec or tiny(), run=run, runs=1, device=here, lock_paths=[lock])

    return made


@pytest.fixture
def misbehaving() -> Iterator[Callable[[str], Misbehaving]]:
    made: list[Misbehaving] = []

    def launcher(program: str) -> Misbehaving:
        made.append(Misbehaving(program))
        return made[-1]

    yield launcher
    for one in made:
        one.close()
