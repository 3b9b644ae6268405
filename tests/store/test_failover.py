"""What a failover to a replica takes: the writes that Redis acknowledged and the replica hasn't.

Dyno waits for no replica. With `min-replicas-to-write`, Redis itself refuses writes that would be at risk for longer.
"""

import time
from contextlib import ExitStack, contextmanager

import pytest
import redis

from chaos.checks import state_violations
from chaos.snapshot import read
from dyno.errors import StoreUnavailable
from dyno.models.job import Status
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import Keys
from tests.network import Network
from tests.servers import KINDS, server_binary
from tests.waiting import eventually, promised
from tests.workers.whole.looking import jobs_of, submit

MAX_LAG_S = 2  # min-replicas-max-lag; a replica reports once a second


@pytest.fixture(params=KINDS)
def binary(request):
    return server_binary(request.param)


class Pair:
    """A server and its replica, with a network between them that can be cut."""

    def __init__(self, primary, replica, network, settings):
        self._primary, self._network = primary, network
        self.before, self.after = (settings.model_copy(update={"redis_url": s.url}) for s in (primary, replica))
        self.primary, self.replica = (redis.Redis.from_url(s.url, decode_responses=True) for s in (primary, replica))

    def connect(self):
        host, _, port = self._network.url.removeprefix("redis://").removesuffix("/0").partition(":")
        self.replica.replicaof(host, port)
        eventually(lambda: self._link() == "up", what="the replica has a copy")

    def _link(self):
        return self.replica.info("replication")["master_link_status"]

    def is_copied(self):
        """Whether the replica has all that was written until now: a write, and what WAIT says of it."""
        self.primary.set("last", "write")
        return bool(self.primary.wait(1, 200))

    def cut(self):
        self._network.hold()

    def fail_over(self):
        """The primary is gone for good, and the replica takes its place, as Sentinel does it."""
        self._primary.kill()
        self.replica.replicaof("NO", "ONE")
        eventually(lambda: self.replica.info("replication")["role"] == "master")

    def submit(self, spec):
        [job_id] = submit(self.before, spec, call=lambda *_: None)
        return job_id


@pytest.fixture
def pair(binary, settings):
    with pair_of(binary, settings) as made:
        yield made


@contextmanager
def pair_of(binary, settings):
    with ExitStack() as stack:
        primary, replica = (stack.enter_context(EmbeddedServer(binary=binary)) for _ in range(2))
        made = Pair(primary, replica, stack.enter_context(Network(primary.url)), settings)
        for client in (made.primary, made.replica):
            stack.enter_context(client)
        made.connect()
        yield made


def kept(pair):
    return set(pair.replica.zrange(Keys(pair.after.namespace).jobs, 0, -1))


def test_a_failover_loses_what_the_replica_has_not_and_nothing_else(pair, a_spec):
    copied = pair.submit(a_spec())
    eventually(pair.is_copied, what="the replica has the job")
    pair.cut()
    lost = pair.submit(a_spec())
    assert not pair.is_copied(), "Redis knows that, and has acknowledged the job"
    pair.fail_over()
    assert lost not in kept(pair)
    assert kept(pair) == {copied}
    assert jobs_of(pair.after, copied)[0].status is Status.QUEUED
    assert list(state_violations(read(pair.replica, Keys(pair.after.namespace)))) == []
    assert pair.after.redis_url is not None
    assert submit(pair.after, a_spec(), call=lambda *_: None), "it takes writes again"


@pytest.mark.verify
def test_with_min_replicas_jobs_are_refused_once_the_replica_lags(pair, a_spec):
    pair.primary.config_set("min-replicas-max-lag", MAX_LAG_S)
    pair.primary.config_set("min-replicas-to-write", 1)
    early = [pair.submit(a_spec()) for _ in range(10)]
    eventually(pair.is_copied)
    pair.cut()
    cut_s, late = time.monotonic(), list[str]()

    def refused():
        try:
            late.append(pair.submit(a_spec()))
        except StoreUnavailable as error:
            return "NOREPLICAS" in str(error.detail)
        return False

    eventually(refused)
    at_risk_s = time.monotonic() - cut_s
    assert late
    # Redis counts whole seconds and looks once a second: up to MAX_LAG_S + 2, and the answer takes a little.
    assert at_risk_s < promised(MAX_LAG_S + 3), "later jobs aren't accepted, so none of them can be lost"
    pair.fail_over()
    assert kept(pair) == set(early)
