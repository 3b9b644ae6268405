"""Commands that submit jobs and wait for them, and commands about jobs and their files.

`run`, `rerun` and `compare` submit with an idempotency key, so that even Ctrl-C during the submit can cancel the job.
While they wait, Ctrl-C cancels the job. If the service becomes unreachable, the job continues.
"""

import json
import re
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import JsonValue

from dyno.artifact_store import is_artifact_name
from dyno.charts.roofline import roofline, works_of
from dyno.cli import app as cli
from dyno.cli import listings, render
from dyno.cli.progress_bars import live_progress
from dyno.cli.spec_options import (
    OF_WORKLOAD,
    BaselineAllow,
    JobId,
    JobOptions,
    Workload,
    complete_job_ids,
    finite_json,
    service_schema,
)
from dyno.client import DEFAULT_URL, Client, JobNotSucceeded, Refused, ServerUnreachable
from dyno.errors import CommandExit, DynoError
from dyno.formatting import format_duration
from dyno.models.comparison import PAIRS, Comparative, Comparison
from dyno.models.job import Status, new_ulid
from dyno.models.result import Artifact, Result, Verdict
from dyno.models.spec import CONFIDENCE, MARGIN

T = TypeVar("T")
_PLOT = "File to save the roofline to, .svg or .png: what limits the work, and how near it came."


def _cancel_message(client: Client, job_id: str) -> str:
    try:
        return f"{client.cancel(job_id).id}: cancel requested"
    except Refused:
        return f"{job_id}: ended before it could be canceled"
    except ServerUnreachable as error:
        return f"{job_id}: not canceled, it goes on: {error.detail}"


def submit_once(
    client: Client,
    ask: Callable[..., T],
    id_of: Callable[[T], str],
    interrupted: Callable[[Client, str], str] = _cancel_message,
    kind: str = "job",
) -> T:
    """Call `ask`, which queues a job or a sweep, under a new `idempotency_key`.

    On Ctrl-C, the service may have queued the job or sweep already. This function then calls `ask` again with the same
    key, to get the same job or sweep, calls `interrupted` with its id, and prints the sentence that `interrupted`
    returns.
    """
    under_one_key = partial(ask, idempotency_key=new_ulid())
    try:
        return under_one_key()
    except KeyboardInterrupt:
        try:
            cli.print_line(cli.error_console, interrupted(client, id_of(under_one_key())))
        except Refused:
            pass  # the service has queued nothing
        except ServerUnreachable as error:
            hint = f"a {kind} may have been queued; check with `dyno {kind}s`"
            cli.print_line(cli.error_console, f"{hint}: {error.detail}")
        raise


def wait_for_result(client: Client, job_id: str, show: cli.Show) -> Result:
    """Wait for the job and return its result; see `cancel_on_interrupt` for errors."""
    with live_progress(show.progress) as follow, cancel_on_interrupt(client, job_id):
        try:
            return client.outcome(job_id, follow)
        except JobNotSucceeded as ended:
            if ended.job.failure is None:
                raise
            raise DynoError(f"{ended.detail}\n`dyno logs {job_id}{_at(client.url)}` prints its log.") from ended


def _at(url: str) -> str:
    """The option that makes another command call the same service."""
    return "" if url == DEFAULT_URL else f" --url {url}"


@contextmanager
def cancel_on_interrupt(client: Client, job_id: str) -> Iterator[None]:
    """Cancel the job on Ctrl-C, but not if the service becomes unreachable."""
    try:
        yield
    except KeyboardInterrupt:
        cli.print_line(cli.error_console, _cancel_message(client, job_id))
        raise
    except ServerUnreachable as error:
        hint = f"{job_id} goes on; run `dyno result {job_id}` once the service is back"
        raise ServerUnreachable(f"{error.detail}\n{hint}") from error


_LOCAL = "Measure here, without a service. Nothing is kept, and the result isn't compared with earlier ones."
_BASELINE = "Name from `dyno baseline list`. Exit with 5 if the job is proven slower than its margin allows."
_FAIL_ON_RUN = "With --baseline: exit with 5 if the job is proven slower (always), or also if it is inconclusive."
_TIME = "ISO 8601 with a time zone: 2026-11-22T04:05:06Z."


class FailOn(StrEnum):
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"


Verbose = Annotated[bool, typer.Option("--verbose", help="Print all metrics, phases, warnings and notes.")]
Require = Annotated[Verdict | None, typer.Option(help="Exit with 1 if the verdict is lower than this.")]


