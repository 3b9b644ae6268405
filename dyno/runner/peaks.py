"""A second look at the peak of a CPU's cores, where a figure is above the one that was measured before."""

from __future__ import annotations

from collections.abc import Sequence

from dyno.devices.device import Device, PeakFigure
from dyno.devices.peak import measure_cpu_peaks
from dyno.measure.statistics import median
from dyno.runner.subjects import Subject


def measured_anew(device: Device, subjects: Sequence[Subject]) -> dict[str, PeakFigure]:
    """Right after the samples; empty where no figure is above a peak that rests on a measurement.

    The first one may have been taken at a lower clock than the samples, or beside others who used the same pipes. A
    data sheet's figure stays what it is.
    """
    if device.kind != "cpu" or not device.cores or not any(_above(device, each) for each in subjects):
        return {}
    return measure_cpu_peaks(device.cores)


def _above(device: Device, subject: Subject) -> bool:
    figure = device.peak.get(subject.dtype)
    if figure is None or figure.value is None or figure.provenance == "datasheet":
        return False
    return subject.flops > figure.value * median(subject.taken.samples.samples)
