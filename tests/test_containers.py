"""docker-compose.yml, run by podman: its images, a job to its result, rights, kills under load, an upgrade.

The tests share one stack, and run in the order of the file. docs/deployment.md says what they found.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from chaos.checks import state_violations, stream_violations
from chaos.clients import ApiKey, Responses, submit_all
from chaos.plan import PlannedJob
from chaos.snapshot import read
from dyno.processes import free_port
from dyno.settings import Settings
from dyno.store.redis import Keys
from tests import podman
from tests.builders import submit
from tests.podman import ROOT, Failed, compose
from tests.servers import answers
from tests.waiting import eventually

pytestmark = [pytest.mark.verify, pytest.mark.timeout(3600)]

IMAGES = {"api": ("server", "tensordyno-api:0.1.0"), "worker": ("cpu", "tensordyno-cpu:0.1.0")}
SERVICES = ("redis", "api", "worker-cpu")
NEW_VERSION = "0.1.1"
TRAINING = {
    "workload": "mnist_cnn",
    "params": {"epochs": 1, "batch_size": 128, "train_samples": 256, "test_samples": 128, "data": "sample"},
    "device": "cpu",
    "measure": {"processes": 1},
}
SHORT: dict[str, Any] = {
    "workload": "matmul",
    "params": {"n": 64, "repeats": 1},
    "device": "cpu",
    "measure": {"processes": 1, "min_samples": 20, "min_s": 0.5, "max_s": 0.5},
    "queue_if_absent": True,
}
WRITE = 'for folder in / /etc /opt /opt/dyno /usr /var; do touch "$folder/new" && echo "wrote to $folder"; done; true'


class Stack:
    """The containers of the project, and a client of the published port with the key made first."""

    def __init__(self):
        self.project = f"dyno-{os.getpid()}"
        self.port = free_port()
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60)
        self.key = ApiKey()
        self.responses = Responses()

    def compose(self, *words, **variables):
        return compose("-p", self.project, *words, DYNO_PORT=str(self.port), **variables)

    def up(self, **variables):
        """Without podman's own dependencies: with them it restarts no container, since `secrets` has ended."""
        self.compose("up", "-d", "--no-build", "secrets", **variables)
        self.compose("up", "-d", "--no-build", "--no-deps", **variables)
        eventually(self.is_ready, 300, "the API is ready and the worker idle")

    def is_ready(self):
        try:
            response = self.http.get("/v1/workers")
        except httpx.TransportError:
            return False
        is_served = response.status_code == httpx.codes.OK
        return is_served and any(worker["state"] == "idle" for worker in response.json()["data"])

    def name(self, service):
        return f"{self.project}_{service}_1"

    def inside(self, service, *words):
        return podman.podman("exec", self.name(service), *words)

    def make_key(self):
        secret = self.compose("exec", "-T", "api", "dyno", "keys", "create", "--scope", "admin", "--name", "me").strip()
        self.http.headers["Authorization"] = f"Bearer {secret}"
        [key] = self.http.get("/v1/keys").json()["data"]
        self.key = ApiKey(key["id"], secret)

    def submit(self, body):
        job = submit(self.http, body)
        self.responses.accepted[job].add(job)
        return job

    def result_of(self, job):
        eventually(lambda: self.http.get(f"/v1/jobs/{job}").json()["done"], 300, f"{job} is done")
        response = self.http.get(f"/v1/jobs/{job}/result")
        assert response.status_code == httpx.codes.OK, response.text
        return dict(response.json())


@pytest.fixture(scope="module")
def stack():
    if reason := podman.why_not():
        pytest.skip(reason)
    podman.write_settings()
    try:
        podman.remove_leftovers()
        podman.add_base_images()
        podman.podman("run", "--rm", "--pull=never", "--network=none", podman.REDIS, "true")
    except Failed as error:
        pytest.skip(f"this machine runs no containers: {error}")
    compose("build", "api", "worker-cpu", timeout_s=2400)
    stack = Stack()
    try:
        stack.up()
        yield stack
    finally:
        podman.remove_leftovers()


def test_the_images_have_what_they_need_and_no_more(stack):
    """Sizes without the base image. Nothing compiles the bytecode of a read-only image later."""
    base = podman.inspect(podman.PYTHON)["Size"]
    for (_, image), most_bytes in zip(IMAGES.values(), (0.4e9, 1.7e9), strict=True):
        assert podman.inspect(image)["Size"] - base < most_bytes, image
        count = 'find /opt/dyno -name "*.py" | wc -l; find /opt/dyno -name "*.pyc" | wc -l'
        sources, compiled = podman.podman("run", "--rm", "--network=none", image, "sh", "-c", count).split()
        assert sources == compiled


def test_a_key_made_in_the_container_runs_jobs_through_the_published_port(stack):
    stack.make_key()
    assert httpx.post(f"{stack.http.base_url}/v1/jobs", json=TRAINING).status_code == httpx.codes.UNAUTHORIZED
    training, on_jax = stack.submit(TRAINING), stack.submit(SHORT | {"framework": "jax"})
    result = stack.result_of(training)
    assert result["environment"]["framework"] == "tensorflow"
    assert result["device"]["host"] == "compose"
    files = {file["name"] for file in stack.http.get(f"/v1/jobs/{training}/artifacts").json()["data"]}
    assert "wrong.png" in files
    assert stack.http.get(f"/v1/jobs/{training}/artifacts/wrong.png").content.startswith(b"\x89PNG")
    assert stack.result_of(on_jax)["environment"]["framework"] == "jax"
    stack.inside("api", "python", "-P", "-m", "dyno.probe")


