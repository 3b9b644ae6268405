"""A rig of parts that run no Dyno: they sleep."""

import asyncio
import os
from typing import TypeVar

import psutil

from chaos.rig import MARK, Rig
from dyno.processes import ManagedProcess

T = TypeVar("T")
SLEEPS = "time.sleep(600)"


def part(rig, code=SLEEPS, says_to=None):
    """Runs `code`, with the time module at hand."""
    arguments = ["-n1", "-r1", "-s", "import time", code]
    return ManagedProcess("part", "timeit", arguments, os.environ | {MARK: rig.name}, says_to=says_to)


def with_parts(rig, run):
    """Start the rig's parts, call `run`, end them, and close the rig."""

    async def ran():
        for each in rig.parts.values():
            each.start()
        restarting = asyncio.create_task(rig.restart_dead_parts())
        try:
            async with asyncio.timeout(90):
                return await run(rig)
        finally:
            restarting.cancel()
            await rig.close_parts()
            rig.proxy.shut()
            rig.close()

    found = asyncio.run(ran())
    assert all(each.process is not None and each.process.poll() is not None for each in rig.parts.values())
    return found


def process_of(rig, name):
    """Compare by identity: restarted parts have other objects."""
    process = rig.parts[name].process
    assert process is not None
    return process


def looked_up(rig, name):
    return psutil.Process(process_of(rig, name).pid)


def socket_of(rig):
    return rig.server.url.removeprefix("unix://")


async def until(condition):
    """`tests.waiting.eventually` for an event loop; its deadline is the test's."""
    while not condition():
        await asyncio.sleep(0.01)


def rig_of(folder, *names):
    rig = Rig(folder, "everysec")
    rig.parts.update({name: part(rig) for name in names})
    return rig
