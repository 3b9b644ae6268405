"""deploy/nginx.conf in a real nginx, in front of a real API process."""

import os
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from dyno.processes import free_port
from dyno.settings import Settings
from tests.certificates import certificate_for
from tests.service.keys.conftest import make_key
from tests.service.processes import running
from tests.service.server.test_tls import content, install, served
from tests.waiting import eventually

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin")
CONF = (Path(__file__).parents[3] / "deploy/nginx.conf").read_text()
TEMPORARY = "\n".join(f"{what}_temp_path {what};" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
JOB = {"workload": "matmul", "device": "tpu", "queue_if_absent": True}
WITHIN_S = 60
SOON_S = 5

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian: nginx-light)")


def changed(conf, old, new):
    assert conf.count(old) == 1, old
    return conf.replace(old, new)


@pytest.fixture(scope="module")
def own(redis_url, namespace):
    return {"redis_url": redis_url, "namespace": f"{namespace}-nginx"}


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return certificate_for("IP:127.0.0.1", tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("nginx")


def nginx(folder, *words):
    assert NGINX is not None
    return [NGINX, "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr", *words]


@pytest.fixture(scope="module")
def proxy(own, tls, folder):
    """The port of an nginx whose time for a head is short, and which lets a client have few connections."""
    with running(**own) as (_, api):
        port = free_port()
        site = changed(CONF, "listen 443 ssl", f"listen 127.0.0.1:{port} ssl")
        site = changed(site, "server 127.0.0.1:8000", f"server {api.removeprefix('http://')}")
        site = changed(site, "client_header_timeout 10s", f"client_header_timeout {SOON_S}s")
        site = changed(site, "limit_conn dyno_clients 100", "limit_conn dyno_clients 5")
        site = changed(site, "/etc/ssl/dyno/fullchain.pem", str(tls[0]))
        site = changed(site, "/etc/ssl/dyno/key.pem", str(tls[1]))
        user = "user root;" if os.geteuid() == 0 else ""  # its own user may not write to pytest's folders
        whole = f"{user} daemon off; pid nginx.pid; events {{}}\nhttp {{ access_log off; {TEMPORARY}\n{site} }}"
        (folder / "nginx.conf").write_text(whole)
        server = subprocess.Popen(nginx(folder))
        try:
            eventually(lambda: server.poll() is not None or _listens(port))
            assert server.poll() is None
            yield port
        finally:
            server.terminate()
            server.wait(WITHIN_S)


def _listens(port):
    with closing(socket.socket()) as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def stranger(proxy, tls):
    trusting = ssl.create_default_context(cafile=str(tls[0]))
    with httpx.Client(base_url=f"https://127.0.0.1:{proxy}", verify=trusting, timeout=WITHIN_S) as http:
        yield http


@pytest.fixture
def http(stranger, own):
    stranger.headers["Authorization"] = f"Bearer {make_key(Settings(**own))[1]}"
    return stranger


@pytest.fixture
def connect(proxy, tls):
    def connected():
        trusting = ssl.create_default_context(cafile=str(tls[0]))
        plain = socket.create_connection(("127.0.0.1", proxy), timeout=WITHIN_S)
        return trusting.wrap_socket(plain, server_hostname="127.0.0.1")

    return connected


def test_without_keys_nobody_is_served_through_it(stranger):
    """The first test here: the next one makes a key."""
    assert stranger.get("/v1/jobs").json()["code"] == "proxy-not-allowed"


def test_a_job_is_submitted_and_read_through_it(http):
    submitted = http.post("/v1/jobs", json=JOB, headers={"X-Request-ID": "through-the-proxy"})
    assert (submitted.status_code, submitted.headers["x-request-id"]) == (202, "through-the-proxy")
    assert submitted.headers["strict-transport-security"]
    job = http.get(submitted.json()["urls"]["self"])
    assert (job.status_code, job.json()["status"]) == (200, "queued")
    assert http.get("/metrics").status_code == 403


def test_events_arrive_when_they_happen(http):
    urls = http.post("/v1/jobs", json=JOB).json()["urls"]
    with http.stream("GET", urls["events"], headers={"Accept": "text/event-stream"}) as events:
        lines = events.iter_lines()
        assert "queued" in next(line for line in lines if line.startswith("data:"))
        httpx.post(http.base_url.join(urls["cancel"]), headers=http.headers, verify=False).raise_for_status()
        assert "canceled" in next(line for line in lines if line.startswith("data:"))


def test_a_followed_log_begins_at_once(http):
    urls = http.post("/v1/jobs", json=JOB).json()["urls"]
    with http.stream("GET", f"{urls['self']}/logs", params={"follow": "true"}) as log:
        assert log.status_code == 200  # the head alone, of a stream that has nothing to send yet


def test_a_slow_head_is_cut_off(connect):
    with connect() as slow:
        begun_s = time.monotonic()
        slow.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert b"200" not in slow.recv(1000)
        assert time.monotonic() - begun_s >= SOON_S / 2


@pytest.mark.parametrize(("size_bytes", "sent_by"), [(100_000, "dyno"), (2_000_000, "nginx")])
def test_a_large_body_is_refused(http, size_bytes, sent_by):
    answer = http.post("/v1/jobs", content=b" " * size_bytes, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert (answer.headers["content-type"] == "application/problem+json") == (sent_by == "dyno")


def test_a_client_has_so_many_connections(http, connect):
    path = http.post("/v1/jobs", json=JOB).json()["urls"]["self"]
    key = http.headers["authorization"]
    polls = [connect() for _ in range(5)]
    try:
        for poll in polls:
            poll.sendall(f"GET {path}?wait=60 HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n\r\n".encode())
        eventually(lambda: http.get("/livez").status_code == 503, what="the sixth is refused")
    finally:
        for poll in polls:
            poll.close()
    eventually(lambda: http.get("/livez").status_code == 200)


def test_a_renewed_certificate_is_served_after_a_reload(proxy, folder, tls, tmp_path):
    old = tuple(Path(shutil.copy(file, tmp_path)) for file in tls)
    (tmp_path / "new").mkdir()
    for renewed in (certificate_for("IP:127.0.0.1", tmp_path / "new"), (old[0], old[1])):
        install(renewed, tls[0].parent)
        subprocess.run(nginx(folder, "-s", "reload"), check=True, timeout=WITHIN_S)
        eventually(lambda renewed=renewed: served(proxy) == content(renewed), what="new connections get it")
