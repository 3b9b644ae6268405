"""The rule that stops sampling, and the required number of runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from dyno.measure import result_metrics, statistics
from dyno.models.runner_protocol import RunRecord
from dyno.models.spec import DeviceKind, Measure

MAX_SAMPLES = 200
MIN_FOR_INTERVAL = 6  # fewer samples give no 95 % interval of a median
# Callers may set a looser target, but figures that scatter or drift more than this aren't steady. A comparison with the
# default margin of ±2 % can find two results the same only if each is known to about that.
LOOSEST_REL_CI = 0.02
# The method's floor; requests for less raise INSUFFICIENT_SAMPLES.
FLOOR_SAMPLES = 20
FLOOR_S = 2.0
FLOOR_SAMPLE_S: dict[DeviceKind, float] = {"cpu": 0.1, "gpu": 0.05, "tpu": 0.05}


def effective_rel_ci(target_rel_ci: float) -> float:
    """The limit for steadiness, NOISY and `trusted`: the caller's target, at most 2 %."""
    return min(target_rel_ci, LOOSEST_REL_CI)


@dataclass(frozen=True)
class StoppingRule:
    """The rule that stops sampling. Times are in seconds; `target_rel_ci` is the median's relative half-width.

    Samples that change by more than `steady_rel_ci` aren't in a steady state.
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
    def of(cls, measure: Measure, kind: DeviceKind) -> "StoppingRule":
        """The method's rule for a device of `kind`, with the caller's settings.

        If the caller requests fewer samples than an interval needs, sampling takes exactly that number, and samples are
        shortened to fit `max_s`. Samples are lengthened if the maximum number of them wouldn't last `min_s`.
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
    """Whether the runs suffice: at least `min`, at most `max`, in between until the interval is narrow enough."""
    if len(records) < measure.processes.min:
        return False
    return len(records) >= measure.processes.max or on_target(measure.target_rel_ci, records)


def on_target(target_rel_ci: float, records: Sequence[RunRecord]) -> bool:
    """Whether the interval over the runs' medians reaches the target in every case; a single run never does."""
    widths = [time_interval(each).rel_half_width for each in (records, *result_metrics.by_case(records).values())]
    return all(width is not None and width <= target_rel_ci for width in widths)


def time_interval(records: Sequence[RunRecord]) -> statistics.Interval:
    """Seconds per execution: the mean of the runs' medians with Student's t interval."""
    return statistics.mean_interval([statistics.median(record.samples) for record in records])
