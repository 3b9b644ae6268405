"""Read hourly weather at five stations of Beijing, 2013-03-01 00:00 to 2017-02-28 23:00 local time: 20 signals.

UCI data set 501 (S. Chen, doi 10.24432/C5RK5G, CC BY 4.0). Dyno uses five of its twelve stations, because others share
the data of one of these. Dyno ships all hours of the five, one line per signal with name and values, compressed with
xz. So `auto` is always real, and `sample` means the same values. Dyno uses synthetic data (yearly and daily cycles,
fronts that pass all stations, noise) only on request. Missing values are NaN until `filled` replaces them.
"""

import hashlib
import lzma
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dyno.bench.datasets.loading import DataKind, Forms, choose_form
from dyno.errors import DatasetDamaged
from dyno.models.result import DataOrigin
from dyno.settings import Settings

STATIONS = ("Aotizhongxin", "Changping", "Gucheng", "Huairou", "Shunyi")
QUANTITIES = ("temp", "pressure", "wind_speed", "wind_dir_deg")
SIGNALS = tuple(f"{station} {quantity}" for station in STATIONS for quantity in QUANTITIES)
DIRECTIONS = frozenset(column for column, signal in enumerate(SIGNALS) if signal.endswith("wind_dir_deg"))
HOURS = 35_064
TRAIN_HOURS = HOURS * 9 // 10  # the first 90 %; the rest is held out
SHIPPED = Path(__file__).parent / "samples" / "weather" / "beijing_20_signals_hourly_2013-2017.csv.xz"
SHIPPED_SHA256 = "214a0ce9f52483fc73920c5e09dafd69aa7ab55a56fb23ed7115a2d2d37fb9ae"


def read_shipped() -> NDArray[np.float32]:
    """Values (hours, 20), NaN where missing. Raises DatasetDamaged if the file isn't the shipped file."""
    try:
        packed = SHIPPED.read_bytes()
    except OSError as error:
        raise DatasetDamaged(f"{SHIPPED}: {error}") from error
    if (sha256 := hashlib.sha256(packed).hexdigest()) != SHIPPED_SHA256:
        raise DatasetDamaged(f"{SHIPPED}: sha256 {sha256}, expected {SHIPPED_SHA256}; install Dyno again")
    columns = [line.split(",")[1:] for line in lzma.decompress(packed).decode().splitlines()]
    return np.column_stack([np.array([float(text or "nan") for text in column], np.float32) for column in columns])


_DAY, _YEAR = 24, 24 * 365.25  # hours
_KEPT = 0.98  # share of a front's strength that remains after an hour


def synthetic_values() -> NDArray[np.float32]:
    """Deterministic, learnable values (hours, 20) in the order and units of the real signals."""
    random = np.random.Generator(np.random.SFC64(HOURS))
    hours = np.arange(HOURS)
    year, day = np.cos(2 * np.pi * hours / _YEAR), np.cos(2 * np.pi * (hours - 15) / _DAY)
    front = _drifting(random)
    turning = _drifting(random)
    columns = []
    for _ in STATIONS:
        noise = random.normal(0, 1, (4, HOURS))
        temp = 13 - 14 * np.cos(2 * np.pi * (hours + 59 * _DAY) / _YEAR) + 5 * day + 3 * front + 0.5 * noise[0]
        pressure = 1011 + 9 * year - 6 * front + 0.4 * noise[1]
        speed = np.abs(1.8 + 0.7 * day + 0.9 * front + 0.5 * noise[2])
        direction = np.round((180 + 60 * turning + 60 * day + 10 * noise[3]) / 22.5) * 22.5 % 360
        columns += [temp, pressure, speed, direction]
    return np.column_stack(columns).astype(np.float32)


def _drifting(random: np.random.Generator) -> NDArray[np.float64]:
    """A mean-reverting random walk with standard deviation 1, predictable for a day or two."""
    pushes: list[float] = random.normal(0, np.sqrt(1 - _KEPT**2), HOURS).tolist()
    levels = accumulate(pushes, lambda level, push: _KEPT * level + push)
    return np.fromiter(levels, np.float64)


NAME = "weather"


@dataclass(frozen=True)
class Weather:
    """`values`: float32 (hours, 20) without gaps, one column per signal: °C, hPa, m/s, degrees from north.

    The first `origin.train_samples` hours are for training; the rest is held out.
    """

    values: NDArray[np.float32]
    signals: tuple[str, ...]
    origin: DataOrigin


def load(settings: Settings, kind: DataKind = "auto") -> Weather:
    """Load the weather of that kind. Raises DatasetDamaged with the file's name."""
    forms = Forms(
        NAME,
        real=_real,
        sample=_real,
        synthetic=lambda: _weather(synthetic_values(), {}, "synthetic"),
        absent="",  # the shipped file is always available
    )
    return choose_form(settings, kind, forms)


def _real() -> Weather:
    return _weather(read_shipped(), {SHIPPED.name: SHIPPED_SHA256}, "real")


def _weather(values: NDArray[np.float32], sha256: dict[str, str], kind: Literal["real", "synthetic"]) -> Weather:
    gaps = int(np.isnan(values).sum())
    origin = DataOrigin(
        name=NAME,
        kind=kind,
        sha256=sha256,
        train_samples=TRAIN_HOURS,
        test_samples=len(values) - TRAIN_HOURS,
        note=f"{gaps:,} of {values.size:,} values missing: directions filled with the previous value, others by linear "
        "interpolation"
        if gaps
        else None,
    )
    return Weather(filled(values), SIGNALS, origin)


def filled(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Replace NaN: in directions by the previous value, in other signals by linear interpolation in time.

    At both ends, use the nearest value.
    """
    complete = values.copy()
    hours = np.arange(len(values))
    for column in np.flatnonzero(np.isnan(values).any(axis=0)):
        measured = np.flatnonzero(~np.isnan(values[:, column]))
        if column in DIRECTIONS:
            last = np.searchsorted(measured, hours, side="right") - 1
            complete[:, column] = values[measured[last.clip(0)], column]
        else:
            complete[:, column] = np.interp(hours, measured, values[measured, column])
    return complete
