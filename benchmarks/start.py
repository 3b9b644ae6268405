"""Submit to first operation, each job in a fresh process, on an idle worker; beside the naive way, interleaved."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from pydantic import JsonValue

from benchmarks.fleet import Fleet, command_line, descendants, fleet, proportional_set_size_bytes
from benchmarks.pairs import spread
from benchmarks.report import write
from dyno.store.embedded import EmbeddedServer

JOBS = 50
NAIVE_EVERY = 2  # the naive way takes 20 times as long: 25 beside 50
REST_S = 0.5  # between jobs, so that both workers are idle, the naive one with its next child ready
TINY: dict[str, JsonValue] = {
    "workload": "matmul",
    "params": {"n": 64, "repeats": 1},
    "device": "cpu",
    "measure": {"processes": 1, "min_samples": 1, "min_s": 0},
}


def main() -> None:
    ours: list[float] = []
    naive: list[float] = []
    with fleet() as dyno, naive_worker() as submit_naive:
        submit_naive()
        first_op_s(dyno)
        before = _state(dyno)
        for index in range(JOBS):
            time.sleep(REST_S)
            ours.append(first_op_s(dyno))
            if index % NAIVE_EVERY == 0:
                time.sleep(REST_S)
                naive.append(submit_naive())
        time.sleep(REST_S)
        after = _state(dyno)
    write("start", "From submit to the first operation, in a fresh process", _lines(ours, naive, before, after))


def first_op_s(dyno: Fleet) -> float:
    submitted_s = time.time()
    result = dyno.client.run(TINY)
    first = result.runs[0].first_op_at_s
    assert first is not None
    return first - submitted_s


@contextmanager
def naive_worker() -> Iterator[Callable[[], float]]:
    with EmbeddedServer(None) as server:
        env = {**os.environ, "NAIVE_REDIS_URL": server.url}
        os.environ["NAIVE_REDIS_URL"] = server.url
        from benchmarks.naive import first_op

        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "benchmarks.naive",
            "worker",
            "--pool",
            "prefork",
            "-l",
            "ERROR",
        ]
        worker = subprocess.Popen(command, env=env)

        def submit() -> float:
            submitted_s = time.time()
            finished_s: float = first_op.delay().get(timeout=60, interval=0.01)
            return finished_s - submitted_s

        try:
            yield submit
        finally:
            worker.terminate()
            worker.wait(30)


def _state(dyno: Fleet) -> tuple[int, int]:
    """(processes below the worker, PSS of its zygote in bytes)"""
    below = descendants(dyno.worker_pid)
    zygote = next(pid for pid in below if "workers.zygote" in command_line(pid))
    return len(below), proportional_set_size_bytes(zygote)


def _lines(ours: list[float], naive: list[float], before: tuple[int, int], after: tuple[int, int]) -> list[str]:
    return [
        "HTTP POST of a tiny `matmul` to the end of the runner's first TensorFlow operation, every job in a process of",
        "its own, on an idle worker; interleaved with Celery's `worker_max_tasks_per_child=1` whose task imports",
        "TensorFlow (submitted by `.delay()`, so without HTTP). Bytecode compiled in both, milliseconds:",
        "",
        f"- Dyno: {spread(ours, 1e3)}",
        f"- naive: {spread(naive, 1e3)}",
        f"- ratio of medians: {median(naive) / median(ours):.1f}",
        "",
        f"Processes below the worker before and after {len(ours)} jobs: {before[0]} and {after[0]}. "
        f"Zygote's PSS: {before[1] / 2**20:.1f} and {after[1] / 2**20:.1f} MiB.",
    ]
