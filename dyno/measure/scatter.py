"""Checks of class B on samples and runs: will the number repeat?"""

from __future__ import annotations

from collections.abc import Sequence

from dyno.devices.device import Device
from dyno.measure.rule import FLOOR_S, FLOOR_SAMPLE_S, FLOOR_SAMPLES
from dyno.measure.statistics import Interval, median
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning
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
