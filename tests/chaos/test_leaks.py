"""A rig's processes and locks are found: by descent, by mark, at rest and in the end."""

import asyncio
import os
import subprocess
import sys

from chaos import leaks
from chaos.checks import Violation, ViolationKind
from chaos.faults import FaultInjector
from chaos.plan import Fault, FaultKind
from chaos.rig import MARK
from dyno.bench.devices.locks import hold_locks
from tests.chaos.parts import SLEEPS, looked_up, part, rig_of, until, with_parts
from tests.waiting import eventually

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
    assert [each.partition(" outlived ")[2] for each in faults.survivors] == ["api"]
    assert leaks.alive(children) == set(children) <= leaks.marked(rig.name)
    assert leaks.marked("another") == set()
    left = asyncio.run(leaks.in_the_end(rig))
    assert [each.what.endswith("outlived the rig") for each in left] == [True, True]  # that of its successor, too
    eventually(lambda: not leaks.marked(rig.name) and not leaks.alive(children))


def test_a_lock_that_a_process_holds_is_found(tmp_path):
    paths = [str(tmp_path / name) for name in ("cpu-00000.lock", "cpu-00001.lock")]
    hold_locks(paths, 1).release()
    with hold_locks(paths[1:], 1):
        assert [str(path) for path in leaks.locked(tmp_path)] == paths[1:]
    assert list(leaks.locked(tmp_path)) == []


def test_at_rest_a_locked_device_a_runner_and_workers_that_are_not_idle_are_found_while_the_parts_are_up(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("chaos.leaks.GONE_S", 0.2)
    rig = rig_of(tmp_path, "api")
    rig.server.start()
    rig.parts["worker-0"] = part(rig, f"exec({WORKER!r})")

    async def run(rig):
        await until(lambda: len(leaks.marked(rig.name)) == 5)
        with hold_locks([str(rig.run_dir / "cpu-00000.lock")], 1):
            return await leaks.at_rest(rig, 0.0)

    with subprocess.Popen([sys.executable, "-c", SLEEP, "a stray"], env=os.environ | {MARK: rig.name}) as stray:
        found = with_parts(rig, run)
        left = asyncio.run(leaks.in_the_end(rig))
        stray.kill()
    orphans = sorted(each.what for each in found if each.kind is ViolationKind.ORPHAN)
    assert [what.split(" still runs")[0].split()[-1] for what in orphans] == ["runner", "stray"]
    assert Violation(ViolationKind.HELD, "cpu-00000.lock is locked at rest") in found
    assert sum(each.kind is ViolationKind.DIED for each in found) == 3
    assert {each.what.split()[-4] for each in left} == {"dyno.bench.runner.zygote", "runner", "stray"}
