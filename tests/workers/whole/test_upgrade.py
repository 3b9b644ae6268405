"""API and workers are replaced one by one, by a newer version and by an older one, while jobs run and wait.

Redis has the users of the newer version, as after the first step of "Upgrading" in docs/operations.md.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from dyno.processes import free_port
from dyno.store.redis import Keys
from tests.builders import submit
from tests.cores import HERE, THERE, two_cores
from tests.store.test_rights import rules
from tests.waiting import eventually
from tests.workers.whole.looking import environment_of

NEWER = Path(__file__).parents[3]
RELEASE = "ecf26641"  # the older version; its documents in Redis are as today's
QUEUED = 100
LASTING = {"measure": {"processes": 1, "min_samples": 20, "min_s": 30, "max_s": 30}}
DONE = ("succeed", "fail", "stop", "exhaust", "cancel")


@pytest.fixture(scope="session")
def older(tmp_path_factory):
    """The code of RELEASE."""
    if (git := shutil.which("git")) is None:
        pytest.skip("no git on PATH")
    folder = tmp_path_factory.mktemp("older")
    exporting = [git, "-C", NEWER, "archive", "--output", folder / "older.tar", RELEASE]
    exported = subprocess.run(exporting, stderr=subprocess.PIPE, check=False)
    if exported.returncode:
        pytest.skip(f"{RELEASE} is not in this checkout's history: {exported.stderr.decode().strip()}")
    shutil.unpack_archive(folder / "older.tar", folder)
    return folder


class Fleet:
    """An API and two workers, each of one of two versions."""

    def __init__(self, settings, users):
        """`users`: the URL of Redis for the API and for workers."""
        port, self._users = free_port(), users
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        self._env = (
            os.environ | environment_of(settings) | {"DYNO_PORT": str(port), "DYNO_API_URL": str(self.http.base_url)}
        )
        self._parts: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, part, code):
        """Start `part`, "api" or a device, and wait until it is ready."""
        arguments = ["service"] if part == "api" else ["workers", "--device", part, "--name", part]
        env = self._env | {"PYTHONPATH": f"{code}{os.pathsep}{code / 'tests' / 'numpy_runners'}"}
        env["DYNO_REDIS_URL"] = self._users["api" if part == "api" else "worker"]
        process = subprocess.Popen([sys.executable, "-P", "-m", *arguments], env=env, cwd=code)
        self._parts[part] = process
        eventually(lambda: process.poll() is not None or self._is_ready(part), what=f"{part} of {code} is ready")
        assert process.poll() is None, f"{part} of {code} ended"

    def end(self, part):
        process = self._parts.pop(part)
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM)  # uvicorn ends by the signal that it got

    def replace(self, part, code):
        self.end(part)
        self.start(part, code)

    def close(self):
        self.http.close()
        for process in self._parts.values():
            process.kill()
            process.wait()

    def _is_ready(self, part):
        try:
            if part == "api":
                return self.http.get("/readyz").status_code == httpx.codes.OK
            workers = self.http.get("/v1/workers").raise_for_status().json()["data"]
        except httpx.HTTPError:
            return False
        pids = {each["pid"] for each in workers if each["state"] in ("idle", "busy")}
        return self._parts[part].pid in pids

    def statuses(self, *ids):
        return [self.http.get(f"/v1/jobs/{each}").raise_for_status().json()["status"] for each in ids]


@pytest.fixture
def users(client, settings):
    """The URL of Redis for each role, whose user has the rights of users.acl."""
    names = {role: f"{settings.namespace}-{role}" for role in ("api", "worker")}
    for role, name in names.items():
        own = [rule.replace("~dyno:", f"~{settings.namespace}:") for rule in rules(role) if rule != "+client|setinfo"]
        client.execute_command("ACL", "SETUSER", name, "reset", "on", "nopass", *own)
    yield {role: str(settings.redis_url).replace("unix://", f"unix://{name}:any@") for role, name in names.items()}
    for name in names.values():
        client.execute_command("ACL", "DELUSER", name)


@pytest.fixture
def fleet(settings, users, tmp_path):
    changes = {"lease_s": 5.0, "heartbeat_s": 0.5, "reap_every_s": 0.5, "shutdown_s": 1.0}
    fleet = Fleet(settings.model_copy(update=changes | {"artifact_dir": tmp_path / "artifacts"}), users)
    yield fleet
    fleet.close()


def histories(client, settings, ids):
    """The events of each job, except progress."""
    keys = Keys(settings.namespace)
    entries = [client.xrange(keys.job_events(each)) for each in ids]
    named = [[fields.get("event", "heartbeat") for _, fields in found] for found in entries]
    return [[event for event in found if event != "heartbeat"] for found in named]


@two_cores
@pytest.mark.verify
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", ["upgrade", "roll-back"])
def test_a_fleet_replaced_part_by_part_ends_each_job_once(way, older, fleet, client, settings):
    before, after = (older, NEWER) if way == "upgrade" else (NEWER, older)
    for part in ("api", HERE, THERE):
        fleet.start(part, before)
    ids = [submit(fleet.http, device=device, **LASTING) for device in (HERE, THERE)]
    eventually(lambda: fleet.statuses(*ids) == ["running"] * 2)
    ids += [submit(fleet.http) for _ in range(QUEUED)]
    fleet.replace("api", after)
    fleet.replace(HERE, after)
    eventually(lambda: client.zcard(Keys(settings.namespace).jobs_with_status("succeeded")) > 10)
    fleet.replace(THERE, after)
    eventually(lambda: set(fleet.statuses(*ids)) == {"succeeded"}, within_s=120, what="all jobs succeed")
    found = histories(client, settings, ids)
    assert [events[-1] for events in found] == ["succeed"] * len(ids)
    assert {sum(event in DONE for event in events) for events in found} == {1}
    assert found[0] == ["submit", "claim", "requeue", "claim", "succeed"], "the older worker handed it back"
    assert client.acl_log() == []
    for job_id in ids:
        assert fleet.http.get(f"/v1/jobs/{job_id}/result").status_code == httpx.codes.OK
        assert fleet.http.get(f"/v1/jobs/{job_id}/samples").status_code == httpx.codes.OK