@cli.command(**OF_WORKLOAD)
def run(
    context: typer.Context,
    show: cli.Show,
    workload: Workload,
    job: JobOptions,
    baseline: Annotated[str | None, typer.Option(help=_BASELINE)] = None,
    baseline_allow: BaselineAllow = None,
    fail_on: Annotated[list[FailOn] | None, typer.Option(help=_FAIL_ON_RUN)] = None,
    require: Require = None,
    verbose: Verbose = False,
    local: Annotated[bool, typer.Option("--local", help=_LOCAL)] = False,
    url: cli.Url = DEFAULT_URL,
) -> None:
    """Submit a job, wait for it, print its result. Ctrl-C cancels the job.

    The workload's own params are options too: --n 4096, --batch-size 32. `dyno run NAME --help` lists them.
    """
    if baseline is None and (fail_on or baseline_allow):
        raise typer.BadParameter("--fail-on and --baseline-allow need --baseline")
    if local:
        _check_instrument()
        from dyno.cli.local import local_schema, run_here, usage_errors

        with usage_errors():
            result = run_here(job.spec(workload, context.args, local_schema, baseline), show.progress)
        _print_job_result(show, result, url, require, verbose=True)
        return
    with cli.retrying_client(url) as client:
        spec = job.spec(workload, context.args, partial(service_schema, client), baseline)
        spec["baseline_allow"] = list(baseline_allow or [])
        _say_how_long(client, spec)
        queued = submit_once(client, partial(client.submit, spec), lambda job: job.id)
        result = wait_for_result(client, queued.id, show)
    _print_job_result(show, result, url, require, verbose)
    if result.baseline is not None and result.baseline.outcome in (fail_on or []):
        raise typer.Exit(CommandExit.SLOWER)


def _check_instrument() -> None:
    if find_spec("numpy") is None:
        raise DynoError("--local needs the instrument: pip install '.[cpu]' in a checkout")


def _say_how_long(client: Client, spec: dict[str, JsonValue]) -> None:
    """Say on stderr how long the job will take. The submit reports errors in the spec."""
    try:
        estimate = client.validate(spec).estimate
    except Refused:
        return
    if estimate is not None:
        cli.print_line(cli.error_console, f"takes about {format_duration(estimate.time_s)} on {estimate.device}")


@cli.command()
def rerun(client: Client, show: cli.Show, job_id: JobId, require: Require = None, verbose: Verbose = False) -> None:
    """Submit a job's spec as a new job, wait for it, print its result. Ctrl-C cancels the new job."""
    again = submit_once(client, partial(client.rerun, job_id), lambda job: job.id)
    _print_job_result(show, wait_for_result(client, again.id, show), client.url, require, verbose)


@cli.command()
def result(
    client: Client,
    show: cli.Show,
    job_id: JobId,
    require: Require = None,
    verbose: Verbose = False,
    plot: Annotated[Path | None, typer.Option(dir_okay=False, callback=cli.picture_to_write, help=_PLOT)] = None,
) -> None:
    """Print the result of a finished job."""
    answer = client.result(job_id)
    if plot is not None:
        cli.save(plot, _roofline(answer, plot.suffix))
    _print_job_result(show, answer, client.url, require, verbose)


def _roofline(answer: Result, suffix: str) -> bytes:
    picture = roofline(f"Roofline of {answer.workload}", works_of(answer))
    if picture is None:
        why = next((roof.reason for roof in answer.roofs if roof.reason), "its work does no FLOP that Dyno counts")
        raise DynoError(f"{answer.job} has no roofline: {why}")
    if suffix == ".png" and find_spec("PIL") is None:
        raise DynoError("a PNG needs Pillow, which isn't installed here; save an .svg instead")
    return picture.png() if suffix == ".png" else picture.svg().encode()


def _print_job_result(show: cli.Show, answer: Result, url: str, require: Verdict | None, verbose: bool) -> None:
    """Print the result. Exit code 1 if the verdict is lower than required, 5 if the job fails its baseline, 6 if the
    job and the baseline can't be compared.
    """
    more = f"dyno result {answer.job} --verbose{_at(url)}"
    show(answer, partial(render.result, more=None if verbose else more))
    if require is not None and answer.verdict.rank < require.rank:
        why = render.reasons(answer)
        raise DynoError(f"{require} is required, but the result of {answer.job} is {answer.verdict}: {why}")
    if answer.baseline is None:
        return
    if answer.baseline.outcome == "fail":
        raise typer.Exit(CommandExit.SLOWER)
    if answer.verdict is Verdict.UNTRUSTED or answer.baseline.other_work:
        raise typer.Exit(CommandExit.NOT_JUDGED)


