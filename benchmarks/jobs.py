"""Jobs over HTTP on a Dyno that the benchmark starts, one after the other. Finished jobs are kept and not run again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.files import Files, Spec, here
from dyno.bench.devices.environment import hardware_id
from dyno.cli.progress_bars import live_progress
from dyno.cli.up import run_stack, wait_ready
from dyno.client import Client, JobNotSucceeded, Refused
from dyno.models.device import Device
from dyno.models.result import Metric, Result

MISSING = "dataset_missing"  # the failure's reason if the data set isn't on this machine
Around = Callable[[str], AbstractContextManager[None]]  # by the name of a job


@dataclass(frozen=True)
class Answer:
    """The outcome of one spec. Without a result, `reason` is the code of the failure or refusal, `message` the text."""

    result: Result | None = None
    took_s: float | None = None  # submit to result, queue and compiling included
    reason: str | None = None
    message: str | None = None


@contextmanager
def own_dyno(device: str = "cpu") -> Iterator[Client]:
    """Start a separate Dyno (server, API and one worker as real processes) and yield a client of it."""
    with run_stack(port=0, data_dir=None, devices=[device], say=print) as (stack, url), Client(url) as client:
        wait_ready(stack, client, want_devices=1)
        yield client


def metric_named(result: Result, name: str) -> Metric:
    """Raises KeyError for a metric that the result lacks."""
    return {metric.name: metric for metric in result.metrics}[name]


def headline(result: Result) -> Metric:
    """The time of one sample if the result has it, else the workload's first metric."""
    return next((metric for metric in result.metrics if metric.name == "time_per_sample"), result.metrics[0])


def made_here(result: Result) -> bool:
    """Whether it was measured by today's method on this hardware. The id is computed anew, as its format may change."""
    there = hardware_id(Device.model_validate(result.device))
    return {"method_version": result.method_version, "hardware_id": there} == here()


class KeptJobs:
    """One file per finished job in `folder`, by the name of its spec. Results that aren't `valid` are ignored."""

    def __init__(self, folder: Path, valid: Callable[[Result], bool] = lambda result: True) -> None:
        self._files, self._valid = Files(folder), valid

    def get(self, name: str, spec: Spec) -> Answer | None:
        found = self._files.get(name, spec)
        try:
            answer = None if found is None else Answer(Result.model_validate(found["result"]), found["took_s"])
        except (ValueError, KeyError):
            return None
        return answer if answer and answer.result and self._valid(answer.result) else None

    def answers(
        self, specs: Mapping[str, Spec], device: str = "cpu", around: Around = lambda name: nullcontext()
    ) -> Iterator[tuple[str, Answer]]:
        """The answers in the order of `specs`. A Dyno starts for the first answer that isn't kept.

        Each job runs inside `around(name)`. A job that fails or is refused isn't kept: the next call tries it again.
        """
        with ExitStack() as stack:
            client: Client | None = None
            for name, spec in specs.items():
                answer = self.get(name, spec)
                print(f"{name}: {'kept' if answer else json.dumps(dict(spec))}", flush=True)
                if answer is None:
                    client = client or stack.enter_context(own_dyno(device))
                    with around(name):
                        answer = _run(client, spec)
                    if answer.result is not None:
                        kept = {"took_s": answer.took_s, "result": answer.result.model_dump(mode="json")}
                        self._files.put(name, spec, kept)
                    print(f"{name}: {answer.message or 'done'}", flush=True)
                yield name, answer

    def so_far(self, specs: Mapping[str, Spec], found: Mapping[str, Answer]) -> dict[str, Answer]:
        """For each spec: the answer in `found`, else the kept one."""
        nothing = Answer(message="not run yet")
        return {name: found.get(name) or self.get(name, spec) or nothing for name, spec in specs.items()}


def run_all(
    specs: Mapping[str, Spec],
    kept: KeptJobs,
    publish: Callable[[dict[str, Answer]], None],
    around: Around = lambda name: nullcontext(),
) -> None:
    """Run all jobs, then call `publish` with the answers so far, also after Ctrl-C."""
    found: dict[str, Answer] = {}
    try:
        found.update(kept.answers(specs, around=around))
    finally:
        publish(found)


def _run(client: Client, spec: Spec) -> Answer:
    began_s = time.monotonic()
    try:
        with live_progress(Console(soft_wrap=True)) as show:
            result = client.run(spec, show)
    except JobNotSucceeded as error:
        return Answer(reason=error.job.status_reason or str(error.job.status), message=error.detail)
    except Refused as error:
        return Answer(reason=str(error.problem.get("code")), message=error.detail)
    return Answer(result, time.monotonic() - began_s)
