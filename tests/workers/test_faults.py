"""If a runner misbehaves, its job fails with a class, a reason and the end of its log, and the next job runs."""

import pytest

from dyno import folders
from dyno.bench.runner.launcher import TAIL_BYTES
from dyno.models.job import Status
from tests.waiting import promised
from tests.workers.conftest import children_of, tiny
from tests.workers.looking import device_is_free
from tests.workers.programs import first_runner_is

FREE_WITHIN_S = promised(5)
TIMEOUT_S = 6.0  # the program must have begun by then
TASKS = 60

FALLS = "import ctypes; print('about to fall', flush=True); ctypes.string_at(0)"
HANGS = """import ctypes, signal
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
print('hanging', flush=True)
while True:
    ctypes.CDLL(None).pause()"""
HOARDS = "print('taking it', flush=True); hoard = b'x' * (1 << 30); import time; time.sleep(600)"
# It ends by itself at a number of processes that a host can handle.
FORKS = f"""import os, time
print('taking them', flush=True)
for _ in range({2 * TASKS}):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
time.sleep(600)"""
LEAVES = """import os, time
print('leaving one', flush=True)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
    os._exit(0)"""
FLOODS = "import sys\nwhile True: sys.stdout.write('flood ' * 10000)"
FILLS = """import itertools, json, time
print('writing', flush=True)
folder = json.load(open(4))['scratch_dir']
for number in itertools.count():
    with open(f'{folder}/{number}', 'wb') as file:
        file.write(bytes(1 << 20))
    time.sleep(0.02)"""


@pytest.fixture
def limited(settings):
    """Heartbeats and grace periods are those of production, so limits that heartbeats check are found as late."""
    limits = {"runner_memory_bytes": 600 << 20, "runner_max_tasks": TASKS, "runner_files_bytes": 8 << 20}
    return settings.model_copy(update=limits)


@pytest.mark.parametrize(
    ("program", "failure_class", "reason", "log"),
    [
        ("print('and now nothing')", "benchmark", "no_result", "and now nothing"),
        ("raise ZeroDivisionError('so it was')", "benchmark", "runner_crashed", "ZeroDivisionError: so it was"),
        (FALLS, "benchmark", "runner_crashed", "about to fall"),
        (HOARDS, "resource", "out_of_memory", "taking it"),
        (HANGS, "timeout", "timeout", "hanging"),
        (FORKS, "resource", "too_many_processes", "taking them"),
        (LEAVES, "benchmark", "no_result", "leaving one"),
        pytest.param(FLOODS, "timeout", "timeout", "flood flood", marks=pytest.mark.verify),
        (FILLS, "resource", "artifacts_too_large", "writing"),
    ],
)
def test_a_runner_that_goes_wrong_frees_the_device_for_the_next_job(
    limited, store, client, here, supervisor_of, forking, monkeypatch, tmp_path, program, failure_class, reason, log
):
    began = tmp_path / "began"
    first_runner_is(program, forking, monkeypatch, began)
    given = {"timeout_s": TIMEOUT_S} if reason == "timeout" else {}
    wrong, after = store.submit(tiny(**given)), store.submit(tiny())
    assert supervisor_of(limited, forking).serve() == 2
    job = store.job(wrong)
    assert (job.status, job.status_reason, job.attempt) == (Status.FAILED, reason, 1)
    assert job.failure.failure_class.value == failure_class
    assert log in (job.failure.log_tail or "")
    assert len(job.failure.log_tail or "") <= TAIL_BYTES
    wrong_at_s = job.started_at.timestamp() + TIMEOUT_S if reason == "timeout" else float(began.read_text())
    assert job.finished_at.timestamp() - wrong_at_s < FREE_WITHIN_S
    assert store.job(after).status is Status.SUCCEEDED
    assert device_is_free(client, limited, here)
    assert [children_of(zygote.pid) for zygote in forking._zygotes.values()] == [set()] * len(forking._zygotes)
    assert list((folders.private_folder(limited.run_dir) / "scratch").iterdir()) == []
