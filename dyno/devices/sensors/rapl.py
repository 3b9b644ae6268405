"""RAPL: the energy that processor packages used, from /sys/class/powercap (Intel, and AMD since Zen).

Documentation/power/powercap/powercap.rst in the Linux kernel. Since CVE-2020-8694 only root may read the counters.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

POWERCAP = Path("class/powercap")  # below /sys
_PACKAGE = re.compile(r"^package-(\d+)")


class Rapl:
    """The packages with the numbers `packages`, counted from the making on; a counter that wrapped is unwrapped.

    It wraps after a quarter of an hour at least, so it must be read more often than that.
    """

    def __init__(self, packages: Collection[int], sys: Path) -> None:
        zones = sorted((sys / POWERCAP).glob("intel-rapl:[0-9]*"))
        self._zones = [zone for zone in zones if _package(zone) in packages]
        self._last_uj: dict[Path, int] = {}
        self._used_uj = 0
        self.reason: str | None = None if self._zones else "there is no energy counter (RAPL) in /sys/class/powercap"

    def energy_j(self) -> float | None:
        """Joules since the first call; None, with `reason`, where a counter can't be read."""
        if not self._zones:
            return None
        try:
            for zone in self._zones:
                self._count(zone)
        except (OSError, ValueError) as error:
            detail = error.strerror if isinstance(error, OSError) else error
            self.reason = f"the energy counter (RAPL) can't be read: {detail}; Linux lets root alone read it"
            return None
        return self._used_uj / 1e6

    def _count(self, zone: Path) -> None:
        now_uj = int((zone / "energy_uj").read_text())
        used_uj = now_uj - self._last_uj.get(zone, now_uj)
        if used_uj < 0:
            used_uj += int((zone / "max_energy_range_uj").read_text())
        self._last_uj[zone] = now_uj
        self._used_uj += used_uj


def _package(zone: Path) -> int | None:
    """The number of the package that a zone counts; None for its parts ("core", "dram") and for the whole board."""
    try:
        match = _PACKAGE.match((zone / "name").read_text())
    except OSError:
        return None
    return int(match[1]) if match else None
