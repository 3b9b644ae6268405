"""The command `python -m chaos [--seed N] [--minutes 10] [--jobs 1250]`.

Exit code: 0 if all promises held, 1 if one was violated, 3 if the run itself failed, 130 after a signal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from chaos import summary
from chaos.rig import say
from chaos.run import Asked, Shaken, run
from chaos.streams import MOST_JOBS
from dyno.processes import STOP_SIGNALS

SHORT = Path("build") / "chaos"  # results of runs that are too short to be recorded
HELD, VIOLATED, BROKE, SIGNALED = 0, 1, 3, 130  # 2 is argparse's
FULL_MINUTES, FULL_JOBS = 10.0, 1250  # of which five in six are tiny


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="of faults and jobs; drawn, and printed, without it")
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES)
    parser.add_argument("--jobs", type=int, default=FULL_JOBS, help=f"at most {MOST_JOBS}")
    parser.add_argument("--durability", choices=["everysec", "always"], default="everysec", help="of Redis' file")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for the last jobs to end")
    given = parser.parse_args()
    if not 0 < given.jobs <= MOST_JOBS or given.minutes <= 0:
        parser.error(f"--jobs is 1 to {MOST_JOBS}, --minutes above 0")
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    asked = Asked(seed, given.minutes, given.jobs, given.durability, given.patience)
    say(f"seed {seed}, {asked.minutes:g} minutes, {asked.jobs} jobs, AOF {asked.durability}")
    folder = Path(tempfile.mkdtemp(prefix="dyno-chaos-"))
    try:
        shaken = asyncio.run(_until_ended(asked, folder))
        return _told(shaken, folder)
    except asyncio.CancelledError:
        say("ended by a signal; nothing is kept")
        shutil.rmtree(folder, ignore_errors=True)
        return SIGNALED
    except Exception:  # noqa: BLE001 - an error of the run must not look like a violation
        traceback.print_exc()
        say(f"seed {seed}: the run itself failed, so it proves nothing; its files are in {folder}")
        return BROKE


async def _until_ended(asked: Asked, folder: Path) -> Shaken:
    """Run until the end; the first signal stops the run cleanly, and further ones are ignored."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def end() -> None:
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, lambda: None)
        task.cancel()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, end)
    return await run(asked, folder)


def _told(shaken: Shaken, folder: Path) -> int:
    found, seed = summary.summary(shaken), shaken.asked.seed
    counts = shaken.asked.minutes >= FULL_MINUTES and shaken.asked.jobs >= FULL_JOBS
    summary.keep(seed, found, summary.RECORDED if counts else SHORT)
    if counts:
        summary.publish()
    print(json.dumps(found, indent=1))
    violated = summary.violated(found)
    if violated:
        say(f"seed {seed}: {violated} violations; the run's files are in {folder}")
        return VIOLATED
    say(f"seed {seed}: every 202 ended exactly once")
    shutil.rmtree(folder, ignore_errors=True)
    return HELD


if __name__ == "__main__":
    sys.exit(main())
