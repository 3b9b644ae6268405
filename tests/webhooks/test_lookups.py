"""Name lookups with a name server that hangs: a real function that blocks its thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from threading import Event

import pytest

from dyno.webhook_delivery import Lookups
from tests.waiting import eventually

WITHIN_S = 60.0
A_WHILE_S = 0.1

ENDS_WITH_ONE_THAT_HANGS = """
import asyncio, threading
from dyno.webhook_delivery import Lookups

async def main():
    try:
        async with asyncio.timeout(0.05):
            await Lookups(lambda host, port: threading.Event().wait()).find("hangs", 1, "")
    except TimeoutError:
        print("over")

asyncio.run(main())
"""


class NameServer:
    """Lookups of names that begin with "hangs" block until `answers` is set; others return the port."""

    def __init__(self):
        self.asked: list[str] = []
        self.answers = Event()

    def look_up(self, host, port):
        self.asked.append(host)
        if host.startswith("hangs"):
            self.answers.wait(WITHIN_S)
        if host == "none":
            raise OSError("no such name")
        return [str(port)]


@pytest.fixture
def name_server():
    server = NameServer()
    yield server
    server.answers.set()


async def find(lookups, host, owner, within_s=WITHIN_S):
    async with asyncio.timeout(within_s):
        return list(await lookups.find(host, 7, owner))


@pytest.mark.anyio
async def test_a_lookup_returns_what_the_system_returns(name_server):
    lookups = Lookups(name_server.look_up)
    assert await find(lookups, "quick", "") == ["7"]
    with pytest.raises(OSError, match="no such name"):
        await find(lookups, "none", "")


@pytest.mark.anyio
@pytest.mark.parametrize(("owner", "bounds"), [("greedy", (8, 2)), ("", (2, 1))])
async def test_a_hanging_lookup_counts_until_it_ends(name_server, owner, bounds):
    lookups = Lookups(name_server.look_up, *bounds)
    for number in range(3):
        with pytest.raises(TimeoutError):
            await find(lookups, f"hangs-{number}", owner, A_WHILE_S)
    eventually(lambda: len(name_server.asked) == 2)
    if owner:
        assert await find(lookups, "quick", "other") == ["7"], "another owner's waits for it"
    with pytest.raises(TimeoutError):
        await find(lookups, "next", owner, A_WHILE_S)
    name_server.answers.set()
    assert await find(lookups, "next", owner) == ["7"]
    assert {"hangs-0", "hangs-1"} <= set(name_server.asked) <= {"hangs-0", "hangs-1", "quick", "next"}


def test_a_hanging_lookup_does_not_keep_the_process_alive():
    command = [sys.executable, "-c", ENDS_WITH_ONE_THAT_HANGS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
