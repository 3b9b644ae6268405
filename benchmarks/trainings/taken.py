"""What was measured of a workload: the settings in one process, pairs in several. Each process' answer is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.files import Files, Spec
from benchmarks.pairs import printed
from benchmarks.report import machine
from benchmarks.trainings.setups import Setup

PROCESSES, PAIRS_EACH = 6, 3
SLOW_MODE = 1.3  # fit's epochs were seen in two modes, 180 and 310 us a sample: above this share of the fastest is slow

Answer = dict[str, Any]
Pair = tuple[float, float]  # Dyno, fit: seconds per sample


@dataclass(frozen=True)
class Taken:
    """`choices`: see `choices.py`; None before it has run. `runs`: what `side_by_side.py` answered, by process."""

    choices: Answer | None = None
    runs: list[Answer] = field(default_factory=list)

    @property
    def pairs(self) -> list[list[Pair]]:
        """By process, without those whose fit was in its slow mode."""
        fastest = min((time_s for run in self.runs for time_s in run["fit"]), default=0.0)
        every = [list(zip(run["dyno"], run["fit"], strict=True)) for run in self.runs]
        return [[pair for pair in run if pair[1] <= SLOW_MODE * fastest] for run in every]

    @property
    def left_out(self) -> int:
        """How many pairs."""
        return sum(len(run["fit"]) for run in self.runs) - sum(map(len, self.pairs))


def in_a_process(module: str, *arguments: str) -> Answer:
    """What that module of this folder prints."""
    answer: Answer = json.loads(printed(f"trainings.{module}", *arguments))
    return answer


def take(workload: str, setup: Setup, files: Files, ask: Callable[..., Answer] = in_a_process) -> None:
    """Ask for what isn't kept yet, one process after the other."""

    def once(name: str, spec: Spec, module: str, *arguments: str) -> Answer:
        found = files.get(name, spec)
        if found is None:
            print(f"{name}: {module} {' '.join(arguments)}", flush=True)
            found = {"answer": ask(module, *arguments)}
            files.put(name, spec, found)
        answer: Answer = found["answer"]
        return answer

    choices = once(f"{workload}.choices", _spec(setup), "choices", workload)
    settings = [str(int(choices[side]["chosen"])) for side in ("dyno", "fit")]
    for number in range(PROCESSES):
        spec = _spec(setup, choices)
        once(f"{workload}.{number}", spec, "side_by_side", workload, str(PAIRS_EACH), *settings)


def kept(workload: str, setup: Setup, files: Files) -> Taken:
    """What there is of it so far."""
    first = files.get(f"{workload}.choices", _spec(setup))
    if first is None:
        return Taken()
    spec = _spec(setup, first["answer"])
    found = [files.get(f"{workload}.{number}", spec) for number in range(PROCESSES)]
    return Taken(first["answer"], [each["answer"] for each in found if each is not None])


def _spec(setup: Setup, choices: Answer | None = None) -> dict[str, Any]:
    """What an answer answers: of another size or setting, or on another machine, it is measured again."""
    spec = {"params": dict(setup.params), "steps": setup.steps, "machine": machine()}
    if choices is None:
        return spec
    chosen = {side: choices[side]["chosen"] for side in ("dyno", "fit")}
    return spec | {"pairs": PAIRS_EACH, "threads": "bound", "jit_compile": chosen}
