"""`python -m benchmarks.load [--rounds 2] [--stretch 6] [--scale 1] [ABUSE …]`: what abuse costs ordinary callers.

Without a name all of them, and before them how many submits and polls one API bears, and how soon it tells events.

At full size five to six minutes; it then writes docs/results/load.md. A smaller one is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import uvloop

from benchmarks.load import page
from benchmarks.load.abuses import ABUSES
from benchmarks.load.fanout import READERS, Told, tell
from benchmarks.load.measured import Measured, measure
from benchmarks.load.rig import api
from benchmarks.load.steady import Steady, bear
from benchmarks.settings import checked

ROUNDS, STRETCH_S = 2, 6.0
STEADY_STRETCHES = 4
# All 10,000 that are opened are kept, and nobody is let go while they are looked at.
KEPT = {"MAX_CONNECTIONS": "10000", "HEAD_TIMEOUT_S": "600"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.load", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ABUSE", help=", ".join(ABUSES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--stretch", type=float, default=STRETCH_S, help="seconds of each, quiet and abused")
    parser.add_argument("--scale", type=float, default=1.0, help="of the full size of each abuse")
    given = parser.parse_args()
    names = given.names or list(ABUSES)
    if unknown := set(names) - ABUSES.keys():
        parser.error(f"no such abuse: {', '.join(sorted(unknown))}")
    ordinary = [] if given.names else page.ordinary(*uvloop.run(_ordinary(given.stretch, given.scale)))
    lines = page.lines(uvloop.run(_all(names, given.rounds, given.stretch, given.scale)), given.rounds, given.stretch)
    if given.scale == 1 and not given.names and given.rounds >= ROUNDS and given.stretch >= STRETCH_S:
        page.publish(lines + ordinary)
    else:
        print("\n".join(lines + ordinary))


async def _ordinary(stretch_s: float, scale: float) -> tuple[Steady, Told]:
    with api() as one:
        steady = await bear(one, STEADY_STRETCHES * stretch_s)
    with api() as one:
        return steady, await tell(one, 2 * stretch_s, round(READERS * scale))


async def _all(names: Iterable[str], rounds: int, stretch_s: float, scale: float) -> dict[str, Measured]:
    found = {}
    with api() as shipped:
        for name in names:
            found[name] = await measure(shipped, name, rounds, stretch_s, scale)
            assert shipped.lives, f"the API ended under {name}"
    if "idle" in names:
        with api(**KEPT) as roomy:
            found[page.ALL_KEPT] = await measure(roomy, "idle", rounds, stretch_s, scale)
            assert roomy.lives
    return found


if __name__ == "__main__":
    with checked():
        main()
