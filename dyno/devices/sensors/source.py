"""What every source of sensor readings has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Look:
    """All sensors at one moment; None where one doesn't tell.

    `energy_j` and `throttle_events` are counters: only their differences mean something.
    """

    energy_j: float | None = None
    temperature_c: float | None = None
    clocks_hz: Mapping[str, float] = field(default_factory=dict)
    throttle_reasons: frozenset[str] | None = None
    throttle_events: int | None = None


@dataclass(frozen=True)
class Users:
    """Who else holds the device, and the share of time in which anything ran on it; None where nobody tells."""

    other_processes: int | None = None
    utilisation: float | None = None


class Source(Protocol):
    """`energy_of`: whose energy is counted. Below `least_energy_s` seconds its counter is too coarse."""

    energy_of: str
    least_energy_s: float

    def look(self) -> Look:
        """Read all sensors; never raises."""

    def users(self) -> Users:
        """Asked once, after the last sample, while this process still holds the device; never raises."""

    def reasons(self) -> dict[str, str]:
        """Field of `dyno.models.result.Sensors` -> why this source doesn't tell it."""


class NoSensors:
    """A device that tells nothing, for one reason."""

    energy_of, least_energy_s = "nothing", 0.0
    _FIELDS = (
        *("energy_j", "temperature_c", "clocks_hz", "throttle_reasons", "throttle_events"),
        *("other_processes", "utilisation"),
    )

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def look(self) -> Look:
        return Look()

    def users(self) -> Users:
        return Users()

    def reasons(self) -> dict[str, str]:
        return dict.fromkeys(self._FIELDS, self._reason)
