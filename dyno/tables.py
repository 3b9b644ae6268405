"""Tables of results, samples and sweeps, as CSV, Markdown and Parquet.

The columns of a saved file are known only after its last row, because jobs have different params and labels. So the
rows wait in a temporary file, and memory holds at most a few thousand rows. Parquet needs PyArrow, an optional package
of 50 MB, so the service itself writes no Parquet.
"""

import csv
import io
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO, get_args

from pydantic import JsonValue

from dyno.bench.measure.result_metrics import is_over_seeds
from dyno.errors import DynoError
from dyno.formatting import format_quantity, spreadsheet_cell
from dyno.models import sweep as sweep_model
from dyno.models.job import Job, Status
from dyno.models.result import Result, ResultSummary, RunSamples, VariantName
from dyno.models.result_export import ResultRow
from dyno.models.spec import Spec

Row = Mapping[str, JsonValue]
# Names of columns, and the kinds of their values.
Columns = Mapping[str, type]
RESULT_COLUMNS: Final[Columns] = {
    **dict.fromkeys(ResultRow.model_fields, str),
    **dict.fromkeys(("value", "low", "high", "repeat_low", "repeat_high"), float),
    **dict.fromkeys(("time", "finished_at"), datetime),
    "imported": bool,
}
SAMPLE_COLUMNS: Final[Columns] = {
    **{"run": int, "case": str, "phase": str, "index": int, "time_s": float, "user_s": float, "system_s": float},
    **{"executions": int, "arm": str},
}
_ROWS_AT_ONCE = 2000


def metric_rows(job: Job, figures: Result | ResultSummary, metric: str | None = None) -> Iterator[dict[str, JsonValue]]:
    """The rows of one job in the table of results, as JSON values. With `metric`, only the rows of that metric."""
    arms = [figures, *figures.arms]
    names: Sequence[VariantName | None] = get_args(VariantName) if figures.arms else [None]
    for arm, name, spec in zip(arms, names, job.spec.arms, strict=False):
        for figure in arm.metrics:
            if metric in (None, figure.name):
                cells = figure.model_dump(include={"unit", "value", "low", "high", "better"})
                if figure.repeat:
                    cells |= {"repeat_low": figure.repeat.low, "repeat_high": figure.repeat.high}
                row = ResultRow(
                    **{"metric": figure.name, "arm": name, "verdict": arm.verdict}, **cells, **_of_job(job, spec, arm)
                )
                yield row.model_dump(mode="json")


def _of_job(job: Job, spec: Spec, figures: Result | ResultSummary) -> dict[str, Any]:
    device = job.worker and job.worker.full_device
    return {
        "time": job.created_at,
        "finished_at": job.finished_at,
        "job": job.id,
        "workload": spec.workload,
        "framework": spec.framework,
        "device": device,
        "device_model": figures.device.get("model"),
        "hardware_id": figures.hardware_id,
        "precision": figures.precision and figures.precision.in_words,
        "warnings": " ".join(warning.code for warning in figures.warnings),
        "imported": job.imported is not None,
        **{f"label.{name}": value for name, value in spec.labels.items()},
        **{f"param.{name}": _flat(value) for name, value in (spec.params | figures.params).items()},
    }


def _flat(value: JsonValue) -> JsonValue:
    return json.dumps(value) if isinstance(value, list | dict) else value


def characters(row: Row) -> int:
    """The length of a row as JSON, without its punctuation."""
    return sum(len(name) + len(str(value)) for name, value in row.items())


def sample_rows(run: RunSamples) -> Iterator[Row]:
    """The rows of one run. CPU times of warm-up readings aren't stored, so these cells are empty."""
    of_run: dict[str, JsonValue] = {"run": run.run, "case": run.case, "arm": run.arm}
    for index, time_s in enumerate(run.warmup):
        yield of_run | {"phase": "warmup", "index": index, "time_s": time_s}
    for index, (time_s, (user_s, system_s)) in enumerate(zip(run.samples, run.sample_cpu_s, strict=True)):
        times = {"time_s": time_s, "user_s": user_s, "system_s": system_s}
        yield of_run | {"phase": "sample", "index": index, "executions": run.executions_per_sample} | times


