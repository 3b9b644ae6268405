"""Fixtures for black-box tests, which use only HTTP. `DYNO_URL` names a live service; without it, one is started here:
a store on a private socket, the API and one CPU worker, as real processes."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from dyno.processes import die_with_parent
from dyno.store.embedded import EmbeddedServer
from tests.cores import HERE, THERE
from tests.quick_xla import QUICK_XLA
from tests.waiting import eventually

ROOT = Path(__file__).parent.parent
READY_WITHIN_S = 60
STOP_WITHIN_S = 20
DONE_WITHIN_S = 150
TINY = {
    "workload": "matmul",
    "params": {"n": 64},
    "measure": {"processes": 1, "min_samples": 3, "min_s": 0},
}
LONG = {
    "workload": "matmul",
    "params": {"n": 256},
    "measure": {"processes": 1, "min_s": 55, "max_s": 60},
}


@dataclass(frozen=True)
class Api:
    """Requests that most tests need."""

    http: httpx.Client

    def submit(self, body=TINY, **changes):
        answer = self.http.post("/v1/jobs", json=body | changes)
        assert answer.status_code == 202, answer.text
        return answer.json()

    def job(self, job, **options):
        return self.http.get(job["urls"]["self"], **options).raise_for_status().json()

    def finished(self, job):
        """Wait until the job is done; others may be queued before it."""
        return eventually(lambda: (now := self.job(job, params={"wait": 60}))["done"] and now, DONE_WITHIN_S, "done")

    def running(self, job):
        """Wait until a worker runs the job."""
        return eventually(lambda: (now := self.job(job))["status"] != "queued" and now, 60, "running")

    def cancel(self, job):
        return self.http.post(job["urls"]["cancel"])


@dataclass(frozen=True)
class House:
    """The processes behind the URL."""

    url: str
    env: dict[str, str]

    @contextmanager
    def another_worker(self, **env):
        """A second worker on the same store; returns once its core is listed."""
        with _process(self.env | env, "workers", "--device", THERE), httpx.Client(base_url=self.url) as http:

            def offered():
                return THERE in {each["id"] for each in http.get("/v1/devices").json()["data"]}

            eventually(offered, READY_WITHIN_S, f"a worker on {THERE}")
            yield

    @contextmanager
    def another_api(self, **env):
        """A second API process on the same store, which tests may kill."""
        with (
            _process(self.env | env, "service") as process,
            httpx.Client(base_url=_address(process), timeout=70) as http,
        ):
            yield process, Api(http)


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """The processes that were started here. None for a live service."""
    if "DYNO_URL" in os.environ:
        yield None
        return
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        env = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")} | QUICK_XLA
        # Separate device locks: another Dyno on this host would delay these jobs while it measures.
        env |= {"DYNO_REDIS_URL": server.url, "DYNO_PORT": "0", "DYNO_RUN_DIR": str(tmp_path_factory.mktemp("run"))}
        stack.callback(_assert_nothing_left, env["DYNO_RUN_DIR"])
        env["DYNO_HEARTBEAT_S"] = "0.5"  # the heartbeat also tells a runner to stop
        env["KERAS_HOME"] = str(tmp_path_factory.mktemp("keras"))  # independent of this machine's own cache
        env["DYNO_ARTIFACT_DIR"] = str(tmp_path_factory.mktemp("data") / "artifacts")
        api = stack.enter_context(_process(env, "service"))
        env["DYNO_API_URL"] = _address(api)
        stack.enter_context(_process(env, "workers", "--device", HERE))
        yield House(env["DYNO_API_URL"], env)


@pytest.fixture(scope="session")
def house(started):
    """The processes behind the URL. The tests leave those of a live service alone."""
    if started is None:
        pytest.skip("needs the service's processes, and DYNO_URL names a live one")
    return started


@pytest.fixture(scope="session")
def url(started):
    return started.url if started else os.environ["DYNO_URL"].rstrip("/")


@pytest.fixture(scope="session")
def http(url):
    with httpx.Client(base_url=url, timeout=70) as http:
        eventually(lambda: http.get("/readyz").status_code == 200, READY_WITHIN_S, "ready")
        eventually(lambda: _offers(http), READY_WITHIN_S, "a device")
        yield http


@pytest.fixture(scope="session")
def api(http):
    return Api(http)


@pytest.fixture(scope="session")
def documented(http):
    """The names of all fields of a model in the served document."""
    models = http.get("/openapi.json").raise_for_status().json()["components"]["schemas"]
    return lambda name: models[name]["properties"].keys()


@pytest.fixture
def tiny():
    """A job of about a second."""
    return dict(TINY)


@pytest.fixture
def long(api):
    """A running job of a minute; canceled afterwards if it still runs."""
    job = api.submit(LONG)
    try:
        yield api.running(job)
    finally:
        api.cancel(job)
        api.finished(job)


def _offers(http):
    return any(device["state"] == "idle" for device in http.get("/v1/devices").json()["data"])


def errors(answer, code, status=422):
    """The pointer and the code of each error, after checking the problem."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


def ran(*command, **options):
    """The ended process, with what it printed."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def worker_process(env, device, name):
    return _process(env, "workers", "--device", device, "--name", name)


@contextmanager
def _process(env, module, *arguments):
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE if module == "service" else None,
        preexec_fn=partial(die_with_parent, os.getpid()),
        process_group=0,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _address(api):
    """The address that the API prints; it chooses a free port itself."""
    assert api.stdout is not None
    line = api.stdout.readline().decode()
    assert line.startswith("dyno serves http://"), f"the API did not start: {line!r}"
    return line.split()[-1]


def _assert_nothing_left(run_dir):
    """No process is left. All of them, zygotes and runners too, have the folder of locks in their environment."""

    def left():
        return [pid for pid in _pids() if run_dir.encode() in _environment(pid)]

    eventually(lambda: not left(), 60, f"no process left behind, but {left()}")


def _pids():
    return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
