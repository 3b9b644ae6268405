"""Time from submit to first operation, each job in a fresh process on an idle worker, in turns with the naive way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from benchmarks.files import Spec
from benchmarks.jobs import own_dyno
from benchmarks.pairs import spread
from benchmarks.report import prose, write
from dyno.client import Client
from dyno.store.embedded import EmbeddedServer

JOBS = 50
NAIVE_EVERY = 2  # the naive way takes 20 times as long, so it runs 25 times, not 50
REST_S = 0.5  # between jobs, so that both workers are idle, the naive one with its next child ready
TINY: Spec = {
    "workload": "matmul",
    "params": {"n": 64, "repeats": 1},
    "device": "cpu",
    "measure": {"processes": 1, "min_samples": 1, "min_s": 0},
}


def main(jobs: int = JOBS) -> None:
    ours, naive = list[float](), list[float]()
    with own_dyno() as client, naive_worker() as submit_naive:
        submit_naive()
        first_op_s(client)
        for index in range(jobs):
            time.sleep(REST_S)
            ours.append(first_op_s(client))
            if index % NAIVE_EVERY == 0:
                time.sleep(REST_S)
                naive.append(submit_naive())
    text = """The time from the HTTP POST of a tiny `matmul` to the end of the runner's first TensorFlow operation.
        Every job has a process of its own, on an idle worker. *Naive*, in turns with it: Celery with
        `worker_max_tasks_per_child=1`, whose task imports TensorFlow (submitted by `.delay()`, so without HTTP). Both
        have compiled bytecode. Milliseconds:"""
    figures = [f"- Dyno: {spread(ours, 1e3)}", f"- naive: {spread(naive, 1e3)}"]
    figures.append(f"- ratio of medians: {median(naive) / median(ours):.1f}")
    write("start", "From submit to the first operation, in a fresh process", [*prose(text), *figures])


def first_op_s(client: Client) -> float:
    submitted_s = time.time()
    first_s = client.run(TINY).runs[0].first_op_at_s
    assert first_s is not None
    return first_s - submitted_s


@contextmanager
def naive_worker() -> Iterator[Callable[[], float]]:
    """Yields a function that submits a task and returns its time to the first operation."""
    with EmbeddedServer(None) as server:
        os.environ["NAIVE_REDIS_URL"] = server.url
        from benchmarks.naive import first_op

        options = ["-A", "benchmarks.naive", "worker", "--pool", "prefork", "-l", "ERROR"]
        worker = subprocess.Popen([sys.executable, "-m", "celery", *options])

        def submit() -> float:
            submitted_s = time.time()
            finished_s: float = first_op.delay().get(timeout=60, interval=0.01)
            return finished_s - submitted_s

        try:
            yield submit
        finally:
            worker.terminate()
            worker.wait(30)
