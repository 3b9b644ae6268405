"""The epochs of one training, step by step: `model.fit`'s own take in validation, and were seen to be bimodal."""

from __future__ import annotations

import math
import time

from dyno.errors import RunFailed
from dyno.frameworks.contract import Trainer
from dyno.models.result import Epoch
from dyno.workloads._callbacks import Callbacks
from dyno.workloads.contract import BuildContext

_REPORTS_PER_EPOCH = 10


class Epochs:
    """`count` epochs of `steps` full batches each, and the rest of the samples with `tail`.

    Progress is told in steps over all `trials`, of which this is number `trial` (from 0).
    """

    def __init__(
        self, context: BuildContext, trainer: Trainer, count: int, steps: int, *, tail: bool, trial: int, trials: int
    ) -> None:
        self._context, self._trainer = context, trainer
        self._count, self._steps, self._tail = count, steps, tail
        self._before, self._all = trial * count * steps, trials * count * steps
        whole = trainer.steps_per_execution
        self._chunk = math.ceil(steps / _REPORTS_PER_EPOCH / whole) * whole

    def train(self, callbacks: Callbacks, done: int = 0, spent_s: float = 0.0) -> list[Epoch]:
        """All epochs; `done` steps of the first were made before, in `spent_s`."""
        epochs: list[Epoch] = []
        for index in range(self._count):
            epochs.append(callbacks.after(self._epoch(index, done, spent_s)))
            done, spent_s = 0, 0.0
            if callbacks.stop:
                break
        callbacks.finish()
        return epochs

    def _epoch(self, index: int, done: int, spent_s: float) -> Epoch:
        began_s, place = time.perf_counter(), f"in epoch {index + 1}"
        if index > 0:
            self._trainer.shuffle()
        while done < self._steps:
            self._context.report("training", self._before + index * self._steps + done, self._all, "steps")
            count = min(self._chunk, self._steps - done)
            finite(self._trainer.steps(count), place)
            done += count
        if self._tail:
            finite(self._trainer.tail(), place)
        figures = self._trainer.finish_epoch()
        return Epoch(
            index=index,
            time_s=spent_s + time.perf_counter() - began_s,
            loss=finite(figures["loss"], place),
            accuracy=figures.get("accuracy"),
            includes_compile=index == 0,
        )


def finite(loss: float, place: str) -> float:
    """The loss; RunFailed (benchmark, nonfinite_loss) if it is none."""
    if not math.isfinite(loss):
        raise RunFailed("benchmark", "nonfinite_loss", f"the loss became {loss} {place}")
    return loss
