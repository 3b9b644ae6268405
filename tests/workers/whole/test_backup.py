"""A Dyno that lost all of its data continues from a backup, made and restored as docs/operations.md says."""

import os
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from chaos.checks import state_violations
from chaos.snapshot import read
from dyno.processes import free_port
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import Keys
from tests.builders import MEASURE, TINY, submit
from tests.cores import HERE
from tests.servers import server_binary
from tests.waiting import eventually
from tests.workers.whole.looking import api, events_of, until_idle

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
WITH_A_FILE = {"workload": "device_info", "params": {"ask_frameworks": False}, "device": "cpu", "measure": MEASURE}
LASTING = TINY | {"measure": {"processes": 1, "min_samples": 20, "min_s": 12, "max_s": 12}}
# It needs 7 s. A timeout of less than a third would be refused.
FAILING = TINY | {"measure": {"processes": 1, "min_samples": 200, "min_s": 0, "max_s": 7}, "timeout_s": 3.0}
ELSEWHERE = TINY | {"device": "tpu", "queue_if_absent": True}
UNKNOWN = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV"  # its record is newer than the backup


def commands(heading):
    """The shell blocks of a section of the page."""
    [section] = re.findall(rf"^## {heading}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return found


class Place:
    """Where a Dyno keeps its data, and where its backup is."""

    def __init__(self, folder):
        self.redis, self.artifacts, self.backup = (folder / name for name in ("redis", "artifacts", "backup"))
        self.url = f"redis://127.0.0.1:{free_port()}"

    @contextmanager
    def server(self):
        """A client of a server on this data, which also listens at `url`. For backups it has a user of its own."""
        server = EmbeddedServer(self.redis, server_binary("redis"))
        with server, redis.Redis.from_url(server.url, decode_responses=True) as client:
            client.config_set("port", self.url.rpartition(":")[2])
            client.execute_command("ACL", "SETUSER", "backup", "on", ">secret", *backup_rights())
            yield client

    def run(self, block):
        env = {"REDIS_DIR": self.redis, "ARTIFACTS": self.artifacts, "BACKUP": self.backup}
        url = self.url.replace("//", "//backup:secret@") if "--rdb" in block else self.url
        done = subprocess.run(
            ["sh", "-eu", "-c", block],
            env=os.environ | {name: str(path) for name, path in env.items()} | {"REDIS_URL": url},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def wipe(self):
        for folder in (self.redis, self.artifacts):
            shutil.rmtree(folder)


def backup_rights():
    [line] = re.findall(r"^ *user backup on #\S+ (.+)$", PAGE, re.MULTILINE)
    return line.split()


def contents(http, job_id):
    """All that the API says of a done job, with its files."""
    told = [http.get(f"/v1/jobs/{job_id}{part}") for part in ("", "/result", "/samples", "/logs")]
    found = [answer.content if answer.is_success else answer.json()["code"] for answer in told]
    files = told[1].json().get("artifacts", []) if told[1].status_code == 200 else []
    return [*found, *(http.get(each["url"]).raise_for_status().content for each in files)]


@contextmanager
def submitting(http, at_most):
    """Submit jobs from a thread, until the block ends. Yields the ids of those accepted so far."""
    accepted, ended = list[str](), threading.Event()

    def keep_submitting():
        while not ended.is_set() and len(accepted) < at_most:
            accepted.append(submit(http))

    thread = threading.Thread(target=keep_submitting)
    thread.start()
    try:
        yield accepted
    finally:
        ended.set()
        thread.join()


@pytest.mark.verify
@pytest.mark.timeout(300)
def test_a_backup_has_every_accepted_job_with_its_result_and_files(start_worker, short_lease, tmp_path):
    place = Place(tmp_path)
    changes = {"namespace": "dyno", "redis_url": place.url, "artifact_url": f"file://{place.artifacts}"}
    there = short_lease.model_copy(update=changes)
    [back_up], [restore, tidy] = commands("Backup"), commands("Restore")
    with place.server(), api(there, "-m", "service") as http:
        worker = start_worker(HERE, there)
        until_idle(there, 1)
        ended = [submit(http, body) for body in (TINY, WITH_A_FILE, FAILING, ELSEWHERE)]
        http.post(f"/v1/jobs/{ended[-1]}/cancel").raise_for_status()
        for job_id in ended:
            eventually(lambda job_id=job_id: http.get(f"/v1/jobs/{job_id}").json()["done"])
        before = {job_id: contents(http, job_id) for job_id in ended}
        assert [http.get(f"/v1/jobs/{each}").json()["status"] for each in ended] == [
            *("succeeded", "succeeded", "failed", "canceled")
        ]
        assert len(before[ended[1]]) > len(before[ended[0]]), "it has a file"
        (place.artifacts / UNKNOWN).mkdir()
        (place.artifacts / UNKNOWN / "0123456789abcdef-weights.keras").write_text("of a job that isn't in the backup")
        running = submit(http, LASTING)
        eventually(lambda: http.get(f"/v1/jobs/{running}").json()["status"] == "running")
        with submitting(http, at_most=200) as accepted:
            eventually(lambda: len(accepted) > 10)
            queued = list(accepted)
            place.run(back_up)
        assert http.get(f"/v1/jobs/{running}").json()["status"] == "running", "it ended before the backup was made"
        worker.kill()
        worker.wait()
    place.wipe()
    place.run(restore)
    with place.server() as client, api(there, "-m", "service") as http:
        place.run(tidy)
        assert {job_id: contents(http, job_id) for job_id in ended} == before
        start_worker(HERE, there, name="another")
        kept = client.zrange(Keys(there.namespace).jobs, 0, -1)
        assert {*ended, running, *queued} <= set(kept)
        eventually(lambda: http.get("/v1/jobs", params={"status": "queued"}).json()["data"] == [], within_s=150)
        eventually(lambda: http.get("/v1/jobs", params={"status": "running"}).json()["data"] == [])
        assert {http.get(f"/v1/jobs/{each}").json()["status"] for each in (running, *queued)} == {"succeeded"}
        assert events_of(there, running) == ["submit", "claim", "expire", "claim", "succeed"]
        assert list(state_violations(read(client, Keys(there.namespace)))) == []
        eventually(lambda: not (place.artifacts / UNKNOWN).exists(), what="files that no job names are deleted")
