"""When sampling may stop, and how many runs are enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dyno.measure.result_metrics import by_case
from dyno.measure.statistics import Interval, mean_interval, median
from dyno.models.runner_protocol import RunRecord
from dyno.models.spec import DeviceKind, Measure

MAX_SAMPLES = 200
MIN_FOR_INTERVAL = 6  # fewer samples give no 95 % interval of a median
# A caller may stop sooner, but not call what scatters or drifts more than this steady. Two results can be told the
# same within ±2 %, the margin of a comparison, only if each is known to about that.
LOOSEST_REL_CI = 0.02
# The method's floor; a caller may ask for less and is told so.
FLOOR_SAMPLES = 20
FLOOR_S = 2.0
FLOOR_SAMPLE_S: dict[DeviceKind, float] = {"cpu": 0.1, "gpu": 0.05, "tpu": 0.05}


def effective_rel_ci(target_rel_ci: float) -> float:
    """What steadiness, NOISY and `trusted` go by: the caller's target, or 2 % where that is looser."""
    return min(target_rel_ci, LOOSEST_REL_CI)


@dataclass(frozen=True)
class StoppingRule:
    """When sampling may stop. Times in seconds; `target_rel_ci` is the median's relative half-width.

    A change of more than `steady_rel_ci` is no steady state.
    """

    min_samples: int = FLOOR_SAMPLES
    min_s: float = FLOOR_S
    max_s: float = 60.0
    target_rel_ci: float = 0.01
    min_sample_s: float = FLOOR_SAMPLE_S["cpu"]
    max_samples: int = MAX_SAMPLES

    @property
    def steady_rel_ci(self) -> float:
        return effective_rel_ci(self.target_rel_ci)

    @classmethod
    def of(cls, measure: Measure, kind: DeviceKind) -> StoppingRule:
        """The method's rule for a device of `kind`, with what the caller asked for.

        Who asks for fewer samples than an interval needs gets just these, and they get short enough for `max_s`.
        Samples get longer where as many as there may be would not last `min_s`.
        """
        max_samples = MAX_SAMPLES if measure.min_samples >= MIN_FOR_INTERVAL else measure.min_samples
        longest_s = measure.max_s / measure.min_samples
        return cls(
            min_samples=measure.min_samples,
            min_s=measure.min_s,
            max_s=measure.max_s,
            target_rel_ci=measure.target_rel_ci,
            min_sample_s=min(max(FLOOR_SAMPLE_S[kind], measure.min_s / max_samples), longest_s),
            max_samples=max_samples,
        )


def enough_runs(measure: Measure, records: Sequence[RunRecord]) -> bool:
    """Whether no other run is needed: at least `min`, at most `max`, in between until the interval is narrow enough."""
    if len(records) < measure.processes.min:
        return False
    return len(records) >= measure.processes.max or on_target(measure.target_rel_ci, records)


def on_target(target_rel_ci: float, records: Sequence[RunRecord]) -> bool:
    """Whether the interval over the runs' medians is as narrow as that, of every case; one run's never is."""
    widths = [time_interval(each).rel_half_width for each in (records, *by_case(records).values())]
    return all(width is not None and width <= target_rel_ci for width in widths)


def time_interval(records: Sequence[RunRecord]) -> Interval:
    """Seconds per execution: the mean of the runs' medians with Student's t interval."""
    return mean_interval([median(record.samples) for record in records])