@cli.command()
def jobs(
    client: Client,
    show: cli.Show,
    status: Annotated[Status | None, typer.Option(help="Only jobs with this status.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only jobs of this workload.")] = None,
    device: Annotated[str | None, typer.Option(help="A kind, or an id with or without its host.")] = None,
    framework: Annotated[str | None, typer.Option(help="tensorflow, jax or torch.")] = None,
    label: Annotated[str | None, typer.Option(help="name, or name=value.")] = None,
    created_after: Annotated[str | None, typer.Option(help=_TIME)] = None,
    created_before: Annotated[str | None, typer.Option(help=_TIME)] = None,
    imported: Annotated[bool | None, typer.Option(help="Only imported jobs, or only the others.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs.")] = 50,
) -> None:
    """List the newest jobs that match all filters."""
    rows = client.jobs(
        status=status,
        workload=workload,
        device=device,
        framework=framework,
        label=label,
        created_after=created_after,
        created_before=created_before,
        imported=imported,
        limit=limit,
    )
    documents = [row.model_dump(mode="json") for row in rows]  # scripts read `schema_version`, not the API's `schema`
    show(documents, lambda console, _: listings.jobs(console, rows))


@cli.command()
def artifacts(
    client: Client,
    show: cli.Show,
    job_id: JobId,
    save: Annotated[
        Path | None,
        typer.Option(file_okay=False, writable=True, callback=cli.expand_home, help="Folder to download them to."),
    ] = None,
) -> None:
    """List the files that a job has stored; with --save, download them."""
    rows = client.artifacts(job_id)
    if save is not None:
        _download_all(client, job_id, rows, save)
    show(rows, listings.artifacts)


