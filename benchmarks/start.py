"""Submit to first operation, each job in a fresh process, on an idle worker; beside the naive way, interleaved."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import psutil

from benchmarks.files import Spec
from benchmarks.jobs import Dyno, own_dyno
from benchmarks.pairs import spread
from benchmarks.report import prose, write
from dyno.store.embedded import EmbeddedServer

JOBS = 50
NAIVE_EVERY = 2  # the naive way takes 20 times as long: 25 beside 50
REST_S = 0.5  # between jobs, so that both workers are idle, the naive one with its next child ready
MEASURE: Spec = {"processes": 1, "min_samples": 1, "min_s": 0}
TINY: Spec = {"workload": "matmul", "params": {"n": 64, "repeats": 1}, "device": "cpu", "measure": dict(MEASURE)}


def main() -> None:
    ours: list[float] = []
    naive: list[float] = []
    with own_dyno() as dyno, naive_worker() as submit_naive:
        submit_naive()
        first_op_s(dyno)
        before = _worker_state(dyno)
        for index in range(JOBS):
            time.sleep(REST_S)
            ours.append(first_op_s(dyno))
            if index % NAIVE_EVERY == 0:
                time.sleep(REST_S)
                naive.append(submit_naive())
        time.sleep(REST_S)
        after = _worker_state(dyno)
    text = """HTTP POST of a tiny `matmul` to the end of the runner's first TensorFlow operation, every job in a process
        of its own, on an idle worker; interleaved with Celery's `worker_max_tasks_per_child=1` whose task imports
        TensorFlow (submitted by `.delay()`, so without HTTP). Bytecode compiled in both, milliseconds:"""
    lines = [
        *prose(text),
        f"- Dyno: {spread(ours, 1e3)}",
        f"- naive: {spread(naive, 1e3)}",
        f"- ratio of medians: {median(naive) / median(ours):.1f}",
        "",
        f"Processes below the worker before and after {len(ours)} jobs: {before[0]} and {after[0]}. "
        f"Zygote's PSS: {before[1] / 2**20:.1f} and {after[1] / 2**20:.1f} MiB.",
    ]
    write("start", "From submit to the first operation, in a fresh process", lines)


def first_op_s(dyno: Dyno) -> float:
    submitted_s = time.time()
    first_s = dyno.client.run(TINY).runs[0].first_op_at_s
    assert first_s is not None
    return first_s - submitted_s


@contextmanager
def naive_worker() -> Iterator[Callable[[], float]]:
    """Yields what submits a task and returns its time to the first operation."""
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


def _worker_state(dyno: Dyno) -> tuple[int, int]:
    """(processes below the worker, PSS of its zygote in bytes); PSS counts a page that forks share once."""
    below = psutil.Process(dyno.worker_pid).children(recursive=True)
    zygote = next(process for process in below if "workers.zygote" in process.cmdline())
    return len(below), zygote.memory_full_info().pss
