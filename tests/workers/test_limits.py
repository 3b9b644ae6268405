"""A runner that exceeds its limits is stopped, and its failure has the right class, with and without a cgroup."""

from __future__ import annotations

import os
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from dyno.bench.runner import limits as bounds_module
from dyno.bench.runner.launcher import Launcher
from dyno.bench.runner.limits import Cgroup, RunnerLimits, runner_cgroup
from dyno.bench.runner.monitor import RunLimits, RunnerMonitor, StopSwitch, failure_of
from dyno.bench.runner.zygote import descendants
from dyno.settings import Settings
from tests.cores import CORE
from tests.waiting import eventually
from tests.workers.conftest import Heart, until_begun

ROOM_BYTES = 200 << 20
TASKS = 40
HOARD = "print('taking it', flush=True); hoard = b'x' * (1 << 30); import time; time.sleep(600)"
SHARED_HOARD = f"""import os, time
hoard = b'x' * {ROOM_BYTES // 2}
for _ in range(8):
    if os.fork() == 0:
        time.sleep(600); os._exit(0)
print('shared', flush=True)
time.sleep(2)"""
# Each ends by itself at a number that a host can handle: a limit that doesn't work must only fail a test.
DEAF = f"""import os, time
print('taking them', flush=True)
for _ in range({3 * TASKS}):
    try:
        if os.fork() == 0:
            time.sleep(600); os._exit(0)
    except BlockingIOError:
        pass
time.sleep(600)"""
BOMB = f"""import os, time
print('taking them', flush=True)
for _ in range({2 * TASKS}):
    if os.fork() == 0:
        if _ % 2:
            os.setsid()
        time.sleep(600); os._exit(0)
time.sleep(600)"""
THREADS = f"""import threading, time
print('taking them', flush=True)
for _ in range({2 * TASKS}):
    threading.Thread(target=time.sleep, args=[600], daemon=True).start()
time.sleep(600)"""
UNCAUGHT = f"""import os, time
print('taking them', flush=True)
for _ in range({2 * TASKS}):
    if os.fork() == 0:
        time.sleep(600)"""
CHILD_HOARDS = """import os
print('taking it', flush=True)
pid = os.fork()
if pid == 0:
    hoard = b'x' * (1 << 30)
    os._exit(0)
_, status = os.waitpid(pid, 0)
raise SystemExit(f'my child ended with {status}')"""


@dataclass
class Bench:
    """Runs programs with limits, enforced by a cgroup or by checks."""

    settings: Settings
    launcher: Launcher
    folder: Path

    def run(self, program, **limits):
        return self.watch(program, **limits)[0]

    def watch(self, program, every_s=0.1, timeout_s=60):
        """Run a program; returns its failure, and the seconds from its start to its end."""
        bounds = RunnerLimits(self.settings, self.launcher.cgroup, self.folder)
        began_s = time.monotonic()
        with self.launcher.spawn(["-P", "-c", program], b"{}") as runner:
            limits = RunLimits(60, 5, began_s + timeout_s)
            heart = Heart(every_s)
            ended = RunnerMonitor(runner, 0, limits, heart, StopSwitch(), time.monotonic, bounds).until_ended()
        assert descendants(self.launcher._zygotes[None].pid) == {}
        return failure_of(ended, timeout_s, 60), time.monotonic() - began_s


@pytest.fixture
def grouped():
    cgroup = runner_cgroup(ROOM_BYTES, TASKS)
    if not (cgroup.limits_memory and cgroup.limits_tasks):
        pytest.skip("cgroups can't be made here")
    return cgroup


@pytest.fixture
def bench(request, settings, tmp_path):
    """Parametrized: "cgroup" if the kernel enforces the limits, "looks" if only the supervisor checks them."""
    cgroup = request.getfixturevalue("grouped") if getattr(request, "param", "looks") == "cgroup" else Cgroup()
    changes = {"runner_memory_bytes": ROOM_BYTES, "runner_max_tasks": TASKS, "runner_files_bytes": 8 << 20}
    folder = tmp_path / "scratch"
    folder.mkdir()
    with closing(Launcher("spawn", [CORE], cgroup)) as launcher:
        yield Bench(settings.model_copy(update=changes), launcher, folder)


both = pytest.mark.parametrize("bench", ["cgroup", "looks"], indirect=True)
by_cgroup = pytest.mark.parametrize("bench", ["cgroup"], indirect=True)


def told(failure):
    return failure.failure_class.value, failure.reason, failure.log_tail or ""


@both
def test_a_runner_that_takes_too_much_memory_is_out_of_memory(bench):
    assert told(bench.run(HOARD)) == ("resource", "out_of_memory", "taking it\n")


@both
def test_memory_shared_by_its_processes_counts_once(bench):
    assert told(bench.run(SHARED_HOARD)) == ("benchmark", "no_result", "shared\n")


