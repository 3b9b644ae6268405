"""The forms in which the weather is read; a missing value is NaN here.

- `beijing_weather_hourly_2013-2017.csv.gz`: one row an hour and station, the weather columns alone.
- `PRSA_Data_<station>_20130301-20170228.csv`, one file a station, as published.
- the extract that ships: one line a signal, its name and its values in turn, in xz.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dyno.datasets.weather_signals import HOURS, QUANTITIES, SIGNALS, STATIONS, hours
from dyno.errors import DatasetDamaged

COMBINED = "beijing_weather_hourly_2013-2017.csv.gz"
SAMPLE = Path(__file__).parent / "samples" / "weather" / "beijing_20_signals_hourly_2013-2017.csv.xz"
_COMPASS = ["N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW"]
_DEGREES = {point: str(place * 22.5) for place, point in enumerate(_COMPASS)} | {"NA": "NA", "": ""}
_MISSING = {"", "NA"}
_MOST_BYTES = 1 << 28

Found = tuple[NDArray[np.float32], dict[str, str]]
Table = NDArray[np.float32]


def from_folder(folder: Path) -> Found | None:
    """Values (hours, 20) and the files' sums, None where none of the files is. Raises DatasetDamaged."""
    if (folder / COMBINED).exists():
        return _combined(folder / COMBINED)
    files = {station: sorted(folder.rglob(f"PRSA_Data_{station}_*.csv")) for station in STATIONS}
    if not any(files.values()):
        return None
    absent = [station for station, found in files.items() if not found]
    if absent:
        raise DatasetDamaged(f"{folder}: incomplete, without PRSA_Data_*.csv of {', '.join(absent)}")
    paths = {station: found[0] for station, found in files.items()}
    tables, sha256 = [], {}
    for station, path in paths.items():
        content = _content(path)
        sha256[path.name] = hashlib.sha256(content).hexdigest()
        tables.append(_table(_upstream(content, path), station, path))
    return np.hstack(tables), sha256


def sample() -> Found:
    """The extract that ships: the 20 signals with all their hours."""
    packed = _content(SAMPLE)
    try:
        lines = [line.split(",") for line in lzma.decompress(packed).decode().splitlines()]
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise DatasetDamaged(f"{SAMPLE}: can't be unpacked: {error}") from error
    if [line[0] for line in lines] != list(SIGNALS) or {len(line) for line in lines} != {1 + HOURS}:
        raise DatasetDamaged(f"{SAMPLE}: not the {len(SIGNALS)} signals of {HOURS} hours each")
    values = np.column_stack([_numbers(line[1:], SAMPLE) for line in lines])
    return values, {SAMPLE.name: hashlib.sha256(packed).hexdigest()}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetDamaged(f"{path}: {error}") from error


Row = tuple[str, str, list[str]]  # station, time as "2013-03-01T00:00", the four quantities


def _combined(path: Path) -> Found:
    packed = _content(path)
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            text = stream.read(_MOST_BYTES).decode()
        rows = [
            (row["station"], row["time"], [row[quantity] for quantity in QUANTITIES])
            for row in csv.DictReader(text.splitlines())
            if row["station"] in STATIONS
        ]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, KeyError) as error:
        raise DatasetDamaged(f"{path}: can't be read: {error!r}") from error
    tables = [_table((row for row in rows if row[0] == station), station, path) for station in STATIONS]
    return np.hstack(tables), {path.name: hashlib.sha256(packed).hexdigest()}


def _upstream(content: bytes, path: Path) -> list[Row]:
    try:
        return [
            (
                row["station"],
                f"{row['year']}-{row['month']:0>2}-{row['day']:0>2}T{row['hour']:0>2}:00",
                [row["TEMP"], row["PRES"], row["WSPM"], _DEGREES[row["wd"]]],
            )
            for row in csv.DictReader(content.decode().splitlines())
        ]
    except (UnicodeDecodeError, csv.Error, KeyError, TypeError) as error:
        raise DatasetDamaged(f"{path}: can't be read: {error!r}") from error


def _table(rows: Iterable[Row], station: str, path: Path) -> Table:
    """The four quantities of one station, whose hours must be all there, in order."""
    mine = list(rows)
    times = [f"{hour:%Y-%m-%dT%H:%M}" for hour in hours()]
    if [row[1] for row in mine] != times or {row[0] for row in mine} != {station}:
        raise DatasetDamaged(f"{path}: not the {HOURS} hours of {station} from {times[0]} to {times[-1]}, in order")
    return np.column_stack([_numbers([row[2][place] for row in mine], path) for place in range(len(QUANTITIES))])


def _numbers(texts: list[str], path: Path) -> NDArray[np.float32]:
    try:
        return np.array([np.nan if text in _MISSING else float(text) for text in texts]).astype(np.float32)
    except ValueError as error:
        raise DatasetDamaged(f"{path}: {error}") from error
