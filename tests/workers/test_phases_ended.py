"""A cancel and a timeout in each phase of a run: the right status, no process left, and the next job runs."""

import pytest

from dyno.models.job import Status
from tests.waiting import eventually
from tests.workers.conftest import children_of, tiny, until_gone
from tests.workers.looking import device_is_free
from tests.workers.programs import first_runner_is

TIMEOUT_S = 6.0  # the program must have begun by then
PHASES = [None, "starting", "build", "compile", "training", "warmup", "sampling", "verify"]  # None: before any frame

# It never ends by itself, and has a child that left its process group.
STUCK = """
import os, time
child = os.fork()
if child == 0:
    os.setsid()
    time.sleep(600)
    os._exit(0)
print(child, flush=True)
while True:
    if {phase!r}:
        os.write(3, b'{{"frame": "progress", "phase": "{phase}", "completed": 1, "total": 4}}\\n')
    time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("ended_by", "phase"),
    [
        *(("cancel", phase) for phase in PHASES),
        ("timeout", "sampling"),
        *(pytest.param("timeout", phase, marks=pytest.mark.verify) for phase in ("starting", "build", "warmup")),
    ],
)
def test_an_end_in_any_phase_leaves_no_process_and_harms_no_other_job(
    quick, store, client, here, supervisor_of, forking, background, monkeypatch, tmp_path, ended_by, phase
):
    began = tmp_path / "began"
    first_runner_is(STUCK.format(phase=phase), forking, monkeypatch, began)
    given = {"timeout_s": TIMEOUT_S} if ended_by == "timeout" else {}
    stuck, after = store.submit(tiny(**given)), store.submit(tiny())
    serving = background.submit(supervisor_of(quick, forking).serve)
    eventually(began.exists, what="the program runs")
    if phase is not None:
        eventually(lambda: (seen := store.job(stuck).progress) is not None and seen.phase == phase, what=phase)
    [zygote] = [each.pid for each in forking._zygotes.values() if children_of(each.pid)]
    family = {below for child in children_of(zygote) for below in {child, *children_of(child)}}
    if ended_by == "cancel":
        store.cancel(stuck)
    assert serving.result(60) == 2
    job = store.job(stuck)
    wanted = (Status.CANCELED, None) if ended_by == "cancel" else (Status.FAILED, "timeout")
    assert (job.status, job.status_reason, job.attempt) == (*wanted, 1)
    assert [pid for pid in family if not until_gone(pid)] == []
    assert store.job(after).status is Status.SUCCEEDED
    assert device_is_free(client, quick, here)