@pytest.mark.parametrize("service", SERVICES)
def test_no_process_has_a_capability_or_is_root(stack, service):
    processes = podman.podman("top", stack.name(service), "hpid").split()[1:]
    assert processes
    for process in processes:
        status = dict(re.findall(r"^(\w+):\s+(.*)$", Path("/proc", process, "status").read_text(), re.MULTILINE))
        assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
        assert status["NoNewPrivs"] == "1"
        assert "0" not in status["Uid"].split() + status["Gid"].split()


@pytest.mark.parametrize("service", ["secrets", *SERVICES])
def test_no_container_writes_outside_its_volumes(stack, service):
    """The container's own layer has the folders on which volumes are mounted, and one file, of the engine."""
    layer = Path(podman.inspect(stack.name(service))["GraphDriver"]["Data"]["UpperDir"])
    assert [str(path.relative_to(layer)) for path in layer.rglob("*") if not path.is_dir()] == ["etc/mtab"]
    if service != "secrets":  # it has ended
        assert stack.inside(service, "sh", "-c", WRITE) == ""


@pytest.mark.parametrize(
    ("profile", "node", "said"),
    [("gpu", "/dev/nvidiactl", "nvidia.com/gpu"), ("tpu", "/dev/vfio/vfio", "/dev/vfio")],
)
def test_a_worker_without_its_hardware_is_refused(stack, profile, node, said):
    """By the engine, which names the device, and by Dyno. The CPU's image stands for the other ones."""
    if Path(node).exists():
        pytest.skip(f"this machine has {node}")
    podman.podman("tag", IMAGES["worker"][1], f"tensordyno-{profile}:0.1.0")
    with pytest.raises(Failed, match=re.escape(said)):
        stack.compose("--profile", profile, "up", "-d", "--no-build", f"worker-{profile}")
    with pytest.raises(Failed, match="code=device-unavailable"):
        stack.compose("run", "--rm", "--no-deps", "-T", "worker-cpu", "dyno", "worker", "--device", profile)
    assert stack.is_ready()


def test_an_upgrade_keeps_keys_results_and_files(stack, tmp_path):
    """`down`, images of another version, `up`: from here on with `DYNO_DURABILITY=always`."""
    job = stack.submit(TRAINING)
    result = stack.result_of(job)
    stack.compose("down")
    for name in ("deploy", "dyno", "requirements", "service", "workers"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".dockerignore", "LICENSE", "README.md", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path)
    project = (tmp_path / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(project.replace('version = "0.1.0"', f'version = "{NEW_VERSION}"'))
    for target, (lock, image) in IMAGES.items():
        podman.build("deploy/Dockerfile", target, image, tmp_path, LOCK=lock)
    stack.up(DYNO_DURABILITY="always")
    assert NEW_VERSION in stack.inside("api", "dyno", "--version")
    assert stack.result_of(job) == result
    assert stack.http.get(f"/v1/jobs/{job}/artifacts/wrong.png").content.startswith(b"\x89PNG")
    assert stack.result_of(stack.submit(SHORT))["metrics"]


def kill(stack, service):
    """KILL the container's first process, without the engine's knowledge, and wait until the engine restarted it."""
    before = podman.inspect(stack.name(service))["State"]["Pid"]
    os.kill(before, signal.SIGKILL)
    eventually(
        lambda: (state := podman.inspect(stack.name(service))["State"])["Running"] and state["Pid"] != before,
        what=f"{service} runs again",
    )


FAULTS: dict[str, Callable[[Stack], object]] = {
    "Redis restarts": lambda stack: podman.podman("restart", stack.name("redis")),
    **{f"KILL of {service}": partial(kill, service=service) for service in SERVICES},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_jobs_outlive_a_fault_under_load(stack, fault):
    jobs = [PlannedJob(f"{fault} {number}", 0.4 * number, "tiny", SHORT, False, None) for number in range(12)]

    def strike():
        running = httpx.QueryParams(status="running", limit=1)
        eventually(lambda: stack.http.get("/v1/jobs", params=running).json()["data"], what="a job runs")
        FAULTS[fault](stack)

    async def load():
        submits = submit_all(str(stack.http.base_url), jobs, time.monotonic(), stack.responses, [stack.key])
        async with asyncio.timeout(300):
            await asyncio.gather(submits, asyncio.to_thread(strike))

    asyncio.run(load())
    ids = {job for planned in jobs for job in stack.responses.accepted[planned.key]}
    assert len(ids) == len(jobs)
    assert all(stack.result_of(job)["metrics"] for job in ids)
    assert stack.responses.unexpected == []


def test_every_accepted_job_ended_once(stack):
    """All events that Redis kept, read from its volume when everything else is down."""
    [volume] = [
        mount["Name"] for mount in podman.inspect(stack.name("redis"))["Mounts"] if mount["Destination"] == "/data"
    ]
    stack.compose("stop")
    port = free_port()
    server = ["redis-server", "--dir", "/data", "--appendonly", "yes", "--protected-mode", "no"]
    options = ["--pull=never", "--user=redis", f"--publish=127.0.0.1:{port}:6379", f"--volume={volume}:/data"]
    podman.podman("run", "--detach", *options, podman.REDIS, *server)
    with redis.Redis(port=port, decode_responses=True) as client:
        eventually(lambda: answers(client), what="Redis has read its file")
        snapshot = read(client, Keys(Settings.model_fields["namespace"].default))
    accepted = stack.responses.accepted
    assert len(accepted) == len(snapshot.streams.by_job) > 12 * len(FAULTS)
    assert list(stream_violations(accepted, set(), snapshot.streams)) == []
    assert list(state_violations(snapshot)) == []