@both
@pytest.mark.parametrize("program", [BOMB, DEAF, THREADS])
def test_a_runner_with_too_many_processes_or_threads_is_stopped(bench, program):
    failure_class, reason, log = told(bench.run(program))
    assert (failure_class, reason) == ("resource", "too_many_processes")
    assert log.startswith("taking them\n")


@by_cgroup
def test_a_fork_that_was_refused_is_why_its_runner_failed(bench):
    """The runner fails long before the first check."""
    failure_class, reason, log = told(bench.run(UNCAUGHT, every_s=600))
    assert (failure_class, reason) == ("resource", "too_many_processes")
    assert "BlockingIOError" in log


@by_cgroup
def test_memory_that_killed_a_runners_child_is_why_the_runner_failed(bench):
    failure_class, reason, log = told(bench.run(CHILD_HOARDS, every_s=600))
    assert (failure_class, reason) == ("resource", "out_of_memory")
    assert "my child ended with 9" in log


@by_cgroup
@pytest.mark.parametrize(("program", "reason"), [(HOARD, "out_of_memory"), (BOMB, "too_many_processes")])
def test_a_runner_whose_zygote_could_not_join_the_cgroup_is_checked(bench, program, reason, monkeypatch):
    monkeypatch.setattr(Cgroup, "doors", [])
    assert told(bench.run(program))[1] == reason


@by_cgroup
def test_the_next_runner_has_the_whole_room_again(bench):
    assert told(bench.run(HOARD))[1] == "out_of_memory"
    assert told(bench.run(BOMB))[1] == "too_many_processes"
    assert told(bench.run("print('nothing')")) == ("benchmark", "no_result", "nothing\n")


def test_a_runner_that_fills_the_disk_is_stopped_before_it_is_full(bench):
    program = f"""import itertools, time
print('writing', flush=True)
for number in itertools.count():
    with open({str(bench.folder)!r} + f'/{{number}}', 'wb') as file:
        file.write(bytes(1 << 20))
    time.sleep(0.02)"""
    assert told(bench.run(program)) == ("resource", "artifacts_too_large", "writing\n")


def test_a_runner_that_fills_the_disk_with_small_files_is_stopped(bench, monkeypatch):
    monkeypatch.setattr(bounds_module, "MOST_FILES", 50)
    program = f"""import itertools, os, time
os.mkdir({str(bench.folder)!r} + '/within')
for number in itertools.count():
    open({str(bench.folder)!r} + f'/within/{{number}}', 'wb').close()
    time.sleep(0.001)"""
    assert told(bench.run(program))[1] == "artifacts_too_large"


def test_a_file_that_goes_during_a_look_takes_no_other_out_of_the_count(bench, monkeypatch):
    for name in ("goes", *"abcdefghij"):
        (bench.folder / name).write_bytes(bytes(1 << 20))
    scan = os.scandir

    def listed_then_gone(path):
        with scan(path) as entries:
            listed = sorted(entries, key=lambda entry: entry.name != "goes")
        (bench.folder / "goes").unlink()
        return nullcontext(listed)

    monkeypatch.setattr(os, "scandir", listed_then_gone)
    found = RunnerLimits(bench.settings, Cgroup(), bench.folder)._files()
    assert found.reason == "artifacts_too_large"


def test_a_check_of_a_runner_costs_the_supervisor_next_to_nothing(bench):
    """With ten processes of four threads and 1,000 files, a check takes a small part of a heartbeat of 2 s."""
    program = """import os, threading, time
for _ in range(9):
    if os.fork() == 0:
        break
for _ in range(3):
    threading.Thread(target=time.sleep, args=[600], daemon=True).start()
print('up', flush=True)
time.sleep(600)"""
    for number in range(1000):
        (bench.folder / str(number)).touch()
    bounds = RunnerLimits(bench.settings, Cgroup(), bench.folder)
    with bench.launcher.spawn(["-P", "-c", program], b"{}") as runner:
        until_begun(runner)
        assert runner.zygote_pid is not None
        zygote = runner.zygote_pid
        eventually(lambda: sum(descendants(zygote).values()) == TASKS)
        before_s = time.process_time()
        for _ in range(20):
            assert bounds.exceeded(runner.zygote_pid) is None
        assert (time.process_time() - before_s) / 20 < 0.2  # a tenth of a heartbeat


def test_a_cgroup_is_removed_with_its_launcher(grouped):
    folders = [Path(door).parent for door in grouped.doors]
    with closing(Launcher("spawn", [CORE], grouped)) as launcher:
        with launcher.spawn(["-P", "-c", "import time; time.sleep(600)"], b"{}") as runner:
            pid = until_begun(runner)
            for folder in folders:
                assert str(pid) in (folder / "cgroup.procs").read_text().split()
        assert all(folder.exists() for folder in folders)
    assert not [folder for folder in folders if folder.exists()]
