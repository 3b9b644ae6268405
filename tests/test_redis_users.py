"""deploy/redis as production starts it: API and worker have the rights that they need, and no more."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import redis

from dyno.processes import free_port
from dyno.store.embedded import find_server
from tests.builders import TINY
from tests.cores import HERE
from tests.inbox import Inbox
from tests.servers import answers
from tests.waiting import eventually

ROOT = Path(__file__).parent.parent
PASSWORDS = {"api": "api's&own", "worker": "the/worker's"}
ADMIN = "user admin on nopass ~* &* +@all\n"


@pytest.fixture(scope="module")
def socket(tmp_path_factory):
    """The socket of a Redis started by start.sh, with an additional admin user for the tests."""
    folder = tmp_path_factory.mktemp("acl")
    with started(folder):
        yield folder / "redis.sock"


@contextmanager
def started(folder):
    if find_server().name != "redis-server":
        pytest.skip("no redis-server on PATH")
    for name in ("start.sh", "redis.conf", "users.acl"):
        (folder / name).write_bytes((ROOT / "deploy" / "redis" / name).read_bytes())
    with (folder / "users.acl").open("a") as file:
        file.write(ADMIN)
    env = os.environ | {f"REDIS_{role.upper()}_PASSWORD": word for role, word in PASSWORDS.items()}
    options = ["--port", "0", "--unixsocket", "redis.sock", "--dir", str(folder), "--logfile", "redis.log"]
    server = subprocess.Popen(["sh", folder / "start.sh", *options], env=env, cwd=folder)
    try:
        eventually(lambda: server.poll() is not None or answers(client_of("admin", folder / "redis.sock")))
        assert server.poll() is None, (folder / "redis.log").read_text()
        yield
    finally:
        server.terminate()
        server.wait()


def client_of(user, socket):
    return redis.Redis(
        unix_socket_path=str(socket),
        username=user,
        password=PASSWORDS.get(user, ""),
        decode_responses=True,
        retry=None,
    )


def test_what_a_script_wrote_is_there_after_a_restart_and_nobody_is_the_default_user(tmp_path):
    """Redis 7 loads the transactions of its file as the default user, and drops those that this user may not run."""
    socket = tmp_path / "redis.sock"
    with started(tmp_path), client_of("api", socket) as api:
        wrote = api.pipeline(transaction=True).hset("dyno:job:1", "status", "queued").zadd("dyno:jobs", {"1": 0})
        assert wrote.execute() == [1, 1]
    with started(tmp_path), client_of("api", socket) as api:
        assert api.hgetall("dyno:job:1") == {"status": "queued"}
        assert api.zrange("dyno:jobs", 0, -1) == ["1"]
        for anonymous in (redis.Redis(unix_socket_path=str(socket)), client_of("default", socket)):
            with pytest.raises(redis.AuthenticationError):
                anonymous.ping()


@pytest.fixture
def http(socket, tmp_path):
    """A client of an API with a worker, each of which connects to Redis as its own user."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    env |= {"DYNO_PORT": str(port), "DYNO_API_URL": url, "DYNO_RUN_DIR": str(tmp_path / "run")}
    env |= {"DYNO_WEBHOOK_SECRET": f"whsec_{'A' * 32}", "DYNO_WEBHOOK_ALLOWED_HOSTS": "127.0.0.1"}
    env |= {"DYNO_SPOOL_DIR": str(tmp_path / "spool"), "DYNO_ARTIFACT_DIR": str(tmp_path / "artifacts")}
    with ExitStack() as stack, httpx.Client(base_url=url, timeout=70) as http:
        for role, command in (("api", ["service"]), ("worker", ["workers", "--device", HERE])):
            word = PASSWORDS[role].replace("/", "%2F").replace("&", "%26")
            own = {"DYNO_REDIS_URL": f"unix://{role}:{word}@{socket}"}
            process = subprocess.Popen([sys.executable, "-P", "-m", *command], env=env | own, cwd=ROOT)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        eventually(lambda: _offers(http))
        yield http


def _offers(http):
    try:
        return [device["state"] for device in http.get("/v1/devices").json()["data"]] == ["idle"]
    except (httpx.TransportError, KeyError):
        return False


