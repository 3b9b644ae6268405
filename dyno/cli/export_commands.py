"""`dyno export` and `dyno import`: results and samples as files, and results of another Dyno."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dyno import tables
from dyno.cli import app as cli
from dyno.cli.job_commands import retrying_client
from dyno.client import DEFAULT_URL, Client, Refused, ServerUnreachable
from dyno.errors import DynoError
from dyno.models.result import RunSamples
from dyno.models.result_export import ImportReport


class ExportFormat(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


_TIME = "A time as in 2026-01-31T12:00:00Z."
_FORMAT = "By default the ending of the file's name. Only jsonl can be imported."


@cli.app.command()
@cli.exit_codes
def export(
    out: Annotated[Path, typer.Option(dir_okay=False, writable=True, callback=cli.expand_home, help="File to write.")],
    format: Annotated[ExportFormat | None, typer.Option(help=_FORMAT)] = None,
    samples_of: Annotated[str | None, typer.Option(help="Export the samples of this job instead of results.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only this workload.")] = None,
    device: Annotated[str | None, typer.Option(help="Only this device kind or id.")] = None,
    metric: Annotated[str | None, typer.Option(help="Only this metric; jsonl has whole results.")] = None,
    label: Annotated[str | None, typer.Option(help="Only jobs with this label: name or name=value.")] = None,
    created_after: Annotated[str | None, typer.Option(help=_TIME)] = None,
    created_before: Annotated[str | None, typer.Option(help=_TIME)] = None,
    imported: Annotated[bool | None, typer.Option(help="Only imported results, or only the others.")] = None,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Save results, or the samples of a job, as a file. Without filters, all results are saved."""
    chosen = format or _format_of(out)
    filters: dict[str, Any] = {"workload": workload, "device": device, "label": label, "imported": imported}
    filters |= {"created_after": created_after, "created_before": created_before}
    with retrying_client(url) as client:
        if samples_of is not None:
            count, what = _save_samples(client.samples(samples_of), out, chosen), "samples"
        elif chosen is ExportFormat.JSONL:
            count, what = _save_lines(client.exported_lines(**filters), out), "results"
        else:
            rows = _rows(client, metric=metric, **filters)
            count, what = tables.save_table(rows, tables.RESULT_COLUMNS, out, chosen), "rows"
    cli.print_result({"file": str(out), "count": count}, as_json, f"{out}: {count} {what}")


def _format_of(out: Path) -> ExportFormat:
    try:
        return ExportFormat(out.suffix.removeprefix("."))
    except ValueError as error:
        raise typer.BadParameter(f"set --format: {out.name} doesn't end with .csv, .jsonl or .parquet") from error


def _rows(client: Client, **filters: Any) -> Iterator[tables.Row]:
    for page in client.result_pages(**filters):
        for row in page:
            yield row.model_dump(mode="json")


def _save_samples(runs: list[RunSamples], out: Path, format: ExportFormat) -> int:
    if format is ExportFormat.JSONL:
        _save_lines((run.model_dump_json() for run in runs), out)
        return sum(len(run.warmup) + len(run.samples) for run in runs)
    rows = (row for run in runs for row in tables.sample_rows(run))
    return tables.save_table(rows, tables.SAMPLE_COLUMNS, out, format)


def _save_lines(lines: Iterable[str], out: Path) -> int:
    """Save the lines, and return their number. A file of an earlier run is replaced at the end."""
    new, count = out.with_name(f".{out.name}.new"), 0
    try:
        with new.open("w", encoding="utf-8", newline="\n") as file:
            for count, line in enumerate(lines, 1):  # noqa: B007
                file.write(f"{line}\n")
        new.replace(out)
    finally:
        new.unlink(missing_ok=True)
    return count


_FROM = "Names the Dyno that ran the jobs; by default its URL when it exported them."


@cli.app.command("import")
@cli.exit_codes
def import_results(
    file: Annotated[Path, typer.Argument(callback=cli.expand_home, help="A file of `dyno export`.")],
    source: Annotated[str | None, typer.Option("--from", help=_FROM)] = None,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Import results that another Dyno exported as JSON lines. Repeating it changes nothing.

    The service takes 100 lines at a time, all or none. If a line is refused, those before its hundred stay imported.
    """
    reports = list[ImportReport]()
    with retrying_client(url) as client, file.open(encoding="utf-8", newline="\n") as lines:
        try:
            for report in client.import_lines(lines, source=source):
                reports.append(report)
        except (Refused, ServerUnreachable, UnicodeDecodeError) as error:
            cli.print_line(cli.error_console, f"stopped after: {_said(reports)}")
            if isinstance(error, UnicodeDecodeError):  # a compressed file, or Parquet
                raise DynoError(f"{file} isn't a file of `dyno export --format jsonl`: {error}") from error
            raise
    counts = {"imported": _new(reports), "already": sum(report.already for report in reports)}
    cli.print_result(counts, as_json, _said(reports))


def _new(reports: list[ImportReport]) -> int:
    return sum(report.imported for report in reports)


def _said(reports: list[ImportReport]) -> str:
    return f"{_new(reports)} results imported, {sum(report.already for report in reports)} were here before"
