import json
import socket
import time
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery.app.defaults import NAMESPACES, flatten

from dyno import celery_app
from dyno.errors import StoreUnavailable, StoreUnfit
from dyno.settings import Settings

NAMES = ["any", "cpu", "cpu/amd-epyc", "cpu:0-1", "cpu:0,2@alpha.example", "cpu:0_2", "cpu:0/2"]


@pytest.fixture
def messages(client, settings):
    """The messages that wait in the Celery queue of a store queue."""

    def waiting(queue):
        name = celery_app.key_prefix(settings) + celery_app.celery_queue(queue).name
        return [json.loads(text) for text in client.lrange(name, 0, -1)]

    return waiting


@pytest.mark.parametrize("queue", NAMES)
def test_a_wake_up_is_a_task_that_names_its_queue(settings, messages, queue):
    assert celery_app.send_wake_up(settings, queue)
    (message,) = messages(queue)
    assert message["headers"]["task"] == "dyno.wake"
    assert message["headers"]["expires"] is None
    assert json.loads(b64decode(message["body"]))[0] == [queue]


def test_wake_ups_do_not_pile_up(settings, messages):
    assert celery_app.send_wake_up(settings, "cpu")
    assert not celery_app.send_wake_up(settings, "cpu")
    assert celery_app.send_wake_up(settings, "any")
    assert (len(messages("cpu")), len(messages("any"))) == (1, 1)


def test_namespaces_do_not_wake_each_other(settings, messages):
    other = settings.model_copy(update={"namespace": settings.namespace + "-other"})
    assert celery_app.send_wake_up(other, "cpu")
    assert messages("cpu") == []


def test_a_worker_that_serves_the_queue_gets_the_message(settings, messages):
    celery_app.send_wake_up(settings, "cpu:0-1@alpha")
    with (
        celery_app.app(settings).connection_for_read() as connection,
        connection.SimpleQueue(celery_app.celery_queue("cpu:0-1@alpha")) as queue,
    ):
        message = queue.get(timeout=60)
        assert message.headers["task"] == celery_app.WAKE_TASK
        message.ack()
    assert messages("cpu:0-1@alpha") == []


def test_wake_ups_share_a_connection_and_get_a_new_one_once_redis_has_closed_it(settings, client):
    messages = celery_app.key_prefix(settings) + celery_app.celery_queue("cpu").name

    def send():
        """The ids of all connections after a wake-up."""
        assert celery_app.send_wake_up(settings, "cpu")
        assert client.delete(messages) == 1
        return {each["id"] for each in client.client_list()}

    connected = send()
    assert send() <= connected  # others, of earlier tests, may have been closed since
    client.client_kill_filter(_type="normal", skipme=True)
    assert not send() & connected - {str(client.client_id())}


def test_neither_publishers_nor_consumers_bind_queues(settings, client):
    celery_app.send_wake_up(settings, "cpu")
    with (
        celery_app.app(settings).connection_for_read() as connection,
        connection.SimpleQueue(celery_app.celery_queue("cpu")) as queue,
    ):
        queue.get(timeout=60).ack()
    assert list(client.scan_iter(f"{celery_app.key_prefix(settings)}*")) == []


def test_an_unread_wake_up_expires(settings, client):
    own = celery_app.key_prefix(settings) + celery_app.celery_queue("cpu").name
    celery_app.send_wake_up(settings, "cpu")
    assert 0 < client.pttl(own) <= celery_app.WAKE_UP_TTL_S * 1000
    client.persist(own)  # as by a process that died in between
    assert not celery_app.send_wake_up(settings, "cpu")
    assert client.pttl(own) > 0


def test_celery_names_are_plain_and_no_two_queues_share_one():
    names = [celery_app.celery_queue(queue).name for queue in NAMES]
    assert len(set(names)) == len(NAMES)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-") for name in names)


def test_a_broker_that_is_away_is_reported_soon(settings, tmp_path):
    nowhere = settings.model_copy(update={"redis_url": f"unix://{tmp_path / 'nothing.sock'}"})
    began_s = time.monotonic()
    with pytest.raises(StoreUnavailable):
        celery_app.send_wake_up(nowhere, "cpu")
    assert time.monotonic() - began_s < 20


def test_a_broker_that_goes_away_in_mid_publish_is_reported_soon(settings, tmp_path, monkeypatch, client):
    nowhere = celery_app._Publisher(settings.model_copy(update={"redis_url": f"unix://{tmp_path / 'nothing.sock'}"}))
    nowhere.client = client
    monkeypatch.setattr(celery_app, "_publisher", lambda settings: nowhere)
    began_s = time.monotonic()
    with pytest.raises(StoreUnavailable):
        celery_app.send_wake_up(settings, "cpu")
    assert time.monotonic() - began_s < 20


def test_a_broker_that_never_answers_is_reported_soon_and_holds_no_other_wake_up_up(settings, monkeypatch, client):
    monkeypatch.setattr(celery_app, "ANSWER_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as pool:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        publisher = celery_app._Publisher(settings.model_copy(update={"redis_url": url}))
        publisher.client = client
        monkeypatch.setattr(celery_app, "_publisher", lambda settings: publisher)
        began_s = time.monotonic()
        for wake_up in [pool.submit(celery_app.send_wake_up, settings, "cpu") for _ in range(3)]:
            with pytest.raises(StoreUnavailable):
                wake_up.result(20)
        assert time.monotonic() - began_s < 20


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("redis://host:6379/1", "redis://host:6379/1"),
        ("rediss://user:secret@host/0", "rediss://user:secret@host/0"),
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock?virtual_host=0"),
        ("unix://:secret@/run/redis.sock?db=3", "redis+socket://:secret@/run/redis.sock?virtual_host=3"),
    ],
)
def test_celery_gets_the_same_server_in_its_own_url_form(url, broker):
    assert celery_app.app(Settings(redis_url=url)).conf.broker_url == broker


def test_an_app_without_a_server_is_refused():
    with pytest.raises(StoreUnfit):
        celery_app.app(Settings(redis_url=None))


def test_celery_knows_every_setting(settings):
    known = {name for name, _ in flatten(NAMESPACES)}
    assert set(celery_app._CONFIG) <= known


def test_the_settings_that_reliability_needs_are_set(settings):
    conf = celery_app.app(settings).conf
    assert conf.result_backend is None
    assert (conf.task_acks_late, conf.task_create_missing_queues, conf.worker_disable_prefetch) == (False, False, True)
    assert conf.worker_soft_shutdown_timeout == settings.shutdown_s
    assert conf.broker_transport_options["visibility_timeout"] == 43200
