"""From the frames of one run to the progress of its job."""

from __future__ import annotations

from dyno.models.job import Progress
from dyno.models.runner_protocol import ProgressFrame

_LEAST_FRACTION = 0.05  # before that the start of the first run weighs too much: measured, 237 s for the last 10
_TRAINING_SHARE = 0.5  # of a run that trains in full before it samples: a guess that only the bar sees


class JobProgress:
    """Fraction over all runs, never falling within a run. `runs` is the most there may be."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._trained: int | None = None  # the last run that did

    def of(self, frame: ProgressFrame | None, run: int, elapsed_s: float) -> Progress | None:
        """`run` counts from 0, `elapsed_s` from the claim; None before the first frame of all."""
        if frame is None and run == 0:
            return None
        frame = frame or ProgressFrame(phase="starting")
        fraction = (run + self._within(frame, run)) / self._runs
        return Progress(
            phase=frame.phase,
            run=run + 1,
            runs=self._runs,
            completed=frame.completed,
            total=frame.total,
            unit=frame.unit,
            fraction=fraction,
            eta_s=elapsed_s * (1 - fraction) / fraction if fraction >= _LEAST_FRACTION else None,
        )

    def _within(self, frame: ProgressFrame, run: int) -> float:
        share = min(1.0, frame.completed / frame.total) if frame.total else 0.0
        if frame.phase == "training":
            self._trained = run
            return _TRAINING_SHARE * share
        before = _TRAINING_SHARE if self._trained == run else 0.0
        if frame.phase == "sampling":
            return before + (1 - before) * share
        return 1.0 if frame.phase in ("verify", "artifacts", "second_look") else before
