"""`python -m benchmarks.reproduce [--list] [--only NAME …] [--state FOLDER]`: hours in all, resumed at will.

The answers are kept beside the page, so that it can be written from them again. One of another machine shows there
until this one has its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kept import Answer, Kept, answers, so_far
from benchmarks.report import RESULTS, write
from benchmarks.reproduce.experiments import EXPERIMENTS
from benchmarks.reproduce.page import lines
from benchmarks.settings import checked
from dyno.devices.discovery import discover
from dyno.models.result import Result
from dyno.settings import Settings

STATE = RESULTS / "recorded" / "reproduction"
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
            answer = kept.get(name, spec)
            done = answer is not None and answer.result is not None and of_this_machine(answer.result)
            print(f"{'done' if done else 'to do'}  {name}  {EXPERIMENTS[name].what}")
        return
    found: dict[str, Answer] = {}
    try:
        found.update(answers({name: specs[name] for name in asked.only or specs}, kept, stands=of_this_machine))
    finally:  # also when it is ended by Ctrl-C: the page then says what is missing
        write("reproduction", TITLE, lines(EXPERIMENTS, so_far(specs, found, kept)), "Where this page was written")


def of_this_machine(result: Result) -> bool:
    device = discover("cpu", Settings())
    return (result.device["model"], len(result.device["cores"])) == (device.model, len(device.cores))


if __name__ == "__main__":
    with checked():
        main()
