"""`python -m benchmarks.reproduce [--list] [--only NAME …] [--state FOLDER]`: hours in all, resumed at will."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kept import Answer, Kept, answers, so_far
from benchmarks.report import write
from benchmarks.reproduce.experiments import EXPERIMENTS
from benchmarks.reproduce.page import lines

STATE = Path("build") / "reproduce"
TITLE = "What the reference articles measured, measured here"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.reproduce", description="Run the articles' experiments.")
    parser.add_argument("--list", action="store_true", help="say which there are, and which are done")
    parser.add_argument("--only", action="append", choices=list(EXPERIMENTS), help="only this one; may be repeated")
    parser.add_argument("--state", type=Path, default=STATE, help="where finished experiments are kept")
    asked = parser.parse_args(arguments)
    kept, specs = Kept(asked.state), {name: experiment.spec for name, experiment in EXPERIMENTS.items()}
    if asked.list:
        for name, spec in specs.items():
            print(f"{'done' if kept.get(name, spec) else 'to do'}  {name}  {EXPERIMENTS[name].what}")
        return
    found: dict[str, Answer] = {}
    try:
        found.update(answers({name: specs[name] for name in asked.only or specs}, kept))
    finally:  # also when it is ended by Ctrl-C: the page then says what is missing
        write("reproduction", TITLE, lines(EXPERIMENTS, so_far(specs, found, kept)))


if __name__ == "__main__":
    main()
