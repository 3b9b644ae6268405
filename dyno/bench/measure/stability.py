"""Class B checks of samples, runs and sensors: will the number repeat?

MULTIMODAL: do the runs fall into two groups far apart? The check splits the medians where the scatter between the
groups is the largest multiple of the scatter within them. This multiple corresponds to the likelihood ratio of two
normal groups of one width against a single group (Engelman & Hartigan 1969, "Percentage Points of a Test for
Clusters"). The published percentage points assume normal runs. Runs have heavier tails, so MULTIMODAL_LIMITS were
simulated for Student's t with 3 degrees of freedom (400,000 trials, 100,000 from 30 runs on). 1 % of these sets of runs
raise a false alarm. Fewer sets of normal runs do (0.1 % of sets of ten runs), and 2 % of sets of exponential runs do.

Power: if a fifth of all processes are in a second mode, at least one of five runs is in it in 67 % of cases (1 -
0.8^5), and at least one of 14 runs in 96 %. A mode without runs can't be detected: the runs look like a job with one
mode. A mode with runs is detected if the modes are far apart compared with the scatter within them. With ten runs, half
of the modes that are 10 standard deviations apart are detected (one training loop alternated between 180 and 310 us a
sample). Modes that are nearer lie within the interval, which is as wide as their distance. `benchmarks/coverage.py`
measures this.

THROTTLED, DEVICE_SHARED, CLOCK_DRIFT: `unchecked_by_sensors` returns the codes that couldn't be checked. Without a
counter, as in most virtual machines, each run measures a CPU's clock on one core right after the samples. This reading
misses reductions that only the load causes. But it shows whether clocks differ between runs. Throttling within a run
changes its samples (warm-up, NO_STEADY_STATE). A clock that was equally low in every sample isn't detected. But then
the figure repeats, so class B doesn't apply. NOISY_NEIGHBOUR covers other users of a CPU. A TPU has no other users,
since only one process can open its chips. A GPU reports all three conditions, or they stay unchecked.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from pydantic import JsonValue

from dyno.bench.measure import change_points, statistics, stopping_rule
from dyno.bench.measure.warnings import EFFECT, least_effect, warning
from dyno.models.device import Device
from dyno.models.result import ResultWarning, Sensors
from dyno.models.runner_protocol import RunRecord
from dyno.models.spec import FEW_SAMPLES, DeviceKind, Measure

# Samples must reach this share of the minimum length, since executions may get slightly faster after calibration.
_SHORT = 0.9
HOST_CORES = 2  # for an accelerator: the thread that starts the work, and the framework's thread that waits for it


def insufficient_samples(record: RunRecord, kind: DeviceKind, measure: Measure) -> ResultWarning | None:
    """Raised for fewer than five samples (or three long samples), or if samples are too short for the device.

    The message names the settings of `measure` that would give enough samples.
    """
    count, steady_s = len(record.samples), record.summary.phases.steady_s or 0.0
    sample_s = statistics.median(record.samples) * record.summary.executions_per_sample
    least_s = stopping_rule.FLOOR_SAMPLE_S[kind]
    few = stopping_rule.least_samples(sample_s)
    if count >= few and sample_s >= _SHORT * least_s:
        return None
    floor = f"the floor is {few} samples of {least_s} s"
    advice = _to_reach_it(measure, sample_s, least_s)
    return warning(
        "INSUFFICIENT_SAMPLES",
        f"{count} samples of {sample_s:.3g} s over {steady_s:.3g} s; {floor}.{advice}",
        samples=count,
        sample_s=sample_s,
        steady_s=steady_s,
    )


def _to_reach_it(measure: Measure, sample_s: float, least_s: float) -> str:
    """Return advice such as " To reach it, set max_s to 1400." Warm-up may take half of `max_s`."""
    if measure.is_divided:
        return ""
    few = stopping_rule.least_samples(sample_s)
    enough_s = 1.05 * 2 * few * max(sample_s, least_s)  # rounding to two digits takes up to 5 %
    needed = {
        "min_samples": (measure.least_samples, few),
        "max_s": (measure.longest_s, float(f"{enough_s:.2g}")),
    }
    settings = [f"{name} to {least:g}" for name, (given, least) in needed.items() if given < least]
    return f" To reach it, set {' and '.join(settings)}." if settings else ""


COMMON_CONFIDENCE = 0.99  # confidence of the interval of a drift that all runs share


def no_steady_state(records: Sequence[RunRecord], rel_half_width: float | None) -> ResultWarning | None:
    """Raised if runs without a steady state could have moved the figure by more than its `rel_half_width`.

    If each run drifts in its own way, the runs scatter, so the interval covers these drifts, but not a drift that all
    runs share. Also raised if a step or slide of the runs' medians moved the figure by more than the half-width that
    remains without the step or slide.
    """
    unsteady = [run for run, record in enumerate(records) if not record.summary.steady]
    moved = math.fsum(_drift(records[run].samples) for run in unsteady) / len(records)
    if moved > max(EFFECT, rel_half_width or 0.0):
        first = records[unsteady[0]]
        return warning(
            "NO_STEADY_STATE",
            samples=len(first.samples),
            warmup_samples=len(first.warmup),
            moved=moved,
            runs=[*unsteady],
        )
    if (common := _common_drift(records, rel_half_width)) is not None:
        return common
    medians = [statistics.median(record.samples) for record in records]
    shift = change_points.largest_shift(medians, change_points.SHIFT_LIMITS)
    if shift is None or shift.moved <= least_effect(shift.rel_half_width):
        return None
    how = "slid over all runs" if shift.at is None else f"stepped before run {shift.at}"
    return warning(
        "NO_STEADY_STATE",
        f"The times {how}, which moved the figure by {shift.moved:.1%}.",
        moved=shift.moved,
        rel_half_width_without=shift.rel_half_width,
        step_before_run=shift.at,
        medians_s=[*medians],
    )


def _common_drift(records: Sequence[RunRecord], rel_half_width: float | None) -> ResultWarning | None:
    """Raised if the second half of the samples differs from the first half, in all runs alike.

    The samples of one run are too few to detect the difference. The figure moved by half of the difference.
    """
    halves = [(times[: len(times) // 2], times[len(times) // 2 :]) for times in (record.samples for record in records)]
    if min(len(first) for first, _ in halves) < 1:
        return None
    over_runs = statistics.mean_interval(
        [math.log(statistics.median(second) / statistics.median(first)) for first, second in halves], COMMON_CONFIDENCE
    )
    if over_runs.low is None or over_runs.high is None or over_runs.low <= 0 <= over_runs.high:
        return None
    moved = abs(over_runs.value) / 2
    if moved <= max(EFFECT, rel_half_width or 0.0):
        return None
    return warning(
        "NO_STEADY_STATE",
        f"In all runs, the later half of the samples differed by {math.expm1(over_runs.value):+.1%} in time.",
        moved=moved,
        over_runs=[over_runs.low, over_runs.high],
    )


def _drift(samples: Sequence[float]) -> float:
    """The largest relative difference between the medians of the samples' quarters; 1 for too few samples."""
    if len(samples) < FEW_SAMPLES:
        return 1.0
    bounds = [len(samples) * quarter // 4 for quarter in range(5)]
    medians = [statistics.median(samples[start:end]) for start, end in pairwise(bounds)]
    return (max(medians) - min(medians)) / statistics.median(samples)


def target_missed(
    over_runs: statistics.Interval, records: Sequence[RunRecord], target_rel_ci: float | None
) -> ResultWarning | None:
    """Raised if the interval over the runs, or over the samples of a single run, is wider than the target.

    Not raised without a target, or without an interval (see INSUFFICIENT_SAMPLES).
    """
    width, of = _width(over_runs, records)
    if target_rel_ci is None or width is None or width <= target_rel_ci:
        return None
    return warning(
        "TARGET_MISSED",
        f"The interval over {of} is ±{width:.2%}; the target is ±{target_rel_ci:.2%}.",
        rel_half_width=width,
        target_rel_ci=target_rel_ci,
        over=of,
        runs=len(records),
    )


def _width(over_runs: statistics.Interval, records: Sequence[RunRecord]) -> tuple[float | None, str]:
    """The relative half-width of the interval, and whether it is over the runs or the samples."""
    if over_runs.rel_half_width is not None:
        return over_runs.rel_half_width, "runs"
    summary = records[0].summary
    return statistics.Interval(summary.median or 0.0, summary.low, summary.high).rel_half_width, "samples"


def cpu_quota(container_cores: float | None, device: Device) -> ResultWarning | None:
    """Raised if the container's quota is below the cores that the work may need, so that the kernel pauses the work.

    A CPU job may need all cores of the device. For an accelerator, the host only starts work and waits for it.
    """
    cores = len(device.cores)
    needed = cores if device.driven_as == "cpu" else min(cores, HOST_CORES)
    if container_cores is None or container_cores >= needed:
        return None
    return warning(
        "CPU_QUOTA",
        f"The container may use {container_cores:g} cores, but the work may need {needed}.",
        quota_cores=container_cores,
        needed_cores=needed,
        device_cores=cores,
    )


MULTIMODAL_MIN_RUNS = 10
# Number of runs -> scatter ratio that one set in a hundred exceeds. A number in between uses the next lower entry.
MULTIMODAL_LIMITS = {
    10: 18.0,
    12: 14.3,
    15: 11.4,
    20: 8.7,
    30: 6.7,
    50: 4.8,
    100: 3.5,
}
# Groups closer than the margin of a comparison don't matter: a comparison calls their results the same.
MULTIMODAL_MIN_SHIFT = 0.02


def multimodal(medians: Sequence[float]) -> ResultWarning | None:
    """Check `medians`, one per run. Not raised below ten runs, where modes and scatter look alike."""
    if len(medians) < MULTIMODAL_MIN_RUNS:
        return None
    ordered = sorted(medians)
    scatters = {cut: _scatter_ratio(ordered[:cut], ordered[cut:]) for cut in range(1, len(ordered))}
    cut = max(scatters, key=lambda number: scatters[number])
    shift = (ordered[cut] - ordered[cut - 1]) / statistics.median(ordered)
    limit = MULTIMODAL_LIMITS[max(count for count in MULTIMODAL_LIMITS if count <= len(medians))]
    if shift <= MULTIMODAL_MIN_SHIFT or scatters[cut] <= limit:
        return None
    return warning(
        "MULTIMODAL",
        f"{cut} and {len(ordered) - cut} runs lie {shift:.1%} apart.",
        low_group=list(ordered[:cut]),
        high_group=list(ordered[cut:]),
        gap=ordered[cut] - ordered[cut - 1],
        scatter_ratio=scatters[cut] if math.isfinite(scatters[cut]) else None,
        limit=limit,
    )


def _scatter_ratio(low: Sequence[float], high: Sequence[float]) -> float:
    """The sum of squares between two groups, divided by the sum within them; infinite if neither group scatters."""
    within = statistics.squares(low) + statistics.squares(high)
    between = (fmean(high) - fmean(low)) ** 2 * len(low) * len(high) / (len(low) + len(high))
    return between / within if within > 0 else math.inf


# A clock that is low for this share of the window changes the figure by less than this share.
THROTTLED_SHARE = 0.01


def throttled(sensors: Sensors | None) -> ResultWarning | None:
    """Raised if the device reported that it lowered its clock for heat or power while samples were taken.

    If the device counts the throttled time, that time must exceed 1 % of the window.
    """
    if sensors is None or not (sensors.throttle_reasons or sensors.throttle_events):
        return None
    if sensors.throttled_s is not None and (sensors.throttled_share or 0.0) <= THROTTLED_SHARE:
        return None
    reasons: list[JsonValue] = list(sensors.throttle_reasons or [])
    reasons_in_words = f" ({', '.join(sensors.throttle_reasons)})" if sensors.throttle_reasons else ""
    return warning(
        "THROTTLED",
        f"The device lowered its clock for heat or power while samples were taken{reasons_in_words}.",
        reasons=reasons,
        share_of_looks=sensors.throttled_share,
        throttled_s=None if sensors.throttled_s is None else {**sensors.throttled_s},
        events=sensors.throttle_events,
        temperature_c=sensors.temperature_c,
    )


def device_shared(sensors: Sensors | None) -> ResultWarning | None:
    """Raised if processes other than the runner had the device open after the last sample."""
    if sensors is None or not sensors.other_processes:
        return None
    return warning("DEVICE_SHARED", other_processes=sensors.other_processes, utilisation=sensors.utilisation)


# A smaller spread of two runs' clocks is no drift: on a busy host, measurements of one clock scatter by 2 %
# (`dyno.bench.devices.cpu_speed`).
DRIFT_LIMIT = 0.03
# A larger change from one run to the next is a step, whatever the clocks of the other runs are. The limit is five
# standard deviations of the change between two runs whose clock wanders by 1.5 % (`dyno.bench.measure.change_points`).
STEP_LIMIT = 0.08
# The clock explains how runs differ if an adjustment to one clock halves their scatter or narrows the interval to 1 %.
EXPLAINED_SHARE = 0.5
MIN_EXPLAINED_RUNS = 3  # a slope fits any two runs


def clock_drift(clocks_hz: Sequence[float | None], times_s: Sequence[float]) -> ResultWarning | None:
    """Raised if the known clocks of the runs step or slide and could have moved the figure.

    `times_s`: the runs' medians. A step or slide must exceed the scatter of these clocks and of a quiet clock. Its
    cause is a throttled device, or a host that gave other guests more time. The figure moved as far as the runs' times
    follow the clock. If the times don't follow a step, the figure may have moved as far as the clock. A clock that only
    wanders raises no warning: if it explains how the runs differ, their figures can be adjusted. From two runs, the
    effect of the clock is unknown, so a difference of their clocks above 3 % is treated like a step.
    """
    clocked_runs = [(clock, time_s) for clock, time_s in zip(clocks_hz, times_s, strict=True) if clock is not None]
    if len(clocked_runs) < 2:
        return None
    clocks = [clock for clock, _ in clocked_runs]
    spread = (max(clocks) - min(clocks)) / statistics.median(clocks)
    shift = change_points.largest_shift(clocks, change_points.CLOCK_SHIFT_LIMITS, change_points.QUIET_CLOCK)
    stepped = _stepped(clocks) or shift is not None
    has_enough_runs = len(clocked_runs) >= MIN_EXPLAINED_RUNS
    if not stepped and (has_enough_runs or spread <= DRIFT_LIMIT):
        return None
    fit = fit_to_clock(clocks, [time_s for _, time_s in clocked_runs])
    runs, moved = len(clocked_runs), fit.clock_moved
    half_width = _half_width(fit.as_is, runs, degrees=runs - 1)
    if has_enough_runs:
        at_one_clock = _half_width(fit.left, runs, degrees=runs - 2)
        if fit.left <= EXPLAINED_SHARE * fit.as_is or at_one_clock <= EFFECT:
            moved, half_width = fit.moved, at_one_clock
        elif not _stepped(clocks):
            moved = fit.moved  # only as far as the times follow the clock
    if moved <= least_effect(half_width):
        return None
    return warning(
        "CLOCK_DRIFT",
        f"The clock was {min(clocks) / 1e9:.2f} to {max(clocks) / 1e9:.2f} GHz over the runs.",
        clocks_hz=list(clocks_hz),
        spread=spread,
        limit=DRIFT_LIMIT,
        step=stepped,
        step_limit=STEP_LIMIT,
        moved=moved,
        rel_half_width=half_width,
        scatter=fit.as_is,
        adjusted_scatter=fit.left,
    )


class ClockFit(NamedTuple):
    """The deviation of the runs' times (logarithms), as measured and at one clock, and how far the clock moved them.

    `left` has n - 2 degrees of freedom, because the elasticity is estimated from the same runs. `moved`: the largest
    distance of a run from the mean, as far as its clock explains it. `clock_moved`: the largest distance of a clock
    from the mean clock, which is the most that any elasticity could explain.
    """

    as_is: float
    left: float
    moved: float
    clock_moved: float


def fit_to_clock(clocks_hz: Sequence[float], times_s: Sequence[float]) -> ClockFit:
    """Adjust runs to one clock, by least squares, with an elasticity between 0 and -1."""
    clocks, times = (statistics.centred(statistics.logs(values)) for values in (clocks_hz, times_s))
    squares = statistics.product(clocks, clocks)
    slope = min(max(statistics.product(clocks, times) / squares, -1.0), 0.0) if squares > 0 else 0.0
    residuals = [time - slope * clock for clock, time in zip(clocks, times, strict=True)]
    left = math.sqrt(statistics.product(residuals, residuals) / max(len(times) - 2, 1))
    clock_moved = max(map(abs, clocks))
    return ClockFit(statistics.deviation(times), left, -slope * clock_moved, clock_moved)


def _half_width(deviation: float, runs: int, degrees: int) -> float:
    return statistics.student_t(degrees) * deviation / math.sqrt(runs)


def _stepped(clocks: Sequence[float]) -> bool:
    """Whether the clock changed at once between two runs, instead of a little from each run to the next."""
    return max(abs(after / before - 1) for before, after in pairwise(clocks)) > STEP_LIMIT


# Codes that can't be checked on this kind of device: no sensor reports a TPU's clock.
IMPOSSIBLE: dict[DeviceKind, frozenset[str]] = {
    "cpu": frozenset(),
    "gpu": frozenset(),
    "tpu": frozenset({"THROTTLED", "CLOCK_DRIFT"}),
}


def unchecked_by_sensors(device: Device, records: Sequence[RunRecord]) -> set[str]:
    """The codes of this module, and NOISY_NEIGHBOUR, that no sensor could check in these runs."""
    readings = [record.summary.sensors or Sensors() for record in records]
    clocked = len(records) > 1 and all(record.summary.clock_hz is not None for record in records)
    reported = all(sensors.throttle_reasons is not None or sensors.throttle_events is not None for sensors in readings)
    missing = set() if clocked else {"CLOCK_DRIFT"}
    if not reported and not (clocked and device.driven_as == "cpu"):
        missing.add("THROTTLED")
    if device.driven_as == "gpu" and any(sensors.other_processes is None for sensors in readings):
        missing.add("DEVICE_SHARED")
    if device.cores and any(record.summary.core_shares is None for record in records):
        missing.add("NOISY_NEIGHBOUR")
    return missing
