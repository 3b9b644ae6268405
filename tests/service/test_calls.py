"""The methods of both clients against the service: requests are understood, and responses have their types."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from dyno.client import AsyncClient, Client, Refused, endpoints
from dyno.models.inventory import AwayDevice, Cordon, WorkerRecord
from dyno.models.result import Artifact
from tests.asking import all_asked, asked

SPEC = {"workload": "matmul", "params": {"n": 64}, "device": "cpu"}


@pytest.fixture(params=[Client, AsyncClient])
def through(request, http):
    return lambda ask: asked(request.param, ask, str(http.base_url))


@pytest.fixture
def label():
    """A label for the jobs of one test."""
    return uuid4().hex[:12]


def test_workloads_and_devices_are_listed(through, offered, client, settings):
    [device] = through(lambda client: client.devices())
    assert (device.full_id, device.state, device.peak["float32"].value) == (offered.full_id, "idle", 1e11)
    [worker] = through(lambda client: client.workers())
    assert isinstance(worker, WorkerRecord)
    assert (worker.device, worker.state) == (offered.full_id, "idle")
    assert "matmul" in {each.name for each in through(lambda client: client.workloads())}
    assert through(lambda client: client.workload("matmul")).params["properties"]["n"]
    for name in ("none", "../jobs", "matmul?"):
        with pytest.raises(Refused) as raised:
            through(lambda client, name=name: client.workload(name))
        assert raised.value.status == 404
    assert through(lambda client: client.cordon(offered.id)) == Cordon(device=offered.full_id, cordoned=True)
    assert through(lambda client: client.uncordon(offered.id)) == Cordon(device=offered.full_id, cordoned=False)
    client.sadd(f"{settings.namespace}:cordoned", "gpu:3@away")
    assert through(lambda client: client.cordoned_away()) == [AwayDevice(id="gpu:3", host="away")]
    client.delete(f"{settings.namespace}:cordoned")


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("name", ["../keys/key_0", "..", "job/files", "job?wait=1", "job#", "%2e%2e", "a b"])
def test_foreign_ids_never_reach_other_paths(http, kind, name):
    file = Artifact(name=name, bytes=0, sha256="", url="")
    calls = [
        *(lambda client: client.job(name), lambda client: client.result(name), lambda client: client.wait(name)),
        *(lambda client: client.cancel(name), lambda client: client.rerun(name), lambda client: client.delete(name)),
        *(lambda client: client.samples(name), lambda client: client.logs(name), lambda client: client.artifacts(name)),
        *(lambda client: client.comparison(name), lambda client: client.bars(name)),
        *(lambda client: client.redeliver(name), lambda client: client.workload(name)),
        lambda client: client.download(f"job_{26 * '0'}", file, Path("never")),
    ]
    told = [error.problem["code"] for error in all_asked(kind, calls, str(http.base_url))]
    assert [code for code in told if not code.endswith("not-found")] == []


def test_events_of_a_job_never_include_those_of_others(http, submitted):
    submitted()  # so that events exist
    with Client(str(http.base_url)) as client, pytest.raises(Refused) as raised:
        next(client.events("..", after="0-0"))
    assert raised.value.status == 404


def test_jobs_are_listed_over_the_requested_pages(through, submitted, label, monkeypatch):
    monkeypatch.setattr(endpoints, "MAX_PAGE_SIZE", 2)
    ids = [submitted(labels={"test": label}) for _ in range(5)][::-1]

    def found(**filters):
        return [job.id for job in through(lambda client: client.jobs(label=f"test={label}", **filters))]

    assert (found(), found(limit=None), found(limit=3), found(limit=2)) == (ids, ids, ids[:3], ids[:2])
    assert found(status="queued", workload="matmul", device="cpu", framework="tensorflow") == ids
    assert found(status="running") == found(workload="mnist_cnn") == found(framework="jax") == []
    hour = timedelta(hours=1)
    assert found(created_after=datetime.now(UTC) - hour, created_before=datetime.now(UTC) + hour) == ids
    assert found(created_after=(datetime.now(UTC) + hour).isoformat()) == []
    with pytest.raises(Refused, match="limit"):
        found(limit=0)


def test_result_rows_are_listed_over_the_requested_pages(through, finished, label, monkeypatch):
    monkeypatch.setattr(endpoints, "MAX_PAGE_SIZE", 1)
    ids = [finished(spec={"labels": {"test": label}}) for _ in range(3)][::-1]

    def found(**filters):
        return list(through(lambda client: client.results(label=f"test={label}", **filters)))

    rows = found(limit=None)
    assert [row.job for row in rows] == ids
    assert {(row.metric, row.model_extra["param.n"], row.model_extra["label.test"]) for row in rows} == {
        ("throughput", 64, label)
    }
    assert [row.job for row in found(limit=2, metric="throughput", workload="matmul", device="cpu")] == ids[:2]
    assert found(metric="none") == found(created_after=datetime.now(UTC) + timedelta(hours=1)) == []


def test_a_spec_is_checked_without_being_queued(through, offered):
    before = through(lambda client: client.jobs(limit=1))
    found = through(lambda client: client.validate(SPEC))
    assert (found.spec.params["n"], found.spec.measure.budget_s) == (64, 15)
    assert found.estimate.device == offered.full_id
    assert through(lambda client: client.jobs(limit=1)) == before
    with pytest.raises(Refused, match="/params/n"):
        through(lambda client: client.validate(SPEC | {"params": {"n": 0}}))


def test_a_repeated_submit_with_its_own_key_makes_one_job(through, offered, label):
    one, other = (through(lambda client: client.submit(SPEC, idempotency_key=label)) for _ in range(2))
    assert one.id == other.id
    again = {through(lambda client: client.rerun(one.id, idempotency_key=f"{label}-2")).id for _ in range(2)}
    assert len(again) == 1
    for job_id in (one.id, *again):
        through(lambda client, job_id=job_id: client.cancel(job_id))


def test_no_key_is_needed_before_the_first_exists(through):
    me = through(lambda client: client.me())
    assert (me.key, me.scopes) == (None, ["read", "submit", "admin"])


def test_the_history_is_read_and_its_alarm_acknowledged(through, finished, label):
    values = [100.0, 100.1, 99.9, 100.0, 100.2, 80.0, 80.1, 79.9, 80.0]
    ids = [finished([value, value], {"labels": {"test": label}}) for value in values]
    found = through(lambda client: client.history(workload="matmul", label=f"test={label}", metric="throughput"))
    assert [[point.job for point in each.points] for each in found.series] == [ids]
    [alarm] = found.alarms
    assert alarm.state == "new"
    acknowledged = through(lambda client: client.acknowledge(alarm))
    assert (acknowledged.id, acknowledged.state) == (alarm.id, "acknowledged")
    with pytest.raises(Refused, match="no such alarm"):
        through(
            lambda client: client.acknowledge(alarm.model_copy(update={"acknowledge_url": f"{alarm.acknowledge_url}x"}))
        )
    later = datetime.now(UTC) + timedelta(hours=1)
    assert through(lambda client: client.history(created_after=later)).series == []
