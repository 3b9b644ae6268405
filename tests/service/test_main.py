"""`python -P -m service` as a process: start, refusal to start, and shutdown."""

import re
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import redis

from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from service.anonymous_access import is_loopback
from tests.service.keys.conftest import make_key
from tests.service.processes import ENDS_WITHIN_S, ROOT, refused, running
from tests.waiting import eventually


@pytest.mark.parametrize(
    "host", ["0.0.0.0", *(pytest.param(host, marks=pytest.mark.verify) for host in ("::", "192.0.2.1"))]
)
def test_a_public_address_is_refused_without_keys(redis_url, namespace, host):
    code, said = refused(redis_url=redis_url, namespace=namespace, host=host)
    assert code == 2
    assert host in said
    assert "dyno keys create" in said
    assert "DYNO_REQUIRE_KEYS" in said
    assert "DYNO_ALLOW_UNAUTHENTICATED" in said


@pytest.mark.verify
def test_a_public_address_is_served_once_a_key_exists(redis_url, namespace):
    own = {"redis_url": redis_url, "namespace": f"{namespace}-keys"}
    _, secret = make_key(Settings(**own))
    with running(**own, host="0.0.0.0") as (_, url):
        jobs = url.replace("0.0.0.0", "127.0.0.1") + "/v1/jobs"
        assert httpx.get(jobs).status_code == 401
        assert httpx.get(jobs, headers={"Authorization": f"Bearer {secret}"}).status_code == 200


@pytest.mark.verify
def test_a_public_address_is_served_with_allow_unauthenticated(redis_url, namespace):
    open_to_all = {"host": "0.0.0.0", "allow_unauthenticated": "true"}
    with running(redis_url=redis_url, namespace=namespace, **open_to_all) as (_, url):
        assert httpx.get(url.replace("0.0.0.0", "127.0.0.1") + "/livez").status_code == 200


@pytest.mark.verify
def test_with_required_keys_it_starts_without_one_and_refuses_requests(redis_url, namespace):
    required = {"host": "0.0.0.0", "require_keys": "true", "namespace": f"{namespace}-required"}
    with running(redis_url=redis_url, **required) as (_, url):
        assert httpx.get(url.replace("0.0.0.0", "127.0.0.1") + "/v1/workloads").status_code == 401


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("", False)],
)
def test_loopback_hosts_are_recognized(host, expected):
    assert is_loopback(host) is expected


@pytest.mark.verify
def test_without_a_store_the_error_names_the_setting():
    code, said = refused()
    assert code == 1
    assert "DYNO_REDIS_URL" in said


@pytest.mark.verify
def test_a_store_that_evicts_is_refused():
    with EmbeddedServer() as server:
        redis.Redis.from_url(server.url).config_set("maxmemory-policy", "allkeys-lru")
        code, said = refused(redis_url=server.url)
    assert code == 1
    assert "allkeys-lru" in said


@pytest.mark.verify
def test_broken_workloads_prevent_the_start_and_are_all_named(redis_url, tmp_path):
    for package in ("dyno", "service"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "dyno/bench/workloads/broken_import.py").write_text("import nonesuch\n")
    (tmp_path / "dyno/bench/workloads/without_parts.py").write_text("WORKLOAD = 5\n")
    code, said = refused({"PYTHONPATH": str(tmp_path)}, redis_url=redis_url)
    assert code == 1
    assert "broken_import.py" in said
    assert "without_parts.py" in said


@pytest.mark.verify
def test_a_port_in_use_prevents_the_start(redis_url, namespace):
    with running(redis_url=redis_url, namespace=namespace) as (_, url):
        port = url.rpartition(":")[2]
        code, said = refused(redis_url=redis_url, port=port)
    assert code == 3
    assert re.fullmatch(rf"dyno: port {port} is taken; try --port \d+\n", said)


def test_it_starts_without_the_store_and_serves_once_it_is_reachable(tmp_path):
    with EmbeddedServer(tmp_path) as server:
        server.kill()
        with running(redis_url=server.url) as (_, url):
            assert httpx.get(f"{url}/livez").status_code == 200
            assert httpx.get(f"{url}/readyz").status_code == 503
            assert server.revive()
            eventually(lambda: httpx.get(f"{url}/readyz").status_code == 200)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.verify)])
def test_open_long_polls_are_answered_at_shutdown(redis_url, namespace, number):
    with running(redis_url=redis_url, namespace=namespace) as (process, url), ThreadPoolExecutor() as pool:
        body = {"workload": "matmul", "device": "tpu", "queue_if_absent": True}
        job = httpx.post(f"{url}/v1/jobs", json=body).json()
        asked = [("wait", "60")]
        known = {"If-None-Match": f'"{job["version"]}"'}
        sent = threading.Semaphore(0)

        def told(event, _):
            if event == "http11.send_request_body.complete":
                sent.release()

        def poll(headers):
            with httpx.Client(timeout=70) as http:
                asks = url + job["urls"]["self"]
                return http.get(asks, params=asked, headers=headers, extensions={"trace": told})

        polls = [pool.submit(poll, headers) for headers in ({}, {}, {}, known)]
        assert all(sent.acquire(timeout=60) for _ in polls)
        httpx.get(f"{url}/livez").raise_for_status()  # the API reads what was sent before, too
        start_s = time.monotonic()
        process.send_signal(number)
        process.wait(ENDS_WITHIN_S)
        assert time.monotonic() - start_s < 30  # half of their wait
        assert [each.result().status_code for each in polls] == [200, 200, 200, 304]
