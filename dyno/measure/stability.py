"""Class B checks of samples, runs and sensors: will the number repeat?

MULTIMODAL: do the runs fall into two groups far apart from each other? The medians are cut in two where the scatter
between the groups is the largest multiple of the scatter within them: the likelihood ratio of two normal groups of
one width against a single one (Engelman & Hartigan 1969, "Percentage Points of a Test for Clusters"). Their
percentage points are for the normal distribution. MULTIMODAL_LIMITS are those of Student's t with 3 degrees of
freedom, simulated (400,000 trials, 100,000 from 30 runs on), as runs have such tails: it raises one set in a hundred,
a normal distribution fewer (of five runs 0.6 %, of ten 0.1 %), an exponential one two.

Its power. With a fifth of all processes in a second mode, five runs visit it in 67 % of cases (1 - 0.8^5). A mode
that no run visited looks like a job of one mode, so a rule that raised it would raise every such job. 14 runs visit
it in 96 %. A visited mode is detected where the modes are far apart, against the scatter within them: five runs find
half of those 17 standard deviations apart (one training loop was seen to alternate between 180 and 310 us a sample),
ten runs half of those 10 apart. Visited modes that lie nearer are in the interval, which is as wide as they are
apart. `benchmarks/coverage.py` counts all of this.

THROTTLED, DEVICE_SHARED, CLOCK_DRIFT: `unchecked_by_sensors` says which of them nothing could check. Where no counter
exists, as in most virtual machines, a CPU's clock is measured in every run, on one core right after the samples. That
doesn't show what the load alone lowered, but it shows a clock that was lower in one run than in another, and
throttling within a run shows in its samples (warm-up, NO_STEADY_STATE). A clock that was lowered alike in every
sample remains undetected; its figure repeats, so class B has nothing to say about it. Other users of a CPU are
NOISY_NEIGHBOUR's subject (`dyno.measure.host_noise`); only one process can open a TPU's chips. A GPU reports all
three, or they stay unchecked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import JsonValue

from dyno.devices.device import Device
from dyno.measure.statistics import Interval, median
from dyno.measure.stopping_rule import FLOOR_S, FLOOR_SAMPLE_S, FLOOR_SAMPLES
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning, Sensors
from dyno.models.runner_protocol import RunRecord
from dyno.models.spec import DeviceKind

# Executions get a little faster after calibration, and a sample may then end a little early.
_SHORT = 0.9
HOST_CORES = 2  # beside an accelerator: the thread that starts the work, and the framework's that waits for it


def insufficient_samples(record: RunRecord, kind: DeviceKind) -> ResultWarning | None:
    """Fewer than 20 samples, less than 2 s of them, or samples shorter than the device's clock needs."""
    count, steady_s = len(record.samples), record.summary.phases.steady_s or 0.0
    sample_s = median(record.samples) * record.summary.executions_per_sample
    least_s = FLOOR_SAMPLE_S[kind]
    if count >= FLOOR_SAMPLES and steady_s >= FLOOR_S and sample_s >= _SHORT * least_s:
        return None
    floor = f"the floor is {FLOOR_SAMPLES} samples of {least_s} s over {FLOOR_S} s"
    return warning(
        "INSUFFICIENT_SAMPLES",
        f"{count} samples of {sample_s:.3g} s over {steady_s:.3g} s; {floor}.",
        samples=count,
        sample_s=sample_s,
        steady_s=steady_s,
    )


def no_steady_state(record: RunRecord) -> ResultWarning | None:
    if record.summary.steady:
        return None
    return warning("NO_STEADY_STATE", samples=len(record.samples), warmup_samples=len(record.warmup))


def noisy(over_runs: Interval, records: Sequence[RunRecord], target_rel_ci: float) -> ResultWarning | None:
    """The interval is wider than `target_rel_ci` allows: over the runs, or within the only one.

    Silent where there is no interval at all: that is INSUFFICIENT_SAMPLES.
    """
    width, of = over_runs.rel_half_width, "runs"
    if width is None:
        summary = records[0].summary
        within = Interval(summary.median or 0.0, summary.low, summary.high)
        width, of = within.rel_half_width, "samples"
    if width is None or width <= target_rel_ci:
        return None
    return warning(
        "NOISY",
        f"The interval over {of} is ±{width:.2%}, more than ±{target_rel_ci:.2%}.",
        rel_half_width=width,
        target_rel_ci=target_rel_ci,
        over=of,
    )


