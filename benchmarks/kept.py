"""Jobs through a Dyno of their own, one after the other. What is finished is kept: the next call goes on there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.files import Files, Spec, here
from benchmarks.fleet import fleet
from dyno.cli import render
from dyno.client import Client, JobNotSucceeded, Refused
from dyno.devices.device import Device
from dyno.devices.environment import hardware_id
from dyno.models.result import Result

Stands = Callable[[Result], bool]
MISSING = "dataset_missing"  # the failure of a job whose data this machine hasn't


@dataclass(frozen=True)
class Answer:
    """What became of one spec. Without a result, `reason` is the code of the failure or refusal, `message` the text."""

    result: Result | None = None
    took_s: float | None = None  # submit to result, queue and compiling included
    reason: str | None = None
    message: str | None = None


class Kept:
    """One file per finished job in `folder`, by the name given to its spec."""

    def __init__(self, folder: Path) -> None:
        self._files = Files(folder)

    def get(self, name: str, spec: Spec) -> Answer | None:
        """What was kept under this name, if it answers this very spec and can be read."""
        found = self._files.get(name, spec)
        try:
            return None if found is None else Answer(Result.model_validate(found["result"]), found["took_s"])
        except (ValueError, KeyError):
            return None

    def put(self, name: str, spec: Spec, answer: Answer) -> None:
        """Whole or not at all, whenever this process is ended."""
        assert answer.result is not None
        self._files.put(name, spec, {"took_s": answer.took_s, "result": answer.result.model_dump(mode="json")})


def made_here(result: Result) -> bool:
    """Whether by today's method on hardware like this machine's. How an id is made may change: it is made anew."""
    there = hardware_id(Device.model_validate(result.device))
    return {"method_version": result.method_version, "hardware_id": there} == here()


def wherever_made(result: Result) -> bool:
    return True


def answers(
    specs: Mapping[str, Spec], kept: Kept, device: str = "cpu", stands: Stands = wherever_made
) -> Iterator[tuple[str, Answer]]:
    """Each spec's answer, in order: those kept as they are, the others from a Dyno that is started for the first one.

    `stands`: whether a kept result still does; else it is measured again.
    A job that fails or is refused stops nothing and is not kept: the next call tries it again.
    """
    with _client_when_needed(device) as client:
        for name, spec in specs.items():
            answer = _standing(kept, name, spec, stands)
            if answer is not None:
                print(f"{name}: kept", flush=True)
            else:
                print(f"{name}: {json.dumps(dict(spec))}", flush=True)
                answer = _answer(client(), spec)
                if answer.result is not None:
                    kept.put(name, spec, answer)
                print(f"{name}: {answer.message or 'done'}", flush=True)
            yield name, answer


def so_far(
    specs: Mapping[str, Spec], found: Mapping[str, Answer], kept: Kept, stands: Stands = wherever_made
) -> dict[str, Answer]:
    """Of each spec what was found now, or else what was kept before and still stands."""
    nothing = Answer(message="not run yet")
    return {name: found.get(name) or _standing(kept, name, spec, stands) or nothing for name, spec in specs.items()}


def _standing(kept: Kept, name: str, spec: Spec, stands: Stands) -> Answer | None:
    answer = kept.get(name, spec)
    return answer if answer is not None and answer.result is not None and stands(answer.result) else None


@contextmanager
def _client_when_needed(device: str) -> Iterator[Callable[[], Client]]:
    with ExitStack() as stack:
        started: list[Client] = []

        def client() -> Client:
            if not started:
                started.append(stack.enter_context(fleet(device)).client)
            return started[0]

        yield client


def _answer(client: Client, spec: Spec) -> Answer:
    began_s = time.monotonic()
    try:
        with render.live_progress(Console(soft_wrap=True)) as show:
            result = client.run(spec, show)
    except JobNotSucceeded as error:
        return Answer(reason=error.job.status_reason or str(error.job.status), message=error.detail)
    except Refused as error:
        return Answer(reason=str(error.problem.get("code")), message=error.detail)
    return Answer(result, time.monotonic() - began_s)
