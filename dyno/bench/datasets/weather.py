"""Read hourly weather at five stations of Beijing, 2013-03-01 00:00 to 2017-02-28 23:00 local time: 20 signals.

UCI data set 501 (S. Chen, doi 10.24432/C5RK5G, CC BY 4.0). Search order: `<data_dir>/weather/`, Keras' cache, the
shipped extract. Dyno uses only stations with their own weather data: some of the twelve share it. Damaged or incomplete
files are an error. Dyno uses synthetic data (yearly and daily cycles, fronts that pass all stations, noise) only on
request. It supports four forms; a missing value is NaN until `filled`:

- `beijing_weather_hourly_2013-2017.csv.gz`: one row per hour and station, weather columns only.
- `PRSA_Data_<station>_20130301-20170228.csv`: one published file per station, in `weather/` or a subfolder.
- UCI's archive, or the archive inside it, with those files.
- The shipped extract: one line per signal with its name and values, xz-compressed.
"""

import csv
import gzip
import hashlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dyno.bench.datasets.loading import DataKind, Forms, choose_form, folders, searched_folders
from dyno.errors import DatasetDamaged
from dyno.models.result import DataOrigin
from dyno.settings import Settings

STATIONS = ("Aotizhongxin", "Changping", "Gucheng", "Huairou", "Shunyi")
QUANTITIES = ("temp", "pressure", "wind_speed", "wind_dir_deg")
SIGNALS = tuple(f"{station} {quantity}" for station in STATIONS for quantity in QUANTITIES)
DIRECTIONS = frozenset(place for place, signal in enumerate(SIGNALS) if signal.endswith("wind_dir_deg"))
START = datetime(2013, 3, 1)
HOURS = 35_064
TRAIN_HOURS = HOURS * 9 // 10  # the first 90 %; the rest is held out


@cache
def times() -> tuple[str, ...]:
    """All hours in order as "2013-03-01T00:00", in local time, which had no daylight saving in these years."""
    return tuple((START + timedelta(hours=hour)).isoformat(timespec="minutes") for hour in range(HOURS))


# compass points, clockwise from north in steps of 22.5 degrees
COMPASS = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")
_MISSING = {"", "NA"}
_DEGREES = {point: str(place * 22.5) for place, point in enumerate(COMPASS)} | dict.fromkeys(_MISSING, "")

Row = tuple[str, str, list[str]]  # station, local time as "2013-03-01T00:00", the four quantities


def combined_rows(content: bytes, path: Path) -> list[Row]:
    """Parse the rows `station,time,…` of the five stations."""
    try:
        lines = content.decode().splitlines()
        names = lines[0].split(",")
        station, time, *quantities = (names.index(name) for name in ("station", "time", *QUANTITIES))
        mine = [line for line in lines if line.startswith(STATIONS)]
        return [(row[station], row[time], [row[column] for column in quantities]) for row in csv.reader(mine)]
    except (UnicodeDecodeError, ValueError, IndexError, csv.Error) as error:
        raise DatasetDamaged(f"{path}: can't be read: {error!r}") from error


def published_rows(content: bytes, path: Path) -> list[Row]:
    """Parse one station's published file: `No,year,month,day,hour,…,TEMP,PRES,…,wd,WSPM,station`."""
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


def station_table(rows: Sequence[Row], station: str, path: Path) -> NDArray[np.float32]:
    """Values (hours, 4) of one station. Raises DatasetDamaged unless all hours are present and in order."""
    mine, expected = [row for row in rows if row[0] == station], times()
    if tuple(row[1] for row in mine) != expected:
        span = f"from {expected[0]} to {expected[-1]}"
        raise DatasetDamaged(f"{path}: expected the {len(expected)} hours of {station} {span}, in order")
    return np.column_stack([parse_numbers([row[2][column] for row in mine], path) for column in range(len(QUANTITIES))])


def parse_numbers(texts: Sequence[str], path: Path) -> NDArray[np.float32]:
    """Parse numbers; missing numbers become NaN. Raises DatasetDamaged if one is invalid or infinite, or all miss."""
    try:
        values = np.array([np.nan if text in _MISSING else float(text) for text in texts])
    except (TypeError, ValueError) as error:
        raise DatasetDamaged(f"{path}: {error}") from error
    if np.isinf(values).any() or np.isnan(values).all():
        raise DatasetDamaged(f"{path}: a column has no numbers or an infinite one")
    return values.astype(np.float32)


COMBINED = "beijing_weather_hourly_2013-2017.csv.gz"
ARCHIVES = ("beijing+multi+site+air+quality+data.zip", "PRSA2017_Data_20130301-20170228.zip")
SAMPLE = Path(__file__).parent / "samples" / "weather" / "beijing_20_signals_hourly_2013-2017.csv.xz"
_MOST_BYTES = 1 << 28  # limit for one decompressed file

