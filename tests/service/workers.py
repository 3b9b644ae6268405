"""What a worker does, for tests that play one: publish its device, claim a job, end the job with figures."""

from datetime import UTC, datetime

from dyno.models.inventory import WorkerRecord
from dyno.models.job import WorkerRef
from dyno.store import fleet
from dyno.store.placement import queues_served
from tests.comparisons import a_metric, of_metrics


def a_worker(device, **changes):
    """The record of the device's worker, with the given fields changed."""
    known = {"id": f"worker-{device.id}", "host": device.host, "pid": 1, "device": device.full_id, "state": "idle"}
    return WorkerRecord.model_validate(known | {"version": "0", "started_at": datetime.now(UTC)} | changes)


def publish(client, settings, device, **changes):
    """Publish the device, as its worker does; returns the worker's record."""
    record = a_worker(device, **changes)
    fleet.publish(client, settings, device, record)
    return record


def take(leases, device, *more):
    """Claim a job as the device's worker; None if no job waits for it. `more`: a filter of jobs."""
    ref = WorkerRef(id="w", device=device.id, host=device.host)
    return leases.claim(device.full_id, queues_served(device), ref, *more)


def claim_of(leases, device):
    """As `take`, of a job that must be there."""
    claim = take(leases, device)
    assert claim is not None
    return claim


def succeed(leases, claim, metrics=(), **result):
    """End the job with these metrics and further fields of its result."""
    ran = {"params": claim.spec.params, "job": claim.job_id} | result
    assert leases.finish(claim, "succeed", result=of_metrics(metrics or [a_metric()], **ran))
