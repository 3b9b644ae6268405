"""One process: the same work sampled with all that a runner does meanwhile, and with nothing, in turns (ABBA).

`python -m benchmarks.cost_side_by_side WORKLOAD PARAMS PAIRS` prints JSON: of each block of samples, `on` and `off`,
the median in seconds per execution and how long the block lasted; and how long the checks of the output took after all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.in_process import compiled
from dyno.devices import discover
from dyno.devices.sensors import sensing
from dyno.measure.clock import HostClock
from dyno.measure.sampling import Samples, StoppingRule, sample
from dyno.measure.statistics import median
from dyno.runner.samples import take_samples, undisturbed
from dyno.runner.writer import FrameWriter
from dyno.settings import Settings
from dyno.spec import Measure
from dyno.workloads.contract import Built

# A target that any samples meet: both ways then stop at the method's floor of 20 samples and 2 s.
MEASURE = Measure(target_rel_ci=1.0)


class Turns:
    """Samples `built` either way; keeps the median and the duration of each block, in the order they were taken."""

    def __init__(self, built: Built, frames_fd: int) -> None:
        self._execute, self._device, self._frames = built.execute, discover("cpu", Settings()), FrameWriter(frames_fd)
        self.medians_s: dict[str, list[float]] = {"on": [], "off": []}
        self.blocks_s: dict[str, list[float]] = {"on": [], "off": []}

    def take(self, way: str) -> None:
        began_s = time.perf_counter()
        samples = self._with_all() if way == "on" else self._with_nothing()
        self.blocks_s[way].append(time.perf_counter() - began_s)
        self.medians_s[way].append(median(samples.samples))

    def _with_all(self) -> Samples:
        with sensing(self._device) as source:
            return take_samples(self._execute, MEASURE, self._device, source, self._frames).samples

    def _with_nothing(self) -> Samples:
        with undisturbed():
            rule = StoppingRule.of(MEASURE, self._device.kind)
            return sample(self._execute, rule, HostClock(), lambda taken, expected: None)


def main(workload: str, params: str, pairs: int) -> None:
    built = compiled(workload, json.loads(params))
    with _reader() as frames_fd:
        Turns(built, frames_fd).take("off")  # the first block is still getting faster
        turns = Turns(built, frames_fd)
        for pair in range(pairs):
            for way in ("on", "off")[:: 1 if pair % 2 == 0 else -1]:
                turns.take(way)
    began_s = time.perf_counter()
    built.verify()
    verify_s = time.perf_counter() - began_s
    print(json.dumps({"medians_s": turns.medians_s, "blocks_s": turns.blocks_s, "verify_s": verify_s}))


@contextmanager
def _reader() -> Iterator[int]:
    """The pipe to another process, which wakes up for each frame as a supervisor does."""
    reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert reader.stdin is not None
    with reader, reader.stdin:
        yield reader.stdin.fileno()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