@pytest.mark.verify
def test_jobs_run_with_the_rights_of_api_and_worker(http, socket):
    client_of("admin", socket).acl_log_reset()
    assert http.get("/readyz").status_code == 200
    for key in ({}, {"Idempotency-Key": "one"}):
        job = http.post("/v1/jobs", json=TINY, headers={"Prefer": "wait=60"} | key).json()
        assert job["status"] == "succeeded", job
        assert http.get(f"/v1/jobs/{job['id']}/result").status_code == 200
    waiting = http.post("/v1/jobs", json=TINY | {"device": "tpu", "queue_if_absent": True}).json()
    assert http.post(waiting["urls"]["cancel"]).status_code in (200, 202)
    assert len(http.get("/v1/jobs", params={"workload": "matmul"}).json()["data"]) == 3
    metrics = http.get("/metrics").text
    assert "dyno_store_up 1.0" in metrics
    assert 'dyno_jobs_submitted_total{workload="matmul"} 3.0' in metrics
    _with_a_baseline(http)
    _with_a_schedule(http, client_of("admin", socket))
    assert '"done":true' in http.get(job["urls"]["events"]).text
    talkative = TINY | {"workload": "quantized_inference", "params": {"train_samples": 256}}
    job = http.post("/v1/jobs", json=talkative, headers={"Prefer": "wait=60"}).json()
    assert "[attempt 1, run 1]" in http.get(f"{job['urls']['self']}/logs").text
    assert job["id"] in [row["job"] for row in http.get("/v1/results").json()]
    _with_a_webhook(http)
    _with_a_sweep(http, {})
    again = http.post(f"{job['urls']['self']}/rerun", headers={"Prefer": "wait=60"}).json()
    exported = http.get("/v1/results", params={"format": "jsonl", "limit": 1}).text
    assert http.delete(again["urls"]["self"]).status_code == 204
    _with_an_import(http, exported)
    _with_a_key(http, socket)
    assert client_of("admin", socket).acl_log() == []


def _with_a_baseline(http):
    saved = http.put("/v1/baselines/main", json={"metric": "throughput", "at_least": 1})
    assert saved.status_code == 201
    judged = http.post("/v1/jobs", json=TINY | {"baseline": "main"}, headers={"Prefer": "wait=60"}).json()
    assert judged["baseline"]["outcome"] in ("pass", "inconclusive"), judged
    assert [each["name"] for each in http.get("/v1/baselines").json()["data"]] == ["main"]
    assert http.delete("/v1/baselines/main").status_code == 204


def _with_a_schedule(http, admin):
    body = {"cron": "* * * * *", "spec": TINY}
    assert http.put("/v1/schedules/minutely", json=body).status_code == 201
    admin.zadd("dyno:schedules:due", {":deleted": 0})
    document = json.loads(admin.hget("dyno:schedules:", "minutely"))
    last_minute = datetime.now(UTC).replace(second=0, microsecond=0).isoformat()
    admin.hset("dyno:schedules:", "minutely", json.dumps(document | {"next_firings": [last_minute]}))
    admin.zadd("dyno:schedules:due", {":minutely": 1})
    eventually(lambda: http.get("/v1/schedules/minutely").json()["firings"], what="it fired")
    assert [each["name"] for each in http.get("/v1/schedules").json()["data"]] == ["minutely"]
    assert http.delete("/v1/schedules/minutely").status_code == 204
    assert admin.zcard("dyno:schedules:due") == 0


def _with_an_import(http, exported):
    lines = {"content": exported.encode(), "headers": {"Content-Type": "application/x-ndjson"}}
    report = http.post("/v1/results/import", **lines).raise_for_status().json()
    assert report["imported"] == 1
    job = http.get(f"/v1/jobs/{report['lines'][0]['job']}").json()
    assert job["imported"]["job"] == report["lines"][0]["original"]
    assert http.get(f"{job['urls']['self']}/samples").json()["data"]
    assert http.get("/v1/advice", params={"workload": "matmul"}).status_code == 200
    assert http.delete(job["urls"]["self"]).status_code == 204


