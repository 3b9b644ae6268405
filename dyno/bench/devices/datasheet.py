"""Read the data-sheet peaks of accelerators from `peaks.csv`, which has one row per device, with its source.

All figures are dense (no sparsity). `models` lists the names that NVML or the host gives the device, separated by
"|", without "NVIDIA" or "Tesla". A name must match in full, so "A10" doesn't match an A100 and a MIG slice doesn't
match a whole device. A figure is for `of_chips` chips of the named model. Rates are in 1e12 operations per second,
`memory` in 1e9 bytes per second, `last_cache` in MiB (a GPU's L2). A cell is empty if the source has no figure.
"""

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dyno.models.device import PeakFigure

TABLE = Path(__file__).with_name("peaks.csv")
DTYPES = ("float32", "tf32", "bfloat16", "float16", "int8", "fp8")
_TEXT_COLUMNS = ("kind", "name", "models", "source", "dated")
COLUMNS = ("kind", "name", "models", "of_chips", *DTYPES, "memory", "last_cache", "source", "dated")
_DATE = re.compile(r"^20\d\d(-[01]\d)?$")
_MAKERS = ("nvidia ", "tesla ")


@dataclass(frozen=True)
class DatasheetRow:
    """`figures` of one chip: operations per second by dtype, bytes per second ("memory"), bytes ("last_cache")."""

    kind: str
    name: str
    models: tuple[str, ...]
    figures: dict[str, float]
    source: str


@dataclass(frozen=True)
class DatasheetPeaks:
    """Peaks of several chips together: compute by dtype, and memory bandwidth. The cache size is for one chip."""

    by_dtype: dict[str, PeakFigure]
    memory: PeakFigure
    last_cache_bytes: int | None = None


def datasheet_peaks(kind: str, model: str, chips: int) -> DatasheetPeaks:
    """The data sheet's figures for `chips` chips of `model`; null with a reason if the table has none."""
    row = next((row for row in peak_table() if row.kind == kind and _plain(model) in row.models), None)
    memory = _figure(row, "memory", model, chips, "bytes/s")
    units = {dtype: "OP/s" if dtype.startswith("int") else "FLOP/s" for dtype in DTYPES}
    cache_bytes = None if row is None else row.figures.get("last_cache")
    return DatasheetPeaks(
        {dtype: _figure(row, dtype, model, chips, unit) for dtype, unit in units.items()},
        memory,
        None if cache_bytes is None else int(cache_bytes),
    )


def part_of_peaks(peaks: DatasheetPeaks, own: int, of: int, memory_own: int, memory_of: int) -> DatasheetPeaks:
    """The peaks of a slice with `own` of the chip's `of` multiprocessors, and with a part of its memory and cache."""
    cache_bytes = peaks.last_cache_bytes
    return DatasheetPeaks(
        {dtype: _part(figure, own, of, "multiprocessors") for dtype, figure in peaks.by_dtype.items()},
        _part(peaks.memory, memory_own, memory_of, "parts of the memory"),
        None if cache_bytes is None else cache_bytes * memory_own // memory_of,
    )


def _part(figure: PeakFigure, own: int, of: int, parts: str) -> PeakFigure:
    if figure.value is None:
        return figure
    source = f"{figure.source}; {own} of {of} {parts}"
    return figure.model_copy(update={"value": figure.value * own / of, "source": source})


def no_peaks(reason: str) -> DatasheetPeaks:
    """All figures null, with `reason`."""
    return DatasheetPeaks(
        {dtype: PeakFigure(value=None, reason=reason) for dtype in DTYPES},
        PeakFigure(value=None, unit="bytes/s", reason=reason),
    )


@cache
def peak_table(path: Path = TABLE) -> tuple[DatasheetRow, ...]:
    """All rows. Raises ValueError, with the line number, for a row that is incomplete, not numeric or a duplicate."""
    with path.open(newline="") as stream:
        reader = csv.DictReader(stream, restkey="more")
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path.name}: the columns must be {','.join(COLUMNS)}")
        rows = tuple(_row(cells, f"{path.name}, line {reader.line_num}") for cells in reader)
    names = [(row.kind, name) for row in rows for name in (f"row {row.name}", *row.models)]
    if doubled := sorted({f"{kind} {name}" for kind, name in names if names.count((kind, name)) > 1}):
        raise ValueError(f"{path.name}: duplicates: {', '.join(doubled)}")
    return rows


def _row(cells: dict[str, str], where: str) -> DatasheetRow:
    if missing := [name for name in _TEXT_COLUMNS if not cells[name]]:
        raise ValueError(f"{where}: empty: {', '.join(missing)}")
    if cells["kind"] not in ("gpu", "tpu") or not _DATE.match(cells["dated"]) or "more" in cells:
        raise ValueError(
            f"{where}: kind must be gpu or tpu, dated must look like 2023 or 2023-05, with one cell per column"
        )
    chips = _number(cells["of_chips"], where)
    figures = {dtype: _number(cells[dtype], where) * 1e12 / chips for dtype in DTYPES if cells[dtype]}
    if not figures:
        raise ValueError(f"{where}: the row has no figure")
    for column, unit in (("memory", 1e9), ("last_cache", float(2**20))):
        if cells[column]:
            figures[column] = _number(cells[column], where) * unit / chips
    models = tuple(_plain(model) for model in cells["models"].split("|"))
    return DatasheetRow(cells["kind"], cells["name"], models, figures, f"{cells['source']}, {cells['dated']}")


def _number(text: str, where: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) == 0:
        raise ValueError(f'{where}: "{text}" is not a positive number')
    return float(text)


def _figure(row: DatasheetRow | None, column: str, model: str, chips: int, unit: str) -> PeakFigure:
    if row is None:
        return PeakFigure(value=None, unit=unit, reason=f"the peak table has no {model}")
    if column not in row.figures:
        return PeakFigure(value=None, unit=unit, reason=f"the peak table has no {column} figure for {row.name}")
    return PeakFigure(value=row.figures[column] * chips, unit=unit, provenance="datasheet", source=row.source)


def _plain(model: str) -> str:
    """The name in lower case without the maker: drivers before 465 omit "NVIDIA", newer drivers omit "Tesla"."""
    plain = " ".join(model.casefold().split())
    for maker in _MAKERS:
        plain = plain.removeprefix(maker)
    return plain