FoundWeather = tuple[NDArray[np.float32], dict[str, str]]  # values (hours, 20), sha256 by file name


def read_folder(folder: Path) -> FoundWeather | None:
    """Read the first of the three forms in `folder`, or None. Raises DatasetDamaged with a file name."""
    if (folder / COMBINED).exists():
        return _combined(folder / COMBINED)
    loose = {path: _content(path) for path in sorted(folder.rglob("PRSA_Data_*.csv")) if _station(path)}
    if loose:
        return _by_station(folder, loose)
    for name in ARCHIVES:
        if (folder / name).exists():
            return _archived(folder / name)
    return None


def read_sample() -> FoundWeather:
    """Read the shipped extract: 20 signals with all their hours."""
    packed = _content(SAMPLE)
    try:
        lines = [line.split(",") for line in lzma.decompress(packed).decode().splitlines()]
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise DatasetDamaged(f"{SAMPLE}: can't be unpacked: {error}") from error
    if [line[0] for line in lines] != list(SIGNALS) or {len(line) for line in lines} != {1 + HOURS}:
        raise DatasetDamaged(f"{SAMPLE}: expected {len(SIGNALS)} signals of {HOURS} hours each")
    values = np.column_stack([parse_numbers(line[1:], SAMPLE) for line in lines])
    return values, {SAMPLE.name: _sha256(packed)}


def _combined(path: Path) -> FoundWeather:
    packed = _content(path)
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            content = stream.read(_MOST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetDamaged(f"{path}: can't be unpacked: {error}") from error
    rows = combined_rows(content, path)
    return np.hstack([station_table(rows, station, path) for station in STATIONS]), {path.name: _sha256(packed)}


def _by_station(place: Path, files: dict[Path, bytes]) -> FoundWeather:
    """Combine the published files, one per station."""
    paths = {_station(path): path for path in files}
    absent = [station for station in STATIONS if station not in paths]
    if absent:
        raise DatasetDamaged(f"{place}: incomplete; missing: PRSA_Data_*.csv of {', '.join(absent)}")
    tables = []
    for station in STATIONS:
        path = paths[station]
        tables.append(station_table(published_rows(files[path], path), station, path))
    return np.hstack(tables), {paths[station].name: _sha256(files[paths[station]]) for station in STATIONS}


def _station(path: Path) -> str | None:
    return next((station for station in STATIONS if path.name.startswith(f"PRSA_Data_{station}_")), None)


def _archived(path: Path) -> FoundWeather:
    try:
        files = _inside(_content(path), path)
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise DatasetDamaged(f"{path}: can't be unpacked: {error}") from error
    return _by_station(path, files)


def _inside(packed: bytes, path: Path) -> dict[Path, bytes]:
    """The station files in a zip archive or in the zip archive inside it."""
    files: dict[Path, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for member in archive.infolist():
            inside = path / member.filename
            if inside.name in ARCHIVES and path.name not in ARCHIVES[1:]:
                files |= _inside(_member(archive, member), inside)
            elif _station(inside):
                files[inside] = _member(archive, member)
    return files


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with archive.open(member) as stream:
        return stream.read(_MOST_BYTES)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetDamaged(f"{path}: {error}") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


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

    `start`: the first hour, local time. The first `origin.train_samples` hours are for training; the rest is held out.
    """

    values: NDArray[np.float32]
    signals: tuple[str, ...]
    start: datetime
    origin: DataOrigin


def load(settings: Settings, kind: DataKind = "auto") -> Weather:
    """Load the weather of that kind; `auto` is real, else the sample, which holds the same values.

    Raises DatasetDamaged with the file's name, and RunFailed (unsupported, dataset_missing) without real files.
    """
    forms = Forms(
        NAME,
        real=lambda: _real(settings),
        sample=lambda: _weather(*read_sample(), "sample"),
        synthetic=lambda: _weather(synthetic_values(), {}, "synthetic"),
        absent=f"weather data not found: looked for {COMBINED} and PRSA_Data_<station>_*.csv in "
        f"{searched_folders(settings, NAME)}",
    )
    return choose_form(settings, kind, forms)


def _real(settings: Settings) -> Weather | None:
    for folder in folders(settings, NAME):
        contents = read_folder(folder)
        if contents is not None:
            return _weather(*contents, "real")
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
        note=f"{gaps:,} of {values.size:,} values missing: directions filled with the previous value, others by linear "
        "interpolation"
        if gaps
        else None,
    )
    return Weather(filled(values), SIGNALS, START, origin)


def filled(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Replace NaN: directions by the previous value, others by linear interpolation in time.

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
