"""Does load on the package's other cores move a figure? Work on one core, alone and beside a neighbour, in turns.

Windows are short and alternate, since a machine's speed drifts. Then jobs of two workers of one Dyno, a core each.
`python -m benchmarks.neighbours WORK CORE` is the process of one work. Each line of stdin is the length of a window in
seconds, and it prints the executions per second. Without lines it works until it is killed.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from benchmarks.files import Spec
from benchmarks.jobs import metric_named
from benchmarks.loadgen import ROOT
from benchmarks.pairs import in_turns, ratio
from benchmarks.report import prose, table, write
from dyno.bench.devices.cpu import format_cpulist
from dyno.cli.up import run_stack, wait_ready
from dyno.client import Client
from dyno.models.job import Job

ROUNDS, JOB_ROUNDS = 30, 20
WINDOW_S, SETTLING_S = 0.4, 0.1
ADDED = 33_500_000  # float32 values: three arrays of 134 MB, so 402 MB an addition
MEASURE: dict[str, int] = {"processes": 1, "min_s": 2, "max_s": 4}
JOB: Spec = {"workload": "matmul", "params": {"n": 1024}, "measure": {**MEASURE}}
LONG: Spec = {"workload": "matmul", "params": {"n": 1024}, "measure": {"processes": 1, "min_s": 60, "max_s": 60}}
ALONE, BESIDE = "alone", "beside"
METHOD = """Work on one core, in windows of {window} s: alone, and beside a process on another core of the package. The
    windows alternate in the order ABC, CBA. *Speed*: executions a second beside the neighbour divided by those alone,
    the geometric mean of the rounds' ratios with its 95 % interval (Student's t on logarithms). The last row has jobs
    on one of two workers, with a core each: a job's throughput while the other worker runs a job, and how many jobs had
    NOISY_NEIGHBOUR. An interval that holds 1 shows no effect; its width says how small an effect it could show."""
HEAD = ("work", "beside", "rounds", "speed", "NOISY_NEIGHBOUR")


def _product_numpy() -> Callable[[], object]:
    import numpy as np

    a = np.random.default_rng(0).standard_normal((512, 512), dtype=np.float32)
    out = np.empty_like(a)
    return lambda: np.matmul(a, a, out=out)


def _product_tensorflow() -> Callable[[], object]:
    import tensorflow as tf

    a = tf.random.normal((512, 512))
    return lambda: tf.linalg.matmul(a, a).numpy()


def _addition() -> Callable[[], object]:
    import numpy as np

    a, b, out = (np.ones(ADDED, np.float32) for _ in range(3))
    return lambda: np.add(a, b, out=out)


WORK: Mapping[str, Callable[[], Callable[[], object]]] = {
    "product, NumPy": _product_numpy,
    "product, TensorFlow": _product_tensorflow,
    "addition": _addition,
}
NEIGHBOURS = ("product, NumPy", "addition")


def main(rounds: int = ROUNDS, job_rounds: int = JOB_ROUNDS) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("a neighbour needs a second core")
    rows = [row for work in WORK for row in measured(work, cores, rounds)]
    rows.append(jobs(cores, job_rounds))
    text = [*prose(METHOD.format(window=WINDOW_S)), *table(HEAD, rows)]
    write("neighbours", "Does a neighbour on another core move a figure?", text)


def measured(work: str, cores: list[int], rounds: int) -> list[list[object]]:
    """A row for each neighbour."""
    with ExitStack() as stack:
        one = stack.enter_context(_process(work, cores[0], subprocess.PIPE))
        others = {name: stack.enter_context(_process(name, cores[1])) for name in NEIGHBOURS}
        for other in others.values():
            other.send_signal(signal.SIGSTOP)
        ways = {ALONE: partial(_window, one), **{name: partial(_beside, one, other) for name, other in others.items()}}
        found = in_turns(ways, rounds)
    return [[work, name, rounds, _speed(found[name], found[ALONE]), "–"] for name in NEIGHBOURS]


def _speed(beside: list[float], alone: list[float]) -> str:
    of = ratio(beside, alone)
    return f"{of.value:.3f} [{of.low:.3f} to {of.high:.3f}]"


@contextmanager
def _process(work: str, core: int, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.neighbours", work, str(core)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n", f"{work} ended before its work began"
        yield process
    finally:
        process.kill()
        process.wait()


def _window(process: subprocess.Popen[str]) -> float:
    """Executions a second."""
    assert process.stdin is not None
    assert process.stdout is not None
    time.sleep(SETTLING_S)
    process.stdin.write(f"{WINDOW_S}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def _beside(process: subprocess.Popen[str], other: subprocess.Popen[str]) -> float:
    other.send_signal(signal.SIGCONT)
    try:
        return _window(process)
    finally:
        other.send_signal(signal.SIGSTOP)


def jobs(cores: list[int], rounds: int) -> list[object]:
    """The row of jobs on one worker, alone and beside a job of the other worker."""
    devices, noisy = [f"cpu:{format_cpulist([core])}" for core in cores[:2]], dict.fromkeys((ALONE, BESIDE), 0)
    with run_stack(port=0, data_dir=None, devices=devices, say=print) as (stack, url), Client(url) as client:
        wait_ready(stack, client, want_devices=2)

        def timed(way: str) -> float:
            result = client.run({**JOB, "device": devices[0]})
            noisy[way] += any(raised.code == "NOISY_NEIGHBOUR" for raised in result.warnings)
            return metric_named(result, "throughput").value or math.nan

        def beside() -> float:
            other = client.submit({**LONG, "device": devices[1]})
            try:
                while not _at_work(client.job(other.id)):
                    time.sleep(0.1)
                return timed(BESIDE)
            finally:
                client.cancel(other.id)
                client.wait(other.id)

        client.run({**JOB, "device": devices[0]})  # the first job pays for imports
        found = in_turns({ALONE: partial(timed, ALONE), BESIDE: beside}, rounds)
    counted = ", ".join(f"{way} {count} of {rounds}" for way, count in noisy.items())
    return [
        "`matmul` at n = 1024, jobs",
        "jobs of the other worker",
        rounds,
        _speed(found[BESIDE], found[ALONE]),
        counted,
    ]


def _at_work(job: Job) -> bool:
    """Raises RuntimeError for a job that is done."""
    if job.done:
        raise RuntimeError(f"the neighbour's job {job.id} is {job.status}")
    return job.progress is not None and job.progress.phase in ("warmup", "sampling")


def serve(work: str, core: int) -> None:
    os.sched_setaffinity(0, {core})
    execute = WORK[work]()
    execute()
    print("on", flush=True)
    for line in sys.stdin:
        print(_per_s(execute, float(line)), flush=True)
    while True:
        execute()


def _per_s(execute: Callable[[], object], for_s: float) -> float:
    count, began_s = 0, time.perf_counter()
    while (took_s := time.perf_counter() - began_s) < for_s:
        execute()
        count += 1
    return count / took_s


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
