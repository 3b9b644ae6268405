"""What is left over is found while every part is up, and once more when all has been ended."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import kin, remains
from chaos.breach import Breach, Violation
from chaos.rig import Rig
from dyno.devices.locks import hold_locks
from dyno.processes import ManagedProcess
from tests.chaos.parts import SLEEPS, part, until

pytestmark = pytest.mark.verify  # of the tool that `make chaos` is

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
    made.env = {**made.env, kin.MARK: rig.name}
    return made


def test_a_lock_that_somebody_holds_is_found(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("cpu-00000.lock", "cpu-00001.lock")]
    hold_locks(paths, 1).release()
    with hold_locks(paths[1:], 1):
        assert [str(path) for path in remains.locked(tmp_path)] == paths[1:]
    assert list(remains.locked(tmp_path)) == []


def test_at_rest_a_locked_device_a_runner_and_a_worker_that_is_not_idle_are_found_while_the_parts_are_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.remains.GONE_S", 0.2)
    rig = Rig(tmp_path, "everysec")
    rig.parts["worker-0"], rig.parts["api"] = of(rig, WORKER), of(rig, SLEEPS)
    stray = subprocess.Popen([sys.executable, "-c", SLEEP, "a stray"], env=os.environ | {kin.MARK: rig.name})

    async def run() -> tuple[list[Violation], list[Violation]]:
        for one in rig.parts.values():
            one.start()
        try:
            async with asyncio.timeout(60):
                await until(lambda: len(kin.marked(rig.name)) == 5)
                with hold_locks([str(rig.run_dir / "cpu-00000.lock")], 1):
                    found = await remains.at_rest(rig, 0.0)
            assert all(one.process is not None and one.process.poll() is None for one in rig.parts.values())
        finally:
            await rig.close_parts()
            rig.close()
            left = await remains.in_the_end(rig)
        return found, left

    try:
        found, left = asyncio.run(run())
    finally:
        stray.kill()
        stray.wait()
    orphans = sorted(each.what for each in found if each.breach is Breach.ORPHAN)
    assert [what.split(" was left over")[0].split()[-1] for what in orphans] == ["runner", "stray"]
    assert Violation(Breach.HELD, "cpu-00000.lock was locked at rest") in found
    assert sum(each.breach is Breach.DIED for each in found) == 3
    assert {each.what.split()[-4] for each in left} == {"workers.zygote", "runner", "stray"}
