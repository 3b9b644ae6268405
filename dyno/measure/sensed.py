"""Checks of class B on what sensors said: was the device throttled, shared, or at another clock in each run?

No sensor is no excuse for silence, and no reason against a number either: `unsensed` says which of these checks
nothing at all could make. Where no counter exists, as in most virtual machines, a CPU's clock is measured in every
run, on one core right after the samples: it doesn't show what the load alone lowered, but a clock that was lower in
one run than in another, and what throttling does within a run shows in its samples (warm-up, NO_STEADY_STATE). What is
left is a clock that was lowered alike in every sample; its figure repeats, and a code of class B has nothing to say of
it. Who else used a CPU is NOISY_NEIGHBOUR's business; a TPU's chips can be opened by one process only. A GPU tells all
three, or they stay unchecked.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from dyno.devices.device import Device
from dyno.measure.statistics import median
from dyno.measure.warnings import warning
from dyno.models.result import ResultWarning, Sensors
from dyno.models.runner_protocol import RunRecord

# Measured with a loop of known length, one clock scatters by 2 % beside busy processes (`dyno.devices.bursts`).
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


def unsensed(device: Device, records: Sequence[RunRecord]) -> set[str]:
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
