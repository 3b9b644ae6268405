"""The 20 signals of the weather, their order, and the hours they cover."""

from __future__ import annotations

from datetime import datetime, timedelta

STATIONS = ("Aotizhongxin", "Changping", "Gucheng", "Huairou", "Shunyi")
QUANTITIES = ("temp", "pressure", "wind_speed", "wind_dir_deg")
SIGNALS = tuple(f"{station} {quantity}" for station in STATIONS for quantity in QUANTITIES)
DIRECTIONS = frozenset(place for place, signal in enumerate(SIGNALS) if signal.endswith("wind_dir_deg"))
START = datetime(2013, 3, 1)
HOURS = 35_064


def hours() -> list[datetime]:
    """Each hour in its turn, local time, which in Beijing is never shifted."""
    return [START + timedelta(hours=hour) for hour in range(HOURS)]
