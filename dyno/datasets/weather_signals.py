"""The 20 signals of the weather, their order, and the hours they cover."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache

STATIONS = ("Aotizhongxin", "Changping", "Gucheng", "Huairou", "Shunyi")
QUANTITIES = ("temp", "pressure", "wind_speed", "wind_dir_deg")
SIGNALS = tuple(f"{station} {quantity}" for station in STATIONS for quantity in QUANTITIES)
DIRECTIONS = frozenset(place for place, signal in enumerate(SIGNALS) if signal.endswith("wind_dir_deg"))
START = datetime(2013, 3, 1)
HOURS = 35_064
TRAIN_HOURS = HOURS * 9 // 10  # the first ones; the others are held out


@cache
def times() -> tuple[str, ...]:
    """Each hour in its turn as "2013-03-01T00:00", local time, which in these years is never shifted."""
    return tuple((START + timedelta(hours=hour)).isoformat(timespec="minutes") for hour in range(HOURS))
