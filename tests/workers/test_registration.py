"""A worker publishes its record when it changes, and a heartbeat in between."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from dyno.models.device import Device, PeakFigure
from dyno.models.inventory import WorkerRecord
from dyno.store import fleet
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import Keys, sync_client
from tests.waiting import eventually
from workers.worker import Registration, claim_host_name

DEVICE = Device(id="cpu:0-1", kind="cpu", model="EPYC", host="alpha", memory_bytes=1, frameworks={"tensorflow": "2"})
WORKER = WorkerRecord(
    id="w", host="alpha", pid=1, device=DEVICE.full_id, state="starting", version="0", started_at=datetime.now(UTC)
)
BEATS, BYTES_A_BEAT = 20, 400


@pytest.fixture
def there(settings, monkeypatch):
    """Records are extended every 0.1 s, and outlast a pause of a busy machine."""
    monkeypatch.setattr("workers.worker._UPDATES_PER_TTL", 100)
    with EmbeddedServer() as server:
        yield settings.model_copy(update={"redis_url": server.url, "device_ttl_s": 10.0})


def test_an_unchanged_worker_writes_only_heartbeats(there):
    there.spool_dir.mkdir()
    shown = [DEVICE.model_copy(update={"frameworks": {"tensorflow": "2", "text": "x" * 5000}})]
    with sync_client(there) as client:
        key, beat = Keys(there.namespace).worker("w"), Keys(there.namespace).worker_heartbeat("w")
        registration = Registration(client, there, WORKER, lambda: shown[-1])
        registration.start()
        try:
            eventually(lambda: client.exists(beat))
            record, size, beats = client.get(key), _log_bytes(client), _sets(client)
            eventually(lambda: _sets(client) >= beats + BEATS)
            assert _log_bytes(client) - size < BYTES_A_BEAT * (_sets(client) - beats)
            assert client.get(key) == record

            shown.append(DEVICE.model_copy(update={"peak": {"float32": PeakFigure(value=1.0)}}))
            eventually(lambda: '"value":1.0' in str(client.get(key)), what="a changed device is published")
            registration.show("busy", "job_1")
            eventually(lambda: '"job_1"' in str(client.get(key)), what="a changed worker is published")
            (there.spool_dir / "job_2.1.0.ending").write_text("")
            eventually(lambda: '"outbox":1' in str(client.get(key)), what="an undelivered result is published")
            client.flushdb()
            eventually(lambda: '"job_1"' in str(client.get(key)), what="a lost record is published again")
            assert client.smembers(Keys(there.namespace).workers) == {"w"}
        finally:
            registration.stop()
        assert client.keys("*") == []


def test_workers_of_one_machine_share_its_name(there):
    def claim(boot):
        with sync_client(there) as own:
            return fleet.claim_host(own, there, "alpha", boot)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(claim, ["this machine"] * 8))
        assert not any(pool.map(claim, ["another"] * 2))
        assert claim("this machine")


def test_the_name_of_a_machine_that_is_gone_is_free_once_its_claim_expires(there):
    brief = there.model_copy(update={"device_ttl_s": 0.3})
    with sync_client(there) as client:
        assert fleet.claim_host(client, brief, "alpha", "before its restart")
        claim_host_name(client, there, "alpha", "after its restart")
        assert client.get(Keys(there.namespace).host("alpha")) == "after its restart"
        assert 0 < client.pttl(Keys(there.namespace).host("alpha")) <= there.device_ttl_s * 1000


def test_a_late_answer_is_asked_for_again_since_the_other_claim_may_have_run_out(there, monkeypatch):
    passed_s, answers = [0.0], iter([False, True])

    def claim_host(*_):
        passed_s[0] += 2 * there.device_ttl_s
        return next(answers)

    monkeypatch.setattr(fleet, "claim_host", claim_host)
    monkeypatch.setattr("workers.worker.time", SimpleNamespace(monotonic=lambda: passed_s[0], sleep=lambda _: None))
    with sync_client(there) as client:
        claim_host_name(client, there, "alpha", "this machine")
    assert list(answers) == []


def test_a_name_is_claimed_later_if_the_store_is_away(there, tmp_path):
    away = there.model_copy(update={"redis_url": f"unix://{tmp_path / 'nothing.sock'}"})
    with sync_client(away) as client:
        claim_host_name(client, away, "alpha", "this machine")


def test_a_worker_whose_name_is_taken_is_no_longer_published_and_told_once(there):
    told, owns = list[str](), [True]
    brief = there.model_copy(update={"device_ttl_s": 2.0})
    with sync_client(there) as client:
        key = Keys(there.namespace).worker("w")
        registration = Registration(
            client, brief, WORKER, lambda: DEVICE, lambda: owns[0], lambda: told.append("taken")
        )
        registration.start()
        try:
            eventually(lambda: client.exists(key))
            owns[0] = False
            eventually(lambda: not client.exists(key))
            registration.show("idle")
            eventually(lambda: told == ["taken"])
        finally:
            registration.stop()
    assert told == ["taken"]


def _log_bytes(client):
    found = client.info("persistence")
    return int(found["aof_current_size"])


def _sets(client):
    found = client.info("commandstats")
    return int(found["cmdstat_set"]["calls"])
