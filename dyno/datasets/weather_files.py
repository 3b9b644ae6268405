"""The forms in which the weather is read; a missing value is NaN here.

- `beijing_weather_hourly_2013-2017.csv.gz`: one row an hour and station, the weather columns alone.
- `PRSA_Data_<station>_20130301-20170228.csv`, one file a station, as published, in `weather/` or a folder of it.
- UCI's archive, or the one inside it, which hold those.
- the extract that ships: one line a signal, its name and its values in turn, in xz.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dyno.datasets import weather_rows
from dyno.datasets.weather_signals import HOURS, SIGNALS, STATIONS
from dyno.errors import DatasetDamaged

COMBINED = "beijing_weather_hourly_2013-2017.csv.gz"
ARCHIVES = ("beijing+multi+site+air+quality+data.zip", "PRSA2017_Data_20130301-20170228.zip")
SAMPLE = Path(__file__).parent / "samples" / "weather" / "beijing_20_signals_hourly_2013-2017.csv.xz"
_MOST_BYTES = 1 << 28  # of one file, unpacked

Found = tuple[NDArray[np.float32], dict[str, str]]  # values (hours, 20), sha256 by file name


def from_folder(folder: Path) -> Found | None:
    """The first of the three forms in `folder`, None where there is none. Raises DatasetDamaged, naming the file."""
    if (folder / COMBINED).exists():
        return _combined(folder / COMBINED)
    loose = {path: _content(path) for path in sorted(folder.rglob("PRSA_Data_*.csv")) if _station(path)}
    if loose:
        return _by_station(folder, loose)
    for name in ARCHIVES:
        if (folder / name).exists():
            return _archived(folder / name)
    return None


def sample() -> Found:
    """The extract that ships: the 20 signals with all their hours."""
    packed = _content(SAMPLE)
    try:
        lines = [line.split(",") for line in lzma.decompress(packed).decode().splitlines()]
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise DatasetDamaged(f"{SAMPLE}: can't be unpacked: {error}") from error
    if [line[0] for line in lines] != list(SIGNALS) or {len(line) for line in lines} != {1 + HOURS}:
        raise DatasetDamaged(f"{SAMPLE}: not the {len(SIGNALS)} signals of {HOURS} hours each")
    values = np.column_stack([weather_rows.numbers(line[1:], SAMPLE) for line in lines])
    return values, {SAMPLE.name: _sha256(packed)}


def _combined(path: Path) -> Found:
    packed = _content(path)
    try:
        with gzip.open(io.BytesIO(packed)) as stream:
            content = stream.read(_MOST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetDamaged(f"{path}: can't be unpacked: {error}") from error
    rows = weather_rows.combined(content, path)
    return np.hstack([weather_rows.table(rows, station, path) for station in STATIONS]), {path.name: _sha256(packed)}


def _by_station(place: Path, files: dict[Path, bytes]) -> Found:
    """From one published file a station."""
    paths = {_station(path): path for path in files}
    absent = [station for station in STATIONS if station not in paths]
    if absent:
        raise DatasetDamaged(f"{place}: incomplete, without PRSA_Data_*.csv of {', '.join(absent)}")
    tables = []
    for station in STATIONS:
        path = paths[station]
        tables.append(weather_rows.table(weather_rows.published(files[path], path), station, path))
    return np.hstack(tables), {paths[station].name: _sha256(files[paths[station]]) for station in STATIONS}


def _station(path: Path) -> str | None:
    return next((station for station in STATIONS if path.name.startswith(f"PRSA_Data_{station}_")), None)


def _archived(path: Path) -> Found:
    try:
        files = _inside(_content(path), path)
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise DatasetDamaged(f"{path}: can't be unpacked: {error}") from error
    return _by_station(path, files)


def _inside(packed: bytes, path: Path) -> dict[Path, bytes]:
    """The stations' files in a zip archive, or in the zip archive inside it."""
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
