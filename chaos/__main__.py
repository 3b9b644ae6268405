"""The command `python -m chaos [--seed N] [--minutes 10] [--jobs N]`.

Exit code: 0 if all promises held, 1 if one was violated, 3 if the run itself failed, 130 after a signal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from chaos import report
from chaos.plan import MOST_CORES, MOST_JOBS, job_count
from chaos.rig import say
from chaos.run import RunConfig, RunRecord, run
from dyno.processes import STOP_SIGNALS

SHORT = Path("build") / "chaos"  # results of runs that are too short to be recorded
HELD, VIOLATED, BROKE, SIGNALED = 0, 1, 3, 130  # 2 is argparse's
FULL_MINUTES = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="of faults and jobs; random by default")
    parser.add_argument("--minutes", type=float, default=FULL_MINUTES)
    parser.add_argument("--jobs", type=int, help=f"at most {MOST_JOBS}; by default as many as fit minutes and cores")
    parser.add_argument("--durability", choices=["everysec", "always"], default="everysec", help="of Redis' file")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds without a job that ends")
    given = parser.parse_args()
    jobs = job_count(given.minutes, len(os.sched_getaffinity(0))) if given.jobs is None else given.jobs
    if not 0 < jobs <= MOST_JOBS or given.minutes <= 0:
        parser.error(f"--jobs is 1 to {MOST_JOBS}, --minutes above 0")
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    config = RunConfig(seed, given.minutes, jobs, given.durability, given.patience)
    say(f"seed {seed}, {config.minutes:g} minutes, {config.jobs} jobs, AOF {config.durability}")
    folder = Path(tempfile.mkdtemp(prefix="dyno-chaos-"))
    try:
        code = _report(asyncio.run(_run_until_signal(config, folder)))
    except asyncio.CancelledError:
        say("ended by a signal; the results are deleted")
        code = SIGNALED
    except Exception:  # noqa: BLE001 - an error of the run must not look like a violation
        traceback.print_exc()
        say(f"seed {seed}: the run itself failed, so it proves nothing")
        code = BROKE
    if code in (VIOLATED, BROKE):
        say(f"the run's files are in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return code


async def _run_until_signal(config: RunConfig, folder: Path) -> RunRecord:
    """The first signal stops the run cleanly, and further ones are ignored."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None

    def end() -> None:
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, lambda: None)
        task.cancel()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, end)
    return await run(config, folder)


def _report(record: RunRecord) -> int:
    found, config = report.summary(record), record.config
    is_full = config.minutes >= FULL_MINUTES and config.jobs >= job_count(FULL_MINUTES, MOST_CORES)
    report.keep(config.seed, found, report.RECORDED if is_full else SHORT)
    if is_full:
        report.publish()
    print(json.dumps(found, indent=1))
    count = report.violation_count(found)
    say(f"seed {config.seed}: {f'{count} violations' if count else 'every accepted job ended exactly once'}")
    return VIOLATED if count else HELD


if __name__ == "__main__":
    sys.exit(main())