def cpu_quota(container_cores: float | None, device: Device) -> ResultWarning | None:
    """The container gets less processor time than the work takes of it: it would be stopped in mid-sample.

    On a CPU that is all of the device's cores. Beside an accelerator the host only starts work and waits for it.
    """
    cores = len(device.cores)
    needed = cores if device.driven_as == "cpu" else min(cores, HOST_CORES)
    if container_cores is None or container_cores >= needed:
        return None
    return warning(
        "CPU_QUOTA",
        f"The container may use {container_cores:g} cores where the work may take {needed}.",
        quota_cores=container_cores,
        needed_cores=needed,
        device_cores=cores,
    )


MULTIMODAL_MIN_RUNS = 5
# Runs -> the ratio of the two scatters that one set in a hundred exceeds; for counts between two, that of the lower.
MULTIMODAL_LIMITS = {
    5: 108.0,
    6: 53.0,
    7: 35.0,
    8: 26.5,
    10: 18.0,
    12: 14.3,
    15: 11.4,
    20: 8.7,
    30: 6.7,
    50: 4.8,
    100: 3.5,
}
# Groups closer than the margin inside which two results count as the same don't matter.
MULTIMODAL_MIN_SHIFT = 0.02


def multimodal(medians: Sequence[float]) -> ResultWarning | None:
    """`medians`: one per run. Silent below five runs, which can't tell two modes from scatter."""
    if len(medians) < MULTIMODAL_MIN_RUNS:
        return None
    ordered = sorted(medians)
    scatters = {cut: _scatter_ratio(ordered[:cut], ordered[cut:]) for cut in range(1, len(ordered))}
    cut = max(scatters, key=lambda place: scatters[place])
    shift = (ordered[cut] - ordered[cut - 1]) / median(ordered)
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
    """Sum of squares between two groups over that within them; infinite where neither scatters at all."""
    low_mean, high_mean = math.fsum(low) / len(low), math.fsum(high) / len(high)
    within = math.fsum((value - low_mean) ** 2 for value in low) + math.fsum((value - high_mean) ** 2 for value in high)
    between = (high_mean - low_mean) ** 2 * len(low) * len(high) / (len(low) + len(high))
    return between / within if within > 0 else math.inf


# Measured with a loop of known length, one clock scatters by 2 % beside busy processes (`dyno.devices.cpu_speed`).
DRIFT_LIMIT = 0.03


def throttled(sensors: Sensors | None) -> ResultWarning | None:
    """The device lowered its clock for heat or power while samples were taken, by its own account."""
    if sensors is None or not (sensors.throttle_reasons or sensors.throttle_events):
        return None
    reasons: list[JsonValue] = list(sensors.throttle_reasons or [])
    named = f" ({', '.join(sensors.throttle_reasons)})" if sensors.throttle_reasons else ""
    return warning(
        "THROTTLED",
        f"The device lowered its clock for heat or power while samples were taken{named}.",
        reasons=reasons,
        share_of_looks=sensors.throttled_share,
        events=sensors.throttle_events,
        temperature_c=sensors.temperature_c,
    )


def device_shared(sensors: Sensors | None) -> ResultWarning | None:
    """Other processes than the runner had the device open after the last sample."""
    if sensors is None or not sensors.other_processes:
        return None
    return warning("DEVICE_SHARED", other_processes=sensors.other_processes, utilisation=sensors.utilisation)


def clock_drift(clocks_hz: Sequence[float | None]) -> ResultWarning | None:
    """The clocks of the runs, as far as they are known, lie more than 3 % apart."""
    known = [clock for clock in clocks_hz if clock is not None]
    if len(known) < 2:
        return None
    spread = (max(known) - min(known)) / median(known)
    if spread <= DRIFT_LIMIT:
        return None
    message = f"The clock was {min(known) / 1e9:.2f} to {max(known) / 1e9:.2f} GHz over the runs."
    return warning("CLOCK_DRIFT", message, clocks_hz=list(clocks_hz), spread=spread, limit=DRIFT_LIMIT)


def unchecked_by_sensors(device: Device, records: Sequence[RunRecord]) -> set[str]:
    """The codes of this file that nothing could check of these runs."""
    seen = [record.summary.sensors or Sensors() for record in records]
    clocked = len(records) > 1 and all(record.summary.clock_hz is not None for record in records)
    told = all(each.throttle_reasons is not None or each.throttle_events is not None for each in seen)
    missing = set() if clocked else {"CLOCK_DRIFT"}
    if not told and not (clocked and device.driven_as == "cpu"):
        missing.add("THROTTLED")
    if device.driven_as == "gpu" and any(each.other_processes is None for each in seen):
        missing.add("DEVICE_SHARED")
    return missing
