"""`python -m benchmarks.load.abuser NAME PORT COUNT PER_S`: abuse the API there until standard input ends.

It gets what nobody else wants of the cores: other abusers have machines of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys

import uvloop

from benchmarks.load.abuses import ABUSES
from benchmarks.load.callers import Noted
from benchmarks.load.rig import raise_file_limit


async def main(name: str, port: int, count: int, per_s: float) -> None:
    noted = Noted()
    raise_file_limit()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    print("begun", flush=True)
    abuse = asyncio.create_task(_run(name, port, count, per_s, noted))
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await asyncio.wait((abuse, ended), return_when=asyncio.FIRST_COMPLETED)
    failed = abuse.done()
    abuse.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await abuse
    assert not failed
    print(json.dumps({"statuses": noted.statuses, "cut": noted.cut, "broken": noted.broken}))


async def _run(name: str, port: int, count: int, per_s: float, noted: Noted) -> None:
    await ABUSES[name].run(port, count, per_s, noted)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
