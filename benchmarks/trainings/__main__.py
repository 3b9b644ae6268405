"""`python -m benchmarks.trainings [--only WORKLOAD …] [--state FOLDER]`: minutes a workload, resumed at will."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.files import Files
from benchmarks.report import RESULTS, write
from benchmarks.settings import checked
from benchmarks.trainings.page import lines
from benchmarks.trainings.setups import SETUPS
from benchmarks.trainings.taken import kept, take

STATE = RESULTS / "recorded" / "trainings"
TITLE = "Time per sample of every training against model.fit"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.trainings", description="Dyno's steps against model.fit.")
    parser.add_argument("--only", action="append", choices=list(SETUPS), help="only this one; may be repeated")
    parser.add_argument("--state", type=Path, default=STATE, help="where the answers of finished processes are kept")
    asked = parser.parse_args(arguments)
    files = Files(asked.state)
    try:
        for workload in asked.only or SETUPS:
            take(workload, SETUPS[workload], files)
    finally:  # also when it is ended by Ctrl-C: the page then says what is missing
        write("trainings", TITLE, lines(SETUPS, {name: kept(name, setup, files) for name, setup in SETUPS.items()}))


if __name__ == "__main__":
    with checked():
        main()
