"""Hourly weather at five stations of Beijing, 2013-03-01 00:00 to 2017-02-28 23:00 local time: 20 signals.

UCI data set 501 (S. Chen, doi 10.24432/C5RK5G, CC BY 4.0). Looked for in `<data_dir>/weather/`, then in Keras' cache,
as `weather_files.py` says; else the extract that ships. Stations with a weather of their own only: of the twelve some
share one. What is there but damaged or incomplete is an error. A synthetic twin only when it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dyno.datasets import weather_files, weather_twin
from dyno.datasets.choice import Forms, choose, folders, looked_in
from dyno.datasets.kinds import DataKind
from dyno.datasets.weather_signals import DIRECTIONS, SIGNALS, START, TRAIN_HOURS
from dyno.models.result import DataOrigin
from dyno.settings import Settings

NAME = "weather"


@dataclass(frozen=True)
class Weather:
    """`values` float32 (hours, 20) without gaps, one column a signal: °C, hPa, m/s, degrees from north; `start` the
    first hour, local time. The first `origin.train_samples` hours are for training, the rest is held out."""

    values: NDArray[np.float32]
    signals: tuple[str, ...]
    start: datetime
    origin: DataOrigin


def load(settings: Settings, kind: DataKind = "auto") -> Weather:
    """The weather of that kind; `auto` is real, else the sample, which holds the same values.

    Raises DatasetDamaged, naming the file, and RunFailed (unsupported, dataset_missing) where `real` is not here.
    """
    forms = Forms(
        NAME,
        real=lambda: _real(settings),
        sample=lambda: _weather(*weather_files.sample(), "sample"),
        synthetic=lambda: _weather(weather_twin.synthetic(), {}, "synthetic"),
        absent=f"no weather here: looked for {weather_files.COMBINED} and PRSA_Data_<station>_*.csv in "
        f"{looked_in(settings, NAME)}",
    )
    return choose(settings, kind, forms)


def _real(settings: Settings) -> Weather | None:
    for folder in folders(settings, NAME):
        found = weather_files.from_folder(folder)
        if found is not None:
            return _weather(*found, "real")
    return None


def _weather(
    values: NDArray[np.float32], sha256: dict[str, str], kind: Literal["real", "sample", "synthetic"]
) -> Weather:
    gaps = int(np.isnan(values).sum())
    origin = DataOrigin(
        name=NAME,
        kind=kind,
        sha256=sha256,
        train_samples=TRAIN_HOURS,
        test_samples=len(values) - TRAIN_HOURS,
        note=f"{gaps:,} of {values.size:,} values missing: directions filled by the last one before, the others by "
        "linear interpolation"
        if gaps
        else None,
    )
    return Weather(filled(values), SIGNALS, START, origin)


def filled(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Without NaN: a direction is the last one before, others on the line between their neighbours in time.

    At either end, where there is no neighbour, the nearest value.
    """
    complete = values.copy()
    hours = np.arange(len(values))
    for column in np.flatnonzero(np.isnan(values).any(axis=0)):
        known = np.flatnonzero(~np.isnan(values[:, column]))
        if column in DIRECTIONS:
            last = np.searchsorted(known, hours, side="right") - 1
            complete[:, column] = values[known[last.clip(0)], column]
        else:
            complete[:, column] = np.interp(hours, known, values[known, column])
    return complete
