"""Wake-ups that are lost, repeated, late or for another queue: each job runs once, and no job is left waiting."""

from itertools import cycle

import pytest

from dyno.celery_app import WAKE_TASK, app, celery_queue
from dyno.models.job import Status
from tests.cores import HERE, THERE, two_cores
from tests.waiting import eventually
from tests.workers.conftest import tiny
from tests.workers.whole.looking import events_of, jobs_of, submit, until_idle

DEVICES = (HERE, THERE)


def send(settings, *queues):
    """Send one wake-up per queue, even if others are pending."""
    publisher = app(settings)
    with publisher.connection_for_write() as connection:
        for queue in queues:
            publisher.send_task(WAKE_TASK, args=[queue], queue=celery_queue(queue), connection=connection)


@pytest.mark.verify
@two_cores
@pytest.mark.parametrize("each", [3, 12])
def test_each_job_runs_once_whatever_happens_to_wake_ups(start_worker, settings, each):
    there = settings.model_copy(update={"reap_every_s": 0.5})
    for device in DEVICES:
        start_worker(device, there)
    until_idle(there, 2)
    queues = cycle(("cpu", *DEVICES))
    specs = [tiny(device=next(queues)) for _ in range(3 * each)]
    ids = submit(there, *specs[:each], call=lambda *_: None)  # lost
    held = []
    ids += submit(there, *specs[each : 2 * each], call=lambda _, queue: held.append(queue))
    ids += submit(there, *specs[2 * each :], call=lambda _, queue: send(there, *[queue] * 20))  # many times
    send(there, *reversed(held))  # late, and in reverse order
    send(there, *["any"] * 20)  # without a job
    eventually(lambda: all(job.done for job in jobs_of(there, *ids)), 150)
    until_idle(there, 2)
    ids += submit(there, tiny(device=DEVICES[0]), call=lambda *_: None)  # lost, and nobody else calls that worker
    eventually(lambda: all(job.done for job in jobs_of(there, *ids)))
    assert {(job.status, job.attempt) for job in jobs_of(there, *ids)} == {(Status.SUCCEEDED, 1)}
    assert {tuple(events_of(there, job_id)) for job_id in ids} == {("submit", "claim", "succeed")}
    until_idle(there, 2)
