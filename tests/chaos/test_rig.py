"""A rig's parts are restarted, left down or ended as they should be. Its leftovers are found: processes and locks."""

import asyncio
import os
import signal
import subprocess
import sys

import psutil

from chaos import leaks
from chaos.checks import Violation, ViolationKind
from chaos.faults import FaultInjector
from chaos.plan import Fault, FaultKind
from chaos.rig import MARK
from dyno.bench.devices.locks import hold_locks
from tests.chaos.parts import SLEEPS, looked_up, part, process_of, rig_of, until, with_parts
from tests.waiting import eventually

DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEPS}"
SLEEP = "import time; time.sleep(600)"
# A worker with a zygote that waits, by its name, and with another child: a runner that it has forgotten.
WORKER = f"""
import subprocess, sys
for name in ("dyno.bench.runner.zygote", "a runner"):
    subprocess.Popen([sys.executable, "-c", {SLEEP!r}, name])
{SLEEPS}
"""
LEAVES_A_CHILD = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}], start_new_session=True); {SLEEPS}"
)


def test_a_part_that_faults_end_stays_down_until_it_is_started_and_is_started_once(tmp_path):
    async def run(rig):
        first = process_of(rig, "one")
        rig.end("one", signal.SIGKILL)
        rig.end("one", signal.SIGTERM)
        process_of(rig, "other").kill()
        await until(lambda: len(rig.died) == 1)
        assert process_of(rig, "one") == first
        await rig.start("one")
        started = process_of(rig, "one")
        await rig.start("one")
        assert first != started == process_of(rig, "one")

    rig = rig_of(tmp_path, "one", "other")
    with_parts(rig, run)
    assert rig.died == [f"other ended by itself with exit code {-signal.SIGKILL}"]
    assert rig.stuck == []


def test_a_part_that_a_fault_starts_while_it_is_about_to_be_restarted_runs_once(tmp_path):
    async def run(rig):
        rig.send("one", signal.SIGKILL)
        await until(lambda: rig.died)
        rig.end("one", signal.SIGKILL)
        await rig.start("one")
        started, other = process_of(rig, "one"), process_of(rig, "other")
        rig.send("other", signal.SIGKILL)
        await until(lambda: process_of(rig, "other") != other)  # by then the rig has looked at the first one
        assert process_of(rig, "one") == started

    rig = rig_of(tmp_path, "one", "other")
    with_parts(rig, run)
    assert [text.split()[0] for text in rig.died] == ["one", "other"]


def test_a_stopped_part_is_ended_and_one_that_ignores_term_is_killed_and_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("chaos.rig._STOP_S", 1.0)
    output, rig = tmp_path / "output", rig_of(tmp_path, "stopped")

    async def run(rig):
        rig.send("stopped", signal.SIGSTOP)
        await until(lambda: looked_up(rig, "stopped").status() == psutil.STATUS_STOPPED)
        await until(lambda: "deaf" in output.read_text())

    with output.open("w") as file:
        rig.parts["deaf"] = part(rig, DEAF, file.fileno())
        with_parts(rig, run)
    assert [text.split()[0] for text in rig.stuck] == ["deaf"]


def test_a_process_left_behind_by_a_killed_part_is_found_though_its_parent_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("chaos.leaks.GONE_S", 0.5)
    rig = rig_of(tmp_path)
    rig.parts["api"] = part(rig, LEAVES_A_CHILD)

    async def run(rig):
        faults = FaultInjector(rig)
        await until(lambda: looked_up(rig, "api").children())
        children = looked_up(rig, "api").children()
        await faults.inject_all([Fault(0.0, FaultKind.KILL, "api", 0.0)], 0.0)
        return faults, children

    faults, children = with_parts(rig, run)
    assert [text.partition(" outlived ")[2] for text in faults.survivors] == ["api"]
    assert leaks.alive(children) == set(children) <= leaks.marked(rig.name)
    assert leaks.marked("another") == set()
    left = asyncio.run(leaks.in_the_end(rig))
    assert [what.endswith("outlived the rig") for _, what in left] == [True, True]  # that of its successor, too
    eventually(lambda: not leaks.marked(rig.name) and not leaks.alive(children))


def test_at_rest_a_locked_device_a_runner_and_busy_workers_are_found_while_the_parts_are_up(tmp_path, monkeypatch):
    monkeypatch.setattr("chaos.leaks.GONE_S", 0.2)
    rig = rig_of(tmp_path, "api")
    rig.server.start()
    rig.parts["worker-0"] = part(rig, f"exec({WORKER!r})")

    async def run(rig):
        await until(lambda: len(leaks.marked(rig.name)) == 5)
        hold_locks([str(rig.run_dir / "cpu-00001.lock")], 1).release()
        with hold_locks([str(rig.run_dir / "cpu-00000.lock")], 1):
            return await leaks.at_rest(rig, 0.0)

    with subprocess.Popen([sys.executable, "-c", SLEEP, "a stray"], env=os.environ | {MARK: rig.name}) as stray:
        found = with_parts(rig, run)
        left = asyncio.run(leaks.in_the_end(rig))
        stray.kill()
    orphans = sorted(what for kind, what in found if kind is ViolationKind.ORPHAN)
    assert [what.split(" still runs")[0].split()[-1] for what in orphans] == ["runner", "stray"]
    held = [violation for violation in found if violation.kind is ViolationKind.HELD]
    assert held == [Violation(ViolationKind.HELD, "cpu-00000.lock is locked at rest")]
    assert sum(kind is ViolationKind.DIED for kind, _ in found) == 3
    assert {what.split()[-4] for _, what in left} == {"dyno.bench.runner.zygote", "runner", "stray"}