def _download_all(client: Client, job_id: str, rows: list[Artifact], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        if not is_artifact_name(row.name):  # the name becomes a local path, so don't trust the service
            raise DynoError(f"{client.url} lists a file with an invalid name, so nothing is saved: {row.name!r}")
        client.download(job_id, row, folder / row.name)


@cli.command(name="open")
def open_page(client: Client, job_id: JobId) -> None:
    """Open the job's page in the browser, and print its address."""
    page = f"{client.url}/jobs/{client.job(job_id).id}"
    typer.echo(page)
    webbrowser.open(page)


JobIds = Annotated[list[str], typer.Argument(help="Job ids from `dyno jobs`.", autocompletion=complete_job_ids)]
JobOutcome = tuple[JsonValue, str]  # the outcome as JSON and as a sentence


@cli.command()
def cancel(client: Client, show: cli.Show, job_ids: JobIds) -> None:
    """Cancel queued jobs at once and running jobs within 5 s. Exit code 3 if a job had succeeded or failed before."""

    def one(job_id: str) -> JobOutcome:
        job = client.cancel(job_id)
        return job.model_dump(mode="json"), f"{job.id}: {'canceled' if job.done else 'cancel requested'}"

    _for_each_job(job_ids, one, show.as_json)


@cli.command()
def delete(client: Client, show: cli.Show, job_ids: JobIds) -> None:
    """Delete done jobs with their results, files and logs. Exit code 3 if a job isn't done."""

    def one(job_id: str) -> JobOutcome:
        client.delete(job_id)
        return {"job": job_id, "deleted": True}, f"{job_id}: deleted"

    _for_each_job(job_ids, one, show.as_json)


def _for_each_job(job_ids: list[str], ask: Callable[[str], JobOutcome], as_json: bool) -> None:
    """Call `ask` for each job, even after a refusal, and print all outcomes."""
    outcomes, refused = list[JsonValue](), False
    try:
        for job_id in dict.fromkeys(job_ids):
            try:
                document, sentence = ask(job_id)
            except Refused as error:
                refused = True
                cli.print_error(f"{job_id}: {error.detail}")
                continue
            outcomes.append(document)
            if not as_json:
                cli.print_line(cli.console, sentence)
    finally:
        if as_json:
            typer.echo(json.dumps(outcomes, indent=2))
    if refused:
        raise typer.Exit(CommandExit.REFUSED)


@cli.command()
def logs(
    client: Client,
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", help="Print new output until the job is done.")] = False,
) -> None:
    """Print the output of a job's runners, the last 256 KiB at most. Ctrl-C stops printing, not the job.

    Exit code 0 if all output was read, even if the job failed.
    """
    for text in client.follow_logs(job_id) if follow else [client.logs(job_id)]:
        typer.echo(text, nl=False)


_BARS = "File to save a bar chart to, as SVG."
_FAIL_ON = "Exit with 5 if a result is SLOWER (always), or also if one is INCONCLUSIVE. May be repeated."
_JOB = re.compile("job_[0-9A-Z]{26}")


@cli.command()
def compare(
    context: typer.Context,
    client: Client,
    show: cli.Show,
    first: Annotated[str, typer.Argument(help="A job, or a file with a spec.", autocompletion=complete_job_ids)],
    others: Annotated[
        list[str],
        typer.Argument(help="Further jobs, or one file with a second spec.", autocompletion=complete_job_ids),
    ],
    base: Annotated[str | None, typer.Option(help="Compare with this job; a job id, or its index from 0.")] = None,
    fail_on: Annotated[list[FailOn] | None, typer.Option(help=_FAIL_ON)] = None,
    metric: Annotated[str | None, typer.Option(help="Metric to compare; the workload's first by default.")] = None,
    margin: Annotated[
        float, typer.Option(callback=cli.finite, help="Ratios that count as the same: 0.02 is ±2 %.")
    ] = MARGIN,
    confidence: Annotated[
        float, typer.Option(callback=cli.finite, help="Confidence level of the intervals.")
    ] = CONFIDENCE,
    pairs: Annotated[int, typer.Option(help="For specs: runs of each, in turns; an even number.")] = PAIRS,
    control: Annotated[bool, typer.Option(help="For specs: run the first twice, to show the noise.")] = True,
    bars: Annotated[Path | None, typer.Option(dir_okay=False, callback=cli.file_to_write, help=_BARS)] = None,
) -> None:
    """Compare results that have the same metric, or run two specs in turns and compare them.

    Exit code 5 if a result is SLOWER than the base, 6 if a result is untrusted. A spec is a JSON file with the body of
    POST /v1/jobs. Ctrl-C cancels the job that runs the specs.
    """
    names = [first, *others]
    job_ids = [name for name in names if _JOB.fullmatch(name)]
    if job_ids and len(job_ids) < len(names):
        other = next(name for name in names if name not in job_ids)
        raise typer.BadParameter(f"{other} isn't a job id: name jobs alone, or two files with specs")
    for_specs = [option for option in cli.given_options(context) if option in ("--pairs", "--control")]
    if job_ids and for_specs:
        raise typer.BadParameter(f"{', '.join(for_specs)}: for specs alone; the jobs have made their runs")
    base_index = 0 if base is None else _base_index(base, names)
    options: dict[str, Any] = {"metric": metric, "margin": margin, "confidence": confidence}
    if job_ids:
        answer = client.compare(names, base=base_index, **options)
    else:
        if base_index > 0:
            raise typer.BadParameter("two specs are compared with the first: name the base's file first")
        specs = [_read_spec(name) for name in names]
        answer = _run_specs(client, specs, show, options | {"pairs": pairs, "control": control})
    if bars is not None:
        cli.save(bars, client.bars(answer.id).encode())
    show(answer, render.comparison)
    verdicts = {row.ratio.verdict for row in answer.results if row.ratio is not None}
    if Comparative.SLOWER in verdicts:
        raise typer.Exit(CommandExit.SLOWER)
    if answer.verdict is Verdict.UNTRUSTED:  # ratios of wrong figures have no meaning
        raise typer.Exit(CommandExit.NOT_JUDGED)
    if FailOn.INCONCLUSIVE in (fail_on or []) and Comparative.INCONCLUSIVE in verdicts:
        raise typer.Exit(CommandExit.SLOWER)


def _base_index(base: str, names: list[str]) -> int:
    if base in names:
        return names.index(base)
    if base.isdecimal() and int(base) < len(names):
        return int(base)
    raise typer.BadParameter(f"--base {base} is neither one of the compared names nor an index below {len(names)}")


def _read_spec(name: str) -> dict[str, Any]:
    try:
        document = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{name} is neither a job id nor a readable file with a spec: {error}") from error
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{name} must contain a JSON object")
    return finite_json(document, name)


def _run_specs(client: Client, specs: list[dict[str, Any]], show: cli.Show, options: dict[str, Any]) -> Comparison:
    if len(specs) != 2:
        raise typer.BadParameter(f"{len(specs)} specs given; name exactly two")
    begun = submit_once(client, partial(client.begin_comparison, *specs, **options), lambda begun: begun.job)
    with cancel_on_interrupt(client, begun.job):
        with live_progress(show.progress) as follow:
            client.wait(begun.job, follow)
        return client.comparison(begun.id)
