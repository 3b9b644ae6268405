"""A host is drained as docs/operations.md says: its device is cordoned, its worker ends idle, and no job notices."""

import pytest

from dyno.bench.devices.discovery import discover
from dyno.models.job import Status
from dyno.store.redis import Keys
from tests.cores import HERE, THERE, two_cores
from tests.waiting import eventually
from tests.workers.conftest import tiny
from tests.workers.whole.looking import (
    SHORT,
    api,
    events_of,
    jobs_of,
    offered,
    submit,
    until_idle,
    until_measuring,
    until_status,
)


@two_cores
@pytest.mark.verify
def test_a_drained_device_ends_its_job_takes_no_other_and_returns(start_worker, short_lease, client):
    here = discover(HERE, short_lease).full_id
    workers = {device: start_worker(device, short_lease) for device in (HERE, THERE)}
    until_idle(short_lease, 2)
    with api(short_lease, "-m", "service") as http:
        [running] = submit(short_lease, tiny(measure=SHORT, device=HERE))
        until_measuring(short_lease, running)
        http.post(f"/v1/devices/{here}/cordon").raise_for_status()
        until_status(short_lease, running, Status.SUCCEEDED)
        until_idle(short_lease, 2)
        ids = submit(short_lease, *[tiny()] * 8)
        for job_id in ids:
            until_status(short_lease, job_id, Status.SUCCEEDED)
        assert {job.worker.device for job in jobs_of(short_lease, *ids) if job.worker} == {
            discover(THERE, short_lease).full_id
        }
        assert events_of(short_lease, running) == ["submit", "claim", "succeed"]
        eventually(lambda: {device.state for device in offered(short_lease)} == {"idle"})
        workers[HERE].terminate()
        assert workers[HERE].wait(60) == 0
        assert list(short_lease.spool_dir.glob("*")) == []
        start_worker(HERE, short_lease, name="repaired")
        until_idle(short_lease, 2)
        [waiting] = submit(short_lease, tiny(device=HERE))
        [other] = submit(short_lease, tiny(device=THERE))
        until_status(short_lease, other, Status.SUCCEEDED)
        assert events_of(short_lease, waiting) == ["submit"], "the cordon outlasts the worker"
        assert client.smembers(Keys(short_lease.namespace).cordoned) == {here}
        http.post(f"/v1/devices/{here}/uncordon").raise_for_status()
        until_status(short_lease, waiting, Status.SUCCEEDED)
