"""Rows of the weather's CSV files, and the table of one station that they make."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dyno.datasets.weather_signals import QUANTITIES, STATIONS, times
from dyno.errors import DatasetDamaged

# points of the compass, clockwise from north, each 22.5 degrees on
COMPASS = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")
_MISSING = {"", "NA"}
_DEGREES = {point: str(place * 22.5) for place, point in enumerate(COMPASS)} | dict.fromkeys(_MISSING, "")

Row = tuple[str, str, list[str]]  # station, local time as "2013-03-01T00:00", the four quantities


def combined(content: bytes, path: Path) -> list[Row]:
    """Rows `station,time,…` of the five stations."""
    try:
        lines = content.decode().splitlines()
        names = lines[0].split(",")
        station, time, *quantities = (names.index(name) for name in ("station", "time", *QUANTITIES))
        mine = [line for line in lines if line.startswith(STATIONS)]
        return [(row[station], row[time], [row[place] for place in quantities]) for row in csv.reader(mine)]
    except (UnicodeDecodeError, ValueError, IndexError, csv.Error) as error:
        raise DatasetDamaged(f"{path}: can't be read: {error!r}") from error


def published(content: bytes, path: Path) -> list[Row]:
    """Rows of one station's file as published: `No,year,month,day,hour,…,TEMP,PRES,…,wd,WSPM,station`."""
    try:
        return [
            (
                row["station"],
                f"{row['year']}-{row['month']:0>2}-{row['day']:0>2}T{row['hour']:0>2}:00",
                [row["TEMP"], row["PRES"], row["WSPM"], _DEGREES[row["wd"]]],
            )
            for row in csv.DictReader(content.decode().splitlines())
        ]
    except (UnicodeDecodeError, KeyError, TypeError, csv.Error) as error:
        raise DatasetDamaged(f"{path}: can't be read: {error!r}") from error


def table(rows: Sequence[Row], station: str, path: Path) -> NDArray[np.float32]:
    """Values (hours, 4) of one station, whose hours must all be there, in order. Raises DatasetDamaged."""
    mine, expected = [row for row in rows if row[0] == station], times()
    if tuple(row[1] for row in mine) != expected:
        span = f"from {expected[0]} to {expected[-1]}"
        raise DatasetDamaged(f"{path}: not the {len(expected)} hours of {station} {span}, in order")
    return np.column_stack([numbers([row[2][place] for row in mine], path) for place in range(len(QUANTITIES))])


def numbers(texts: Sequence[str], path: Path) -> NDArray[np.float32]:
    """A missing one is NaN. Raises DatasetDamaged for what is no finite number, and where all are missing."""
    try:
        values = np.array([np.nan if text in _MISSING else float(text) for text in texts])
    except (TypeError, ValueError) as error:
        raise DatasetDamaged(f"{path}: {error}") from error
    if np.isinf(values).any() or np.isnan(values).all():
        raise DatasetDamaged(f"{path}: a column holds no number, or one that isn't finite")
    return values.astype(np.float32)