def sweep_headings(sweep: sweep_model.Sweep) -> list[str]:
    axes = [axis.removeprefix(sweep_model.PARAM) for axis in sweep.axes]
    figures = [str(sweep.metric), "95 % interval", "next result"]
    figures += ["times as good"] * (sweep.base is not None) + ["scaling efficiency"] * _scales(sweep)
    return axes + figures + ["verdict", "job"]


def _scales(sweep: sweep_model.Sweep) -> bool:
    return any(point.scaling is not None for point in sweep.points)


def sweep_cells(sweep: sweep_model.Sweep) -> list[list[str]]:
    """The rows below `sweep_headings` as text for people, with rounded figures."""
    return [list(_sweep_cells(sweep, point)) for point in sweep.points]


def sweep_conclusions(sweep: sweep_model.Sweep) -> Iterator[str]:
    """Sentences about the batch sizes found, about the runs needed for a verdict on a point, and the notes."""
    for sizes in sweep.batch_sizes:
        at = f" with {sweep_model.in_words(sizes.values)}" if sizes.values else ""
        largest, fastest = (size or "unknown" for size in (sizes.largest_that_fits, sizes.fastest))
        line = f"batch size{at}: largest that fits {largest}, fastest {fastest}"
        yield f"{line} ({sizes.limit})" if sizes.limit else line
    repeated = "runs of each" if sweep.rounds == 1 else "rounds"
    what = "trials of each" if is_over_seeds(sweep.metric or "") else repeated
    for point in sweep.points:
        if point.ratio is not None and point.ratio.more_runs:
            yield f"{sweep_model.in_words(point.values)}: about {point.ratio.more_runs} more {what} would decide"
    yield from sweep.notes


def _sweep_cells(sweep: sweep_model.Sweep, point: sweep_model.SweepPoint) -> Iterator[str]:
    for axis in sweep.axes:
        yield sweep_model.value_text(point.values[axis]) if axis in point.values else "–"
    metric = point.metric(sweep.metric)
    yield format_quantity(metric.value, metric.unit) if metric else "–"
    yield _interval(metric) if metric else "–"
    yield _bounds(metric.repeat.low, metric.repeat.high, metric.unit) if metric and metric.repeat else "–"
    if sweep.base is not None:
        yield "1, the base" if sweep.is_base(point) else _ratio(point)
    if _scales(sweep):
        yield f"{point.scaling.efficiency:.1%}, {point.scaling.kind}" if point.scaling else "–"
    yield _point_state(point)
    yield point.job if len(point.jobs) == 1 else f"{point.job} and {len(point.jobs) - 1} more"


def _point_state(point: sweep_model.SweepPoint) -> str:
    """The point's verdict, or why it has none. It also says how a round without a result ended, and whether the point's
    device is emulated.
    """
    ended = str(point.status_reason or point.status)
    state = str(point.verdict or ended)
    if point.verdict and point.status in (Status.FAILED, Status.CANCELED, "gone"):
        state = f"{state}, a round: {ended}"
    if point.is_emulated:
        state = f"{state}, emulated"
    return f"{state}, stopped: {point.stopped.reason}" if point.stopped else state


def _interval(metric: sweep_model.PointMetric) -> str:
    return metric.reason or "–" if metric.value is None else _bounds(metric.low, metric.high, metric.unit)


def _ratio(point: sweep_model.SweepPoint) -> str:
    """The point's ratio as text, such as `1.5 (1.4 to 1.6), FASTER`."""
    ratio = point.ratio
    if ratio is None:
        return "–"
    if ratio.value is None:
        return ratio.reason or "–"
    interval = "" if ratio.low is None or ratio.high is None else f" ({ratio.low:.4g} to {ratio.high:.4g})"
    return f"{ratio.value:.4g}{interval}, {ratio.verdict}"


