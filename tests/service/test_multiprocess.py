"""`DYNO_PROCESSES`: several API processes behind one address, as real processes on a real Redis."""

import os
import re
import signal
from contextlib import ExitStack

import httpx
import psutil
import pytest
import redis

from dyno.store.embedded import EmbeddedServer
from tests.service.processes import refused, running
from tests.waiting import eventually

SERVED = re.compile(r'^dyno_http_request_duration_seconds_count\{.*route="/livez".*\} (\S+)$', re.MULTILINE)
CONNECTIONS = re.compile(r"^dyno_connections (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def service(redis_url):
    with running(redis_url=redis_url, namespace="processes", processes="2") as (process, url):
        eventually(lambda: len(children(process.pid)) == 2, 30, "both processes run")
        yield process, url


def children(pid):
    return [each.pid for each in psutil.Process(pid).children()]


def served(url):
    """How many answers to /livez all processes have counted."""
    with httpx.Client() as client:
        return sum(float(found) for found in SERVED.findall(client.get(f"{url}/metrics").text))


def answer_each(url, times):
    """Send requests on new connections, so that they reach both processes."""
    with ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client()) for _ in range(times)]
        assert {client.get(f"{url}/livez").status_code for client in clients} == {200}


def test_any_process_shows_the_metrics_of_all(service):
    _, url = service
    before = served(url)
    answer_each(url, 40)
    assert {served(url) for _ in range(10)} == {before + 40}
    with httpx.Client() as one, httpx.Client() as other:
        one.get(f"{url}/livez")
        found = CONNECTIONS.findall(other.get(f"{url}/metrics").text)
    assert float(found[0]) >= 2
    assert "process_cpu_seconds_total" not in httpx.get(f"{url}/metrics").text  # it would be that of any one


def test_a_job_is_seen_by_all_processes(service):
    _, url = service
    spec = {"workload": "device_info", "queue_if_absent": True}
    job = httpx.post(f"{url}/v1/jobs", json=spec).json()["id"]
    with ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client()) for _ in range(10)]
        assert {client.get(f"{url}/v1/jobs/{job}").json()["id"] for client in clients} == {job}


def test_a_process_that_dies_is_replaced_while_the_other_serves(service):
    pid, url = service[0].pid, service[1]
    before = children(pid)
    os.kill(before[0], signal.SIGKILL)
    answer_each(url, 10)
    eventually(lambda: len(set(children(pid)) - {before[0]}) == 2, 30, "a new process replaces it")
    eventually(lambda: served(url) >= 10, 30, "its figures are kept")


def test_at_the_end_term_ends_all(service):
    process, _ = service
    each = psutil.Process(process.pid).children()
    process.terminate()
    assert process.wait(30) == 0
    assert not psutil.wait_procs(each, timeout=30)[1]


@pytest.mark.verify
def test_a_process_that_refuses_to_start_ends_all():
    with EmbeddedServer() as server:
        redis.Redis.from_url(server.url).config_set("maxmemory-policy", "allkeys-lru")
        code, said = refused(redis_url=server.url, processes="2")
    assert (code, "allkeys-lru" in said) == (1, True)


@pytest.mark.verify
def test_wrong_settings_are_refused_before_any_process_starts(redis_url, namespace):
    own = {"redis_url": redis_url, "namespace": namespace, "processes": "2"}
    with running(redis_url=redis_url, namespace=namespace) as (_, url):
        code, said = refused(**own | {"port": url.rpartition(":")[2]})
    assert (code, "is taken" in said) == (3, True)
    code, said = refused(**own, tls_cert_file="/nowhere.pem", tls_key_file="/nowhere.pem")
    assert (code, "DYNO_TLS_CERT_FILE" in said) == (2, True)
    code, said = refused(**own | {"processes": "0"})
    assert (code, "DYNO_PROCESSES" in said) == (2, True)
