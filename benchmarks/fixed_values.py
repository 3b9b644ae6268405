"""One process of a fixed protocol: one value to warm up, then three, each of as many executions as last 0.1 s.

The op is Dyno's own, the protocol pyperf's default: a first process finds the number of executions, 20 others take
their three values each. `python -m benchmarks.fixed_values WORKLOAD PARAMS LOOPS`; LOOPS 0 finds the number. Prints
JSON: the values as work per second, none while the number is sought.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.in_process import compiled
from dyno.workloads.contract import Built

VALUES, LEAST_S = 3, 0.1


def main(workload: str, params: str, loops: int) -> None:
    built = compiled(workload, json.loads(params))
    if loops == 0:
        loops, values = calibrated(built), []
    else:
        _time_s(built, loops)
        values = [built.work * loops / _time_s(built, loops) for _ in range(VALUES)]
    print(json.dumps({"loops": loops, "values": values}))


def calibrated(built: Built) -> int:
    """The smallest power of two that lasts LEAST_S."""
    loops = 1
    while _time_s(built, loops) < LEAST_S:
        loops *= 2
    return loops


def _time_s(built: Built, loops: int) -> float:
    begin_s = time.perf_counter()
    built.execute(loops)
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
