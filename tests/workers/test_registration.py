"""A worker publishes its record when it changes, and a heartbeat in between."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from dyno.devices.device import Device, PeakFigure
from dyno.models.inventory import WorkerRecord
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import Keys, sync_client
from tests.waiting import eventually
from workers.worker import Registration

DEVICE = Device(id="cpu:0-1", kind="cpu", model="EPYC", host="alpha", memory_bytes=1, frameworks={"tensorflow": "2"})
WORKER = WorkerRecord(
    id="w", host="alpha", pid=1, device=DEVICE.full_id, state="starting", version="0", started_at=datetime.now(UTC)
)
BEATS, BYTES_A_BEAT = 20, 400


@pytest.fixture
def there(settings: Settings) -> Iterator[Settings]:
    with EmbeddedServer() as server:
        yield settings.model_copy(update={"redis_url": server.url, "device_ttl_s": 0.3})


def test_an_unchanged_worker_writes_only_heartbeats(there: Settings) -> None:
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
            client.flushdb()
            eventually(lambda: '"job_1"' in str(client.get(key)), what="a lost record is published again")
            assert client.smembers(Keys(there.namespace).workers) == {"w"}
        finally:
            registration.stop()
        assert client.keys("*") == []


def _log_bytes(client: redis.Redis) -> int:
    found: Any = client.info("persistence")
    return int(found["aof_current_size"])


def _sets(client: redis.Redis) -> int:
    found: Any = client.info("commandstats")
    return int(found["cmdstat_set"]["calls"])
