"""Three hosts: network namespaces with a bridge between them. One is cut off while jobs run, and comes back.

The first host has Redis and the API, the others a worker each. DYNO_TEST_CUT_S=60 takes the time of a real outage.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from functools import partial

import httpx
import pytest
import redis

from chaos.checks import stream_violations
from chaos.snapshot import read
from dyno.processes import die_with_parent
from dyno.store.embedded import EmbeddedServer, find_server
from dyno.store.redis import Keys
from tests.builders import submit
from tests.cores import HERE, THERE, two_cores
from tests.waiting import eventually
from tests.workers.whole.looking import environment_of

CUT_S = float(os.environ.get("DYNO_TEST_CUT_S", "20"))
JOBS = 300
# It ends while its host is cut off, and after its lease has run out.
LASTING = {"measure": {"processes": 1, "min_samples": 20, "min_s": CUT_S / 2, "max_s": CUT_S / 2}}


class Hosts:
    """Network namespaces, `names` in order, that reach each other and this process through a bridge."""

    def __init__(self, *names):
        self._net = f"10.231.{os.getpid() % 250}"
        self._bridge = f"dyno{os.getpid()}"
        self.names = names

    def address(self, name):
        return f"{self._net}.{self.names.index(name) + 1}"

    def entering(self, name):
        """The beginning of a command that runs on this host."""
        network = ["nsenter", f"--net=/run/netns/{self._namespace(name)}"]
        return [*network, "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]

    def cut(self, name):
        """Drop all packets from and to this host, so that connections get no error."""
        _ip("link", "set", self._link(name), "nomaster")

    def mend(self, name):
        _ip("link", "set", self._link(name), "master", self._bridge)

    def open(self):
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("address", "add", f"{self._net}.254/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for name in self.names:
            there, link = self._namespace(name), self._link(name)
            _ip("netns", "add", there)
            _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", there)
            self.mend(name)
            _ip("link", "set", link, "up")
            _ip("-n", there, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", there, "link", "set", device, "up")

    def close(self):
        links = [("link", "delete", link) for link in (*map(self._link, self.names), self._bridge)]
        namespaces = [("netns", "delete", self._namespace(name)) for name in self.names]
        for command in (*links, *namespaces):  # a namespace would keep its link for a while, with its last sockets
            subprocess.run(["ip", *command], capture_output=True, check=False)

    def _namespace(self, name):
        return f"{self._bridge}-{name}"

    def _link(self, name):
        return f"{self._bridge}{name[-1]}"


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts():
    if os.geteuid() or not all(map(shutil.which, ("ip", "nsenter", "unshare"))):
        pytest.skip("hosts need root, and the programs ip, nsenter and unshare")
    hosts = Hosts("host-a", "host-b", "host-c")
    try:
        try:
            hosts.open()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no hosts can be made here: {error.stderr.decode().strip()}")
        yield hosts
    finally:
        hosts.close()


@contextmanager
def process(hosts, name, env, *arguments):
    command = [*hosts.entering(name), sys.executable, "-P", "-m", *arguments]
    begin = partial(die_with_parent, os.getpid())
    with subprocess.Popen(command, env=os.environ | env, preexec_fn=begin) as started:
        try:
            yield
        finally:
            started.terminate()


@contextmanager
def server_on(hosts, name, folder):
    """A client, by a socket, of a Redis that other hosts reach on port 6379."""
    address, binary = hosts.address(name), folder / "server"
    binary.write_text(
        f'#!/bin/sh\nexec {shlex.join(hosts.entering(name))} "{find_server()}" "$@" '
        f"--port 6379 --bind {address} --protected-mode no\n"
    )
    binary.chmod(0o700)
    with EmbeddedServer(binary=binary) as server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


@pytest.fixture
def http(hosts, settings, tmp_path):
    """Clients of the API and of Redis on the first host. Each other host has a worker on its own core."""
    first, *others = hosts.names
    url = f"http://{hosts.address(first)}:8000"
    times = {"lease_s": CUT_S / 3, "heartbeat_s": CUT_S / 20, "reap_every_s": 0.5, "device_ttl_s": CUT_S / 4}
    changes = times | {"redis_url": f"redis://{hosts.address(first)}:6379/0", "shutdown_s": 1.0, "api_url": url}
    there = settings.model_copy(update=changes | {"artifact_dir": tmp_path / "artifacts"})
    with ExitStack() as stack:
        client = stack.enter_context(server_on(hosts, first, tmp_path))
        api = environment_of(there) | {"DYNO_HOST": hosts.address(first), "DYNO_ALLOW_UNAUTHENTICATED": "true"}
        stack.enter_context(process(hosts, first, api, "service"))
        for name, device in zip(others, (HERE, THERE), strict=True):
            own = {"run_dir": tmp_path / name / "run", "spool_dir": tmp_path / name / "spool"}
            env = environment_of(there.model_copy(update=own))
            stack.enter_context(process(hosts, name, env, "workers", "--device", device, "--name", name))
        with httpx.Client(base_url=url, timeout=30) as http:
            eventually(lambda: states(http) == dict.fromkeys(others, "idle"))
            yield http, client


def states(http):
    """The state of each live worker."""
    try:
        return {each["id"]: each["state"] for each in http.get("/v1/workers").raise_for_status().json()["data"]}
    except httpx.HTTPError:
        return {}


def jobs_of(http, *ids):
    return [http.get(f"/v1/jobs/{each}").raise_for_status().json() for each in ids]


@two_cores
@pytest.mark.verify
@pytest.mark.timeout(240 + 5 * CUT_S)
def test_a_host_that_is_cut_off_and_comes_back_costs_no_job_and_no_second_end(hosts, http, settings, tmp_path):
    api, client = http
    keys = Keys(settings.namespace)
    lasting = [submit(api, **LASTING) for _ in range(2)]
    eventually(lambda: [job["status"] for job in jobs_of(api, *lasting)] == ["running"] * 2)
    [lost] = [job["id"] for job in jobs_of(api, *lasting) if job["worker"]["host"] == "host-b"]
    hosts.cut("host-b")
    since_s = time.monotonic()
    ids = [*lasting, *(submit(api) for _ in range(JOBS))]
    eventually(lambda: "host-b" not in states(api), what="the host is known to be gone")
    eventually(lambda: time.monotonic() - since_s > CUT_S, CUT_S + 30, "the outage is over")
    hosts.mend("host-b")
    eventually(lambda: client.zcard(keys.jobs_with_status("succeeded")) == len(ids), 60 + 2 * CUT_S, "all jobs succeed")
    eventually(lambda: states(api) == {"host-b": "idle", "host-c": "idle"}, what="the host is back")
    streams = read(client, keys).streams
    assert list(stream_violations({each: {each} for each in ids}, (), streams)) == []
    events = [event.event for event in streams.by_job[lost] if event.event != "heartbeat"]
    assert events == ["submit", "claim", "expire", "claim", "succeed"]
    [job] = jobs_of(api, lost)
    assert job["worker"]["host"] == "host-c"
    eventually(lambda: not list((tmp_path / "host-b" / "spool").glob("*.ending")), what="its late result was refused")
    again = submit(api, device=f"{HERE}@host-b")
    eventually(lambda: jobs_of(api, again)[0]["status"] == "succeeded")
    assert jobs_of(api, again)[0]["attempt"] == 1
