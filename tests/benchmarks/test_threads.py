"""Threads of a library, each bound to a core of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from benchmarks import threads

# Two threads that `threading` knows nothing of, like a library's; they end with the process.
PROGRAM = """
import _thread, json, os
from benchmarks.threads import bind_pools
for _ in range(2):
    taken = _thread.allocate_lock()
    taken.acquire()
    _thread.start_new_thread(taken.acquire, ())
bound = bind_pools([int(core) for core in os.environ["CORES"].split(",")])
threads = sorted(int(thread) for thread in os.listdir("/proc/self/task"))
print(json.dumps([bound, [sorted(os.sched_getaffinity(thread)) for thread in threads]]))
"""


def test_each_thread_of_a_pool_gets_a_core_in_turn_and_pythons_own_stay_free() -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core: nothing to choose from")
    env = os.environ | {"CORES": f"{cores[0]},{cores[1]}"}
    told = subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=True, stdout=subprocess.PIPE, text=True)
    assert json.loads(told.stdout) == [2, [cores, [cores[0]], [cores[1]]]]


@pytest.mark.parametrize("there_are_any", [False, True])
def test_where_nothing_is_bound_that_is_said(monkeypatch: pytest.MonkeyPatch, there_are_any: bool) -> None:
    def forbidden(thread: int, cores: set[int]) -> None:
        raise PermissionError

    monkeypatch.setattr(threads, "_threads", lambda: [os.getpid()] if there_are_any else [])
    monkeypatch.setattr(os, "sched_setaffinity", forbidden)
    with pytest.raises(RuntimeError, match="no thread could be bound"):
        threads.bind_pools([0])
