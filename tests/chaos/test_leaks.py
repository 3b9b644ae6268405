"""A rig's processes and locks are found: by descent, by mark, at rest and in the end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos import leaks, processes
from chaos.rig import Rig
from chaos.violations import Violation, ViolationKind
from dyno.devices.locks import hold_locks
from dyno.processes import ManagedProcess
from tests.chaos.parts import SLEEPS, part, until
from tests.waiting import eventually

pytestmark = pytest.mark.verify  # of the tool that `make chaos` is


# A child in a session of its own, with a child of its own that outlives it.
FAMILY = """
import os, subprocess, sys, time
code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); input()"
subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdin=subprocess.PIPE)
time.sleep(600)
"""


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    env = os.environ | {processes.MARK: "tested"}
    parent = subprocess.Popen([sys.executable, "-c", FAMILY], env=env)
    eventually(lambda: len(processes.below(parent.pid)) == 2)
    yield parent
    parent.kill()
    parent.wait()
    for process in processes.marked("tested"):
        os.kill(process.pid, 9)
    eventually(lambda: not processes.marked("tested"))


def test_a_grandchild_is_found_below_and_by_its_mark_when_those_between_have_died(
    family: subprocess.Popen[bytes],
) -> None:
    below = processes.below(family.pid)
    eventually(lambda: {each.pid for each in processes.marked("tested")} == {family.pid, *(each.pid for each in below)})
    family.kill()
    eventually(lambda: len(processes.alive(below)) == 1)  # its parent heard the end of its input; nobody has told it
    assert {each.pid for each in processes.marked("tested")} == {each.pid for each in processes.alive(below)}


def test_a_process_of_another_rig_and_a_dead_one_are_not_taken_for_it(family: subprocess.Popen[bytes]) -> None:
    assert processes.marked("another") == set()
    [any_one, *_] = processes.below(family.pid)
    assert processes.alive([any_one]) == {any_one}
    assert processes.alive([any_one._replace(started="1")]) == set()  # the pid is another process' now


SLEEP = "import time; time.sleep(600)"
# A worker with a zygote that waits, by its name, and with another child: a runner that it has forgotten.
WORKER = f"""
import subprocess, sys
for name in ("workers.zygote", "a runner"):
    subprocess.Popen([sys.executable, "-c", {SLEEP!r}, name])
{SLEEPS}
"""


def of(rig: Rig, code: str) -> ManagedProcess:
    made = part(f"exec({code!r})")
    made.env = {**made.env, processes.MARK: rig.name}
    return made


def test_a_lock_that_somebody_holds_is_found(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("cpu-00000.lock", "cpu-00001.lock")]
    hold_locks(paths, 1).release()
    with hold_locks(paths[1:], 1):
        assert [str(path) for path in leaks.locked(tmp_path)] == paths[1:]
    assert list(leaks.locked(tmp_path)) == []


def test_at_rest_a_locked_device_a_runner_and_a_worker_that_is_not_idle_are_found_while_the_parts_are_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.leaks.GONE_S", 0.2)
    rig = Rig(tmp_path, "everysec")
    rig.server.start()
    rig.parts["worker-0"], rig.parts["api"] = of(rig, WORKER), of(rig, SLEEPS)
    stray = subprocess.Popen([sys.executable, "-c", SLEEP, "a stray"], env=os.environ | {processes.MARK: rig.name})

    async def run() -> tuple[list[Violation], list[Violation]]:
        for one in rig.parts.values():
            one.start()
        try:
            async with asyncio.timeout(60):
                await until(lambda: len(processes.marked(rig.name)) == 5)
                with hold_locks([str(rig.run_dir / "cpu-00000.lock")], 1):
                    found = await leaks.at_rest(rig, 0.0)
            assert all(one.process is not None and one.process.poll() is None for one in rig.parts.values())
        finally:
            await rig.close_parts()
            rig.close()
            left = await leaks.in_the_end(rig)
        return found, left

    try:
        found, left = asyncio.run(run())
    finally:
        stray.kill()
        stray.wait()
    orphans = sorted(each.what for each in found if each.kind is ViolationKind.ORPHAN)
    assert [what.split(" still runs")[0].split()[-1] for what in orphans] == ["runner", "stray"]
    assert Violation(ViolationKind.HELD, "cpu-00000.lock is locked at rest") in found
    assert sum(each.kind is ViolationKind.DIED for each in found) == 3
    assert {each.what.split()[-4] for each in left} == {"workers.zygote", "runner", "stray"}