def _bounds(low: float | None, high: float | None, unit: str) -> str:
    return "–" if low is None or high is None else f"{format_quantity(low, unit)} to {format_quantity(high, unit)}"


def lines_of(columns: Iterable[str], rows: Iterable[Row], *, header: bool = True) -> Iterator[Sequence[JsonValue]]:
    """The header, and the cells of each row in the header's order; None if the row lacks the column."""
    names = [*columns]
    if header:
        yield names
    yield from ([row.get(name) for name in names] for row in rows)


def csv_text(lines: Iterable[Iterable[JsonValue]]) -> str:
    """The lines as CSV (RFC 4180). Spreadsheets run no cell as a formula."""
    file = io.StringIO()
    _write_csv(file, lines)
    return file.getvalue()


def _write_csv(file: TextIO, lines: Iterable[Iterable[JsonValue]]) -> None:
    csv.writer(file, lineterminator="\r\n").writerows(map(spreadsheet_cell, line) for line in lines)


def markdown_text(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Line breaks in cells become spaces."""
    every = (headings, ["---"] * len(headings), *lines)
    return "".join(f"| {' | '.join(map(_markdown_cell, line))} |\n" for line in every)


def _markdown_cell(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")


def save_table(rows: Iterable[Row], columns: Columns, path: Path, format: str) -> int:
    """Save the rows as a file, `csv` or `parquet`, and return their number. An existing file is replaced at the end.

    If rows have columns that `columns` lacks, these follow, sorted by name. Raises DynoError without PyArrow.
    """
    write = _write_csv_file if format == "csv" else _parquet_writer()
    new = path.with_name(f".{path.name}.new")
    with tempfile.TemporaryFile("w+", encoding="utf-8") as waiting:
        kinds, count = _set_aside(rows, waiting)
        waiting.seek(0)
        more = {name: _one_kind(kinds[name]) for name in sorted(kinds.keys() - columns.keys())}
        try:
            write(map(json.loads, waiting), {**columns, **more}, new)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    return count


def _set_aside(rows: Iterable[Row], file: TextIO) -> tuple[dict[str, set[type]], int]:
    """Write the rows to the file. Returns the kinds of values in each column, and the number of rows."""
    kinds, count = dict[str, set[type]](), 0
    for row in rows:
        count += 1
        file.write(json.dumps(row) + "\n")
        for name, value in row.items():
            kinds_of_column = kinds.setdefault(name, set())
            if value is not None:
                kinds_of_column.add(_kind(value))
    return kinds, count


def _kind(value: JsonValue) -> type:
    if isinstance(value, int) and abs(value) >= 2**63:
        return str  # Parquet has no integers of more than 64 bits
    return type(value)


def _one_kind(kinds: set[type]) -> type:
    if kinds == {int, float}:
        return float
    return next(iter(kinds)) if len(kinds) == 1 else str


def _write_csv_file(rows: Iterable[Row], columns: Columns, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        _write_csv(file, lines_of(columns, rows))


def _parquet_writer() -> Any:
    """The function that writes Parquet. Raises DynoError without PyArrow, before any row is read."""
    try:
        import_module("pyarrow.parquet")
    except ImportError as error:
        raise DynoError("Parquet files need PyArrow: pip install '.[parquet]' in a checkout, or export CSV") from error
    return _write_parquet_file


def _write_parquet_file(rows: Iterator[Row], columns: Columns, path: Path) -> None:
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    types = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
        datetime: pyarrow.timestamp("us", tz="UTC"),
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := [_typed(row, columns) for row in islice(rows, _ROWS_AT_ONCE)]:
            writer.write_table(pyarrow.Table.from_pylist(some, schema))


def _typed(row: Row, columns: Columns) -> dict[str, Any]:
    return {name: _cell(row.get(name), kind) for name, kind in columns.items()}


def _cell(value: JsonValue, kind: type) -> Any:
    if value is None or isinstance(value, kind):
        return value
    if kind is datetime:
        return datetime.fromisoformat(str(value))
    return float(str(value)) if kind is float else json.dumps(value)