def _with_a_webhook(http):
    with Inbox() as inbox:
        job = http.post("/v1/jobs", json=TINY | {"webhook": inbox.url}).json()
        eventually(lambda: '"delivered"' in http.get("/v1/webhook-deliveries").text)
        delivery = job["id"].replace("job_", "msg_")
        assert http.post(f"/v1/webhook-deliveries/{delivery}/redeliver").status_code == 202
        eventually(lambda: len(inbox.messages) == 2)


def _with_a_sweep(http, key):
    body = {"spec": TINY | {"device": "tpu", "queue_if_absent": True}, "grid": {"params.n": [64, 65]}}
    begun = http.post("/v1/sweeps", json=body, headers={"Idempotency-Key": "sweep"} | key).json()
    assert [each["id"] for each in http.get("/v1/sweeps", headers=key).json()["data"]][:1] == [begun["id"]]
    assert http.post(begun["urls"]["cancel"], headers=key).json()["status"] == "canceled"


def _with_a_key(http, socket):
    """Run a job with an API key that has limits. `dyno keys` creates the key as the API's Redis user."""
    word = PASSWORDS["api"].replace("&", "%26")
    env = os.environ | {"DYNO_REDIS_URL": f"unix://api:{word}@{socket}"}

    def dyno_keys(*arguments):
        command = [Path(sys.executable).parent / "dyno", "keys", *arguments]
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    limits = ["--requests-per-s", "1000", "--queued-jobs", "9", "--device-s-per-day", "999"]
    secret = dyno_keys("create", "--name", "ci", "--scope", "submit", *limits)
    mine = {"Authorization": f"Bearer {secret}"}
    job = http.post("/v1/jobs", json=TINY, headers={"Prefer": "wait=60"} | mine).json()
    assert job["status"] == "succeeded", job
    assert [each["id"] for each in http.get("/v1/jobs", headers=mine).json()["data"]] == [job["id"]]
    assert http.get("/v1/me", headers=mine).json()["key"]["id"] == job["owner"]
    http.post("/login", data={"key": secret})
    assert http.get("/v1/me").json()["key"]["id"] == job["owner"], "the session of a browser"
    assert http.post("/logout").status_code == 303
    assert '"done":true' in http.get(job["urls"]["events"], headers=mine).text
    assert http.delete(job["urls"]["self"], headers=mine).status_code == 204
    _with_a_sweep(http, mine)
    assert job["owner"] in dyno_keys("list", "--json")
    dyno_keys("revoke", job["owner"])
    dyno_keys("open")


@pytest.mark.parametrize("role", ["api", "worker"])
@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL",
        "CONFIG SET appendonly no",
        "KEYS *",
        "GET other:key",
        "SET dynosaur 1",
        "ACL LIST",
        "SCRIPT FLUSH",
        "PUBLISH any 1",
    ],
)
def test_redis_refuses_commands_that_no_role_needs(socket, role, command):
    with pytest.raises(redis.exceptions.NoPermissionError):
        client_of(role, socket).execute_command(*command.split())


@pytest.mark.parametrize(
    "command",
    [
        "HGETALL dyno:idempotency:x",
        "GET dyno:session:x",
        "SADD dyno:cordoned x",
        "GET dyno:comparison:x",
        "HGETALL dyno:key:x",
        "HSET dyno:key:x scope admin",
        "ZRANGE dyno:keys 0 -1",
        "GET dyno:schedules:x",
        "HGETALL dyno:baselines:x",
        "HGETALL dyno:job:job_01M80PT6VM78YWA14Q3XXHDWDJ:webhook",
        "CONFIG GET requirepass",
    ],
)
def test_a_worker_cannot_use_keys_that_only_the_api_needs(socket, command):
    with pytest.raises(redis.exceptions.NoPermissionError):
        client_of("worker", socket).execute_command(*command.split())


def test_a_missing_or_wrong_password_is_refused(socket):
    for wrong in (redis.Redis(unix_socket_path=str(socket)), redis.Redis.from_url(f"unix://api:guess@{socket}")):
        with pytest.raises(redis.AuthenticationError):
            wrong.ping()
