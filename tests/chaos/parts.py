"""Parts for a rig that runs no Dyno: they sleep."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from chaos import processes
from chaos.rig import Rig
from dyno.processes import ManagedProcess

SLEEPS = "time.sleep(600)"


def part(code: str = SLEEPS, says_to: int | None = None) -> ManagedProcess:
    """Runs `code`, with the time module at hand."""
    env = {name: value for name, value in os.environ.items() if name != processes.MARK}
    return ManagedProcess("part", "timeit", ["-n1", "-r1", "-s", "import time", code], env, says_to=says_to)


def pid_of(rig: Rig, name: str) -> int:
    process = rig.parts[name].process
    assert process is not None
    return process.pid


def state_of(rig: Rig, name: str) -> str:
    """As proc(5) has it: T is stopped."""
    return Path(f"/proc/{pid_of(rig, name)}/stat").read_text().rpartition(")")[2].split()[0]


async def until(condition: Callable[[], object]) -> None:
    """`tests.waiting.eventually` for an event loop; its deadline is the test's."""
    while not condition():
        await asyncio.sleep(0.01)
