"""Fixtures: real runners from real zygotes on one core; misbehaving runners are small programs in a spawned process.

Runners multiply with NumPy (`tests/numpy_runners/`), because importing TensorFlow takes seconds of CPU time. Tests
marked `on_tensorflow` use TensorFlow itself.
"""

from __future__ import annotations

import asyncio
import math
import os
import selectors
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from dyno.bench.devices.discovery import discover
from dyno.bench.registry import registry, resolve
from dyno.bench.runner.launcher import Launcher
from dyno.bench.runner.monitor import RunLimits, RunnerMonitor, StopSwitch
from dyno.models.job import WorkerRef
from dyno.models.runner_protocol import ProgressFrame, RunRequest
from dyno.models.spec import InterleavedSpec, Processes, Spec
from dyno.settings import Settings
from dyno.store.jobs import Jobs
from dyno.store.leases import Leases
from dyno.store.redis import async_client, sync_client
from tests.cores import CORE, HERE
from tests.numpy_runners import ON_NUMPY
from workers.attempt import WorkerContext
from workers.supervisor import Supervisor


def tiny(**fields):
    """The smallest possible job: one run, one sample."""
    measure = {"processes": 1, "min_samples": 1, "min_s": 0, "max_s": 0.02, **fields.pop("measure", {})}
    body = {"workload": "matmul", "params": {"n": 64, "repeats": 1}, "device": "cpu", "measure": measure}
    return resolve(Spec.model_validate(body | fields)).spec


def in_turns(first, second, *, pairs=2, control=True):
    """Both specs as one A/B job, as the API makes it."""

    runs = {"processes": Processes(min=pairs, max=pairs)}
    own, against = (s.model_copy(update={"measure": s.measure.model_copy(update=runs)}) for s in (first, second))
    return InterleavedSpec(**dict(own), against=against, pairs=pairs, control=control, metric="throughput")


class Heart:
    """Counts its beats, and answers each with the next of `orders`."""

    def __init__(self, every_s=math.inf, orders=lambda: None):
        self.beats: list[ProgressFrame | None] = []
        self._every_s, self._orders = every_s, orders
        self.due_s = time.monotonic() + every_s

    def beat(self, frame, run):
        self.beats.append(frame)
        self.due_s = time.monotonic() + self._every_s
        return self._orders()


class Misbehaving(Launcher):
    """Starts `program` instead of the runner: Python code whose descriptor 3 is the frames pipe."""

    def __init__(self, program):
        super().__init__("spawn", [CORE])
        self.program = program

    def start(self, request):
        return self.spawn(["-P", "-c", self.program], request.model_dump_json().encode())


def watched(runner, heart=None, stop=None, *, stall_s=60, grace_s=5, timeout_s=60):
    limits = RunLimits(stall_s, grace_s, time.monotonic() + timeout_s)
    with runner:
        return RunnerMonitor(runner, 0, limits, heart or Heart(), stop or StopSwitch(), time.monotonic).until_ended()


def until_begun(runner):
    """The runner's pid, once its zygote has reported it."""
    with selectors.DefaultSelector() as selector:
        selector.register(runner.status_fd, selectors.EVENT_READ)
        while runner.pid is None:
            assert selector.select(30), "no word from the zygote in 30 s"
            runner.read_status()
            assert runner.exit is None, runner.exit
    return runner.pid


def until_gone(pid, within_s=60):
    """Whether the process, which may not be our child, ends in time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        gone = bool(selector.select(within_s))
    os.close(fd)
    return gone


def children_of(pid):
    """The child processes of all its threads."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found |= {int(child) for child in (task / "children").read_text().split()}
    return found


@pytest.fixture(scope="session")
def here():
    return discover(HERE, Settings())


def _is_on_tensorflow(request):
    return request.node.get_closest_marker("on_tensorflow") is not None


@pytest.fixture(autouse=True)
def on_numpy(request, monkeypatch):
    """Starts misbehaving runners, and ends them after the test."""
    if not _is_on_tensorflow(request):
        for name, value in ON_NUMPY.items():
            monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def numpy_launcher(here):
    with closing(Launcher("fork", here.cores)) as launcher:
        yield launcher


@pytest.fixture(scope="session")
def tensorflow_launcher(here):
    with closing(Launcher("fork", here.cores)) as launcher:
        yield launcher


@pytest.fixture
def forking(request, on_numpy):
    """A launcher whose zygote the tests share; tests that break a zygote use their own."""
    launcher = request.getfixturevalue("tensorflow_launcher" if _is_on_tensorflow(request) else "numpy_launcher")
    launcher.prepare("tensorflow")
    return launcher


@pytest.fixture
def before_start(forking, monkeypatch):
    """Calls a function with the request of each runner before it starts."""

    def set_up(look):
        def start(request):
            look(request)
            return Launcher.start(forking, request)

        monkeypatch.setattr(forking, "start", start)

    return set_up


@pytest.fixture
def request_for(here, tmp_path):
    def made(spec=None, run=0):
        lock = str(tmp_path / "device.lock")
        return RunRequest(job="job", spec=spec or tiny(), run=run, runs=1, device=here, lock_paths=[lock])

    return made


@pytest.fixture
def misbehaving():
    made = []

    def launcher(program):
        made.append(Misbehaving(program))
        return made[-1]

    yield launcher
    for one in made:
        one.close()


# A minute, longer than any test looks on. Sampling begins after 3 s: ten of the 200 samples that would last that minute
# are its warm-up, and no scatter of a busy host's makes that longer.
LONG = {"target_rel_ci": 1, "min_samples": 10, "min_s": 60, "max_s": 600}


class Store:
    """The operations of an API client, as blocking calls."""

    def __init__(self, settings):
        self.settings = settings

    def submit(self, spec):
        return self._do(lambda jobs: jobs.submit(spec)).job.id

    def job(self, job_id):
        return self._do(lambda jobs: jobs.get(job_id))

    def cancel(self, job_id):
        self._do(lambda jobs: jobs.cancel(job_id))

    def result(self, job_id):
        return self._do(lambda jobs: jobs.result(job_id))

    def samples(self, job_id):
        return self._do(lambda jobs: jobs.samples(job_id))

    def _do(self, call):
        async def done():
            async with async_client(self.settings) as client:
                return await call(Jobs(client, self.settings))

        return asyncio.run(done())


@pytest.fixture
def quick(settings):
    return settings.model_copy(update={"heartbeat_s": 0.2, "term_grace_s": 1.0})


@pytest.fixture
def store(quick):
    return Store(quick)


@pytest.fixture
def supervisor_of(here):
    """A supervisor with a launcher; at the end it hands back its running job."""
    made = []

    def supervisor(settings, launcher, **changes):
        leases = Leases(sync_client(settings), settings)
        workloads, clock = changes.pop("workloads", registry()), changes.pop("clock", time.monotonic)
        context = WorkerContext(here, leases, launcher, settings, workloads, clock=clock)
        worker = WorkerRef(id="w", device=here.full_id, host=here.host)
        made.append(Supervisor(context, worker, changes.pop("wake", lambda queue: None), **changes))
        return made[-1]

    yield supervisor
    for one in made:
        one.stop(0)


@pytest.fixture
def background():
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def serve(quick, supervisor_of, forking, background):
    """Runs a supervisor in the background; returns the number of jobs it has claimed."""
    return lambda: background.submit(supervisor_of(quick, forking).serve)
