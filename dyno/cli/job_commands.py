"""Commands that submit jobs and wait for them, and commands about jobs, their files and their webhooks.

`run`, `rerun` and `compare` submit under an idempotency key, so that Ctrl-C during the submit can cancel the job.
While they wait, Ctrl-C cancels the job. If the service becomes unreachable, the job goes on.
"""

import json
import re
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import JsonValue
from typer.core import TyperCommand

from dyno.artifact_store import is_artifact_name
from dyno.bench.registry import registry
from dyno.cli import app as cli
from dyno.cli import completion, render
from dyno.client import DEFAULT_URL, Client, JobNotSucceeded, Refused, ServerUnreachable
from dyno.errors import CommandExit, DynoError
from dyno.formatting import did_you_mean, format_duration
from dyno.models import webhook
from dyno.models.baseline import BASELINE_MARGIN
from dyno.models.comparison import PAIRS, Comparative, Comparison
from dyno.models.job import Status, new_ulid
from dyno.models.result import Artifact, Result, Verdict
from dyno.models.spec import BUDGET_S, CONFIDENCE, MARGIN, Measure
from dyno.models.sweep import PRECISION_PARAMS

_WORDS = "dyno.words"
T = TypeVar("T")


class WorkloadCommand(TyperCommand):
    """A command whose help and completion include the params of a workload that is named. It calls no service."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = tuple(args)  # Typer prints help before it parses the arguments
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        more = completion.params(ctx.meta[_WORDS]).shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *more]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        if find_spec("numpy") is None:  # the client alone
            cli.console.print("`dyno workloads NAME` lists the params that a service's workload has.")
            return
        for workload in (candidate for name, candidate in registry().items() if name in ctx.meta[_WORDS]):
            render.params(cli.console, workload.name, workload.description, workload.params.model_json_schema())


def parse_params(pairs: list[str] | None) -> dict[str, JsonValue]:
    """Parse words such as `n=4096`. Raises BadParameter."""
    return {name: parse_value(text) for name, text in parse_pairs(pairs).items()}


def parse_pairs(pairs: list[str] | None) -> dict[str, str]:
    """Parse words such as `team=vision`, each name once. Raises BadParameter."""
    values: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{pair!r} is not name=value")
        if name in values:
            raise typer.BadParameter(f"{name} is given more than once")
        values[name] = text
    return values


def parse_workload_options(
    workload: str, schema: Mapping[str, Any], words: Sequence[str], parse: Callable[..., Any] | None = None
) -> dict[str, JsonValue]:
    """Parse words such as `--n 4096`, `--batch-size=32` or `--jit-compile`. Raises BadParameter with all params.

    schema: the schema of the workload's params. parse: reads the text of a value by the param's schema; `parse_value`
    by default.
    """
    properties: dict[str, Any] = schema.get("properties", {})
    values: dict[str, JsonValue] = {}
    left = list(words)
    while left:
        option, equals, text = left.pop(0).partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if name == "precision":  # as in `dyno sweep`
            name = next((param for param in PRECISION_PARAMS if param in properties), name)
        if not option.startswith("--") or name not in properties:
            meant = did_you_mean(name, properties).replace("_", "-")
            raise typer.BadParameter(f"{workload} has no {option}{meant}; use one of: {_option_names(properties)}")
        if name in values:
            raise typer.BadParameter(f"{option}: {name} is given more than once")
        if equals or (left and not left[0].startswith("--")):
            values[name] = (parse or parse_value)(text if equals else left.pop(0), properties[name])
        elif properties[name].get("type") == "boolean":
            values[name] = True
        else:
            raise typer.BadParameter(f"{option} of {workload} needs a value")
    return values


def parse_value(text: str, schema: dict[str, Any] | None = None) -> JsonValue:
    """Parse the text as JSON. If that fails, or the schema allows only strings, return the text itself."""
    if schema is not None and schema.get("type") == "string":
        return text
    try:
        value: JsonValue = json.loads(text)
    except json.JSONDecodeError:
        return text
    return _finite(value, text)


def _finite(value: T, text: str) -> T:
    """The value that was read from the text. Raises BadParameter if JSON can't hold it: Python reads NaN and 1e999."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise typer.BadParameter(f"{text} has NaN or infinity; name finite numbers") from error
    return value


def _option_names(names: dict[str, Any]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names) or "none"


def retrying_client(url: str) -> Client:
    """A client that says on stderr when a call starts to wait for the service."""
    return Client(url, away=lambda error: cli.print_line(cli.error_console, f"waiting for the service: {error.detail}"))


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

    On Ctrl-C, the service may have queued it already. Then call `ask` again under the same key, which returns the same
    job or sweep. Call `interrupted` with its id, and print the sentence that it returns.
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


def wait_for_result(client: Client, job_id: str, as_json: bool) -> Result:
    """Wait for the job and return its result; see `cancel_on_interrupt` for errors."""
    with (
        render.live_progress(cli.error_console if as_json else cli.console) as follow,
        cancel_on_interrupt(client, job_id),
    ):
        try:
            return client.outcome(job_id, follow)
        except JobNotSucceeded as ended:
            if ended.job.failure is None:
                raise
            raise DynoError(f"{ended.detail}\n`dyno logs {job_id}{_at(client.url)}` prints its log.") from ended


def _at(url: str) -> str:
    """The option that leads a further command to the same service."""
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


_DEVICE = '"cpu", "gpu", "tpu", "any", an id, or JSON such as {"model": "NVIDIA L4"}.'
_QUEUE_IF_ABSENT = "Queue the job even if no live worker has such a device."
_LOCAL = "Measure here, without a service. Nothing is kept, and the result isn't compared with earlier ones."
_BASELINE = "Name from `dyno baseline list`. Exit with 5 if the job is proven slower than its margin allows."
_BASELINE_ALLOW = "What may differ from the baseline's job: params.n, precision, hardware … May be repeated."
_FAIL_ON_RUN = "With --baseline: exit with 5 if the job is proven slower (always), or also if it is inconclusive."
_MEASURED = ", ".join(name for name in Measure.model_fields if name not in ("processes", "budget_s"))
_PROCESSES = "Number of fresh processes to measure in; by default as many as the budget allows, at least 5."
_BUDGET = f"How long to measure, s; by default {BUDGET_S:g}. A larger one gives a narrower interval."
_TIME = "ISO 8601 with a time zone: 2026-11-22T04:05:06Z."


class FailOn(StrEnum):
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"


JobId = Annotated[str, typer.Argument(help="Job id from `dyno jobs`.", autocompletion=completion.job_ids)]
Workload = Annotated[str, typer.Argument(help="Name from `dyno workloads`.", autocompletion=completion.workloads)]
Params = Annotated[list[str] | None, typer.Option("--param", help="name=value; the value is JSON or text.")]
Device = Annotated[str, typer.Option("--device", help=_DEVICE)]
Framework = Annotated[str, typer.Option("--framework", help="tensorflow, jax or torch.")]
Replicas = Annotated[int, typer.Option("--replicas", help="Copies of the model; the batch is split evenly.")]
RunCount = Annotated[int | None, typer.Option("--processes", help=_PROCESSES)]
Budget = Annotated[float | None, typer.Option("--budget", help=_BUDGET)]
Seed = Annotated[int, typer.Option("--seed", help="Seed of data and weights.")]
Measures = Annotated[list[str] | None, typer.Option("--measure", help=f"name=value; one of {_MEASURED}.")]
Labels = Annotated[list[str] | None, typer.Option("--label", help="name=value, to find the job by; may be repeated.")]
BaselineAllow = Annotated[list[str] | None, typer.Option("--baseline-allow", help=_BASELINE_ALLOW)]
QueueIfAbsent = Annotated[bool, typer.Option("--queue-if-absent", help=_QUEUE_IF_ABSENT)]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print all metrics, phases, warnings and notes.")]
Require = Annotated[Verdict | None, typer.Option(help="Exit with 1 if the verdict is lower than this.")]


@cli.app.command(cls=WorkloadCommand, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@cli.exit_codes
def run(
    context: typer.Context,
    workload: Workload,
    param: Params = None,
    device: Device = "any",
    framework: Framework = "tensorflow",
    replicas: Replicas = 1,
    budget: Budget = None,
    processes: RunCount = None,
    seed: Seed = 0,
    measure: Measures = None,
    label: Labels = None,
    queue_if_absent: QueueIfAbsent = False,
    baseline: Annotated[str | None, typer.Option(help=_BASELINE)] = None,
    baseline_allow: BaselineAllow = None,
    fail_on: Annotated[list[FailOn] | None, typer.Option(help=_FAIL_ON_RUN)] = None,
    require: Require = None,
    verbose: Verbose = False,
    local: Annotated[bool, typer.Option("--local", help=_LOCAL)] = False,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Submit a job, wait for it, print its result. Ctrl-C cancels the job.

    The workload's own params are options too: --n 4096, --batch-size 32. `dyno run NAME --help` lists them.
    """
    if baseline is None and (fail_on or baseline_allow):
        raise typer.BadParameter("--fail-on and --baseline-allow need --baseline")
    plain: dict[str, JsonValue] = {"framework": framework, "replicas": replicas, "seed": seed}
    plain["queue_if_absent"] = queue_if_absent
    spec_for = partial(job_spec, workload, context.args, param, device, measure_of(budget, processes, measure), label)
    if local:
        _check_instrument()
        from dyno.cli.local import local_schema, run_here, usage_errors

        with usage_errors():
            result = run_here(spec_for(local_schema, baseline, **plain), as_json)
        _print_job_result(result, as_json, require, True, url)
        return
    with retrying_client(url) as client:
        spec = spec_for(partial(service_schema, client), baseline, **plain)
        spec["baseline_allow"] = list(baseline_allow or [])
        _say_how_long(client, spec)
        job = submit_once(client, partial(client.submit, spec), lambda job: job.id)
        result = wait_for_result(client, job.id, as_json)
    _print_job_result(result, as_json, require, verbose, url)
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


@cli.app.command()
@cli.exit_codes
def rerun(
    job_id: JobId,
    require: Require = None,
    verbose: Verbose = False,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Submit a job's spec as a new job, wait for it, print its result. Ctrl-C cancels the new job."""
    with retrying_client(url) as client:
        again = submit_once(client, partial(client.rerun, job_id), lambda job: job.id)
        answer = wait_for_result(client, again.id, as_json)
    _print_job_result(answer, as_json, require, verbose, url)


def _print_job_result(answer: Result, as_json: bool, require: Verdict | None, verbose: bool, url: str) -> None:
    """Print the result. Exit code 1 if the verdict is lower than required, 5 if the job fails its baseline, 6 if the
    two can't be compared.
    """
    more = f"dyno result {answer.job} --verbose{_at(url)}"
    cli.print_result(answer, as_json, partial(render.result, more=None if verbose else more))
    if require is not None and answer.verdict.rank < require.rank:
        why = render.reasons(answer)
        raise DynoError(f"{require} is required, but the result of {answer.job} is {answer.verdict}: {why}")
    if answer.baseline is None:
        return
    if answer.baseline.outcome == "fail":
        raise typer.Exit(CommandExit.SLOWER)
    if answer.verdict is Verdict.UNTRUSTED or answer.baseline.other_work:
        raise typer.Exit(CommandExit.NOT_JUDGED)


def measure_of(budget: float | None, processes: int | None, measure: list[str] | None) -> dict[str, JsonValue]:
    """The `measure` that --budget, --processes and --measure describe."""
    given: dict[str, JsonValue] = {"budget_s": budget, "processes": processes}
    return {name: value for name, value in given.items() if value is not None} | parse_params(measure)


def service_schema(client: Client, workload: str) -> Mapping[str, Any]:
    """The schema of the params that the service's workload has."""
    return client.workload(workload).params


def job_spec(
    workload: str,
    words: Sequence[str],
    param: list[str] | None,
    device: str,
    measure: Mapping[str, JsonValue],
    label: list[str] | None,
    schema_of: Callable[[str], Mapping[str, Any]],
    baseline: str | None,
    **plain: JsonValue,
) -> dict[str, JsonValue]:
    """The spec that the options of `dyno run` describe. `words`: options of the workload. Raises BadParameter."""
    if workload.startswith("-"):
        raise typer.BadParameter(f"name the workload first, then {workload} and other options")
    params = parse_params(param)
    if words:
        params |= parse_workload_options(workload, schema_of(workload), words)
    return {
        **plain,
        "workload": workload,
        "params": params,
        "device": parse_value(device),
        "labels": {**parse_pairs(label)},
        "measure": {**measure},
        "baseline": baseline,
    }


@cli.app.command()
@cli.exit_codes
def jobs(
    status: Annotated[Status | None, typer.Option(help="Only jobs with this status.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only jobs of this workload.")] = None,
    device: Annotated[str | None, typer.Option(help="A kind, or an id with or without its host.")] = None,
    framework: Annotated[str | None, typer.Option(help="tensorflow, jax or torch.")] = None,
    label: Annotated[str | None, typer.Option(help="name, or name=value.")] = None,
    created_after: Annotated[str | None, typer.Option(help=_TIME)] = None,
    created_before: Annotated[str | None, typer.Option(help=_TIME)] = None,
    imported: Annotated[bool | None, typer.Option(help="Only imported jobs, or only the others.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of jobs.")] = 50,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """List the newest jobs that match all filters."""
    with Client(url) as client:
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
    cli.print_result(documents, as_json, lambda console, _: render.jobs(console, rows))


@cli.app.command()
@cli.exit_codes
def result(
    job_id: JobId,
    require: Require = None,
    verbose: Verbose = False,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Print the result of a finished job."""
    with Client(url) as client:
        answer = client.result(job_id)
    _print_job_result(answer, as_json, require, verbose, url)


@cli.app.command()
@cli.exit_codes
def artifacts(
    job_id: JobId,
    save: Annotated[
        Path | None,
        typer.Option(file_okay=False, writable=True, callback=cli.expand_home, help="Folder to download them to."),
    ] = None,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """List the files that a job has stored; with --save, download them."""
    with Client(url) as client:
        rows = client.artifacts(job_id)
        if save is not None:
            _download_all(client, job_id, rows, save)
    cli.print_result(rows, as_json, render.artifacts)


def _download_all(client: Client, job_id: str, rows: list[Artifact], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        if not is_artifact_name(row.name):  # the name becomes a local path, and the service may be hostile
            raise DynoError(f"{client.url} lists a file with an invalid name, so nothing is saved: {row.name!r}")
        client.download(job_id, row, folder / row.name)


@cli.app.command("open")
@cli.exit_codes
def open_page(job_id: JobId, url: cli.Url = DEFAULT_URL) -> None:
    """Open the job's page in the browser, and print its address."""
    with Client(url) as client:
        page = f"{client.url}/jobs/{client.job(job_id).id}"
    typer.echo(page)
    webbrowser.open(page)


JobIds = Annotated[list[str], typer.Argument(help="Job ids from `dyno jobs`.", autocompletion=completion.job_ids)]
JobOutcome = tuple[JsonValue, str]  # the outcome as JSON and as a sentence


@cli.app.command()
@cli.exit_codes
def cancel(job_ids: JobIds, url: cli.Url = DEFAULT_URL, as_json: cli.AsJson = False) -> None:
    """Cancel queued jobs at once and running jobs within 5 s. Exit code 3 if a job had succeeded or failed before."""
    with Client(url) as client:

        def one(job_id: str) -> JobOutcome:
            job = client.cancel(job_id)
            return job.model_dump(mode="json"), f"{job.id}: {'canceled' if job.done else 'cancel requested'}"

        _for_each_job(job_ids, one, as_json)


@cli.app.command()
@cli.exit_codes
def delete(job_ids: JobIds, url: cli.Url = DEFAULT_URL, as_json: cli.AsJson = False) -> None:
    """Delete done jobs with their results, files and logs. Exit code 3 if a job isn't done."""
    with Client(url) as client:

        def one(job_id: str) -> JobOutcome:
            client.delete(job_id)
            return {"job": job_id, "deleted": True}, f"{job_id}: deleted"

        _for_each_job(job_ids, one, as_json)


@cli.app.command()
@cli.exit_codes
def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", help="Print new output until the job is done.")] = False,
    url: cli.Url = DEFAULT_URL,
) -> None:
    """Print the output of a job's runners, the last 256 KiB at most. Ctrl-C stops printing, not the job.

    Exit code 0 if all output was read, even if the job failed.
    """
    with Client(url) as client:
        for text in client.follow_logs(job_id) if follow else [client.logs(job_id)]:
            typer.echo(text, nl=False)


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


_BARS = "File to save a bar chart to, as SVG."
_FAIL_ON = "Exit with 5 if a result is SLOWER (always), or also if one is INCONCLUSIVE. May be repeated."
_JOB = re.compile("job_[0-9A-Z]{26}")


@cli.app.command()
@cli.exit_codes
def compare(
    context: typer.Context,
    first: Annotated[str, typer.Argument(help="A job, or a file with a spec.", autocompletion=completion.job_ids)],
    others: Annotated[
        list[str],
        typer.Argument(help="Further jobs, or one file with a second spec.", autocompletion=completion.job_ids),
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
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Compare results that have the same metric, or run two specs in turns and compare them.

    Exit code 5 if any is SLOWER than the base, 6 if any is untrusted. A spec is the body of POST /v1/jobs, as a JSON
    file. Ctrl-C cancels the job that runs them.
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
    with retrying_client(url) as client:
        if job_ids:
            answer = client.compare(names, base=base_index, **options)
        else:
            if base_index > 0:
                raise typer.BadParameter("two specs are compared with the first: name the base's file first")
            answer = _run_specs(
                client, [_read_spec(name) for name in names], as_json, options | {"pairs": pairs, "control": control}
            )
        picture = None if bars is None else client.bars(answer.id)
    if bars is not None and picture is not None:
        cli.save(bars, picture.encode())
    cli.print_result(answer, as_json, render.comparison)
    verdicts = {row.ratio.verdict for row in answer.results if row.ratio is not None}
    if Comparative.SLOWER in verdicts:
        raise typer.Exit(CommandExit.SLOWER)
    if answer.verdict is Verdict.UNTRUSTED:  # ratios of wrong figures tell nothing
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
    return _finite(document, name)


def _run_specs(client: Client, specs: list[dict[str, Any]], as_json: bool, options: dict[str, Any]) -> Comparison:
    if len(specs) != 2:
        raise typer.BadParameter(f"{len(specs)} specs given; name exactly two")
    begun = submit_once(client, partial(client.begin_comparison, *specs, **options), lambda begun: begun.job)
    with cancel_on_interrupt(client, begun.job):
        with render.live_progress(cli.error_console if as_json else cli.console) as follow:
            client.wait(begun.job, follow)
        return client.comparison(begun.id)


baselines = typer.Typer(no_args_is_help=True, help="Named figures and limits that jobs are held against.")
cli.app.add_typer(baselines, name="baseline")
BaselineArgument = Annotated[str, typer.Argument(help="Name of the baseline.")]


@baselines.command()
@cli.exit_codes
def save(
    name: BaselineArgument,
    job_id: Annotated[
        str | None, typer.Argument(help="Job that succeeded; none for a limit.", autocompletion=completion.job_ids)
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Metric; the workload's first by default.")] = None,
    margin: Annotated[
        float, typer.Option(callback=cli.finite, help="Slowdown that passes: 0.05 is 5 %.")
    ] = BASELINE_MARGIN,
    at_least: Annotated[
        float | None, typer.Option(callback=cli.finite, help="Limit instead of a job, for --metric.")
    ] = None,
    at_most: Annotated[
        float | None, typer.Option(callback=cli.finite, help="Limit instead of a job, for --metric.")
    ] = None,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Save a copy of a job's figure, or a limit, for `dyno run --baseline NAME`. Replaces an earlier one."""
    limits = [at_least, at_most]
    if job_id is None and (metric is None or limits.count(None) != 1):
        raise typer.BadParameter("name a job, or --metric with one of --at-least and --at-most")
    if job_id is not None and limits.count(None) != 2:
        raise typer.BadParameter("name a job, or a limit, not both")
    with Client(url) as client:
        if job_id is not None:
            row = client.save_baseline(name, job_id, metric=metric, margin=margin)
        else:
            row = client.save_limit(name, metric or "", at_least=at_least, at_most=at_most)
    cli.print_result(row, as_json, lambda console, row: render.baselines(console, [row]))


@baselines.command(name="list")
@cli.exit_codes
def list_baselines(url: cli.Url = DEFAULT_URL, as_json: cli.AsJson = False) -> None:
    """List your key's baselines."""
    with Client(url) as client:
        cli.print_result(client.baselines(), as_json, render.baselines)


@baselines.command(name="delete")
@cli.exit_codes
def delete_baseline(name: BaselineArgument, url: cli.Url = DEFAULT_URL, as_json: cli.AsJson = False) -> None:
    """Delete a baseline. Jobs that name it are still judged."""
    with Client(url) as client:
        client.delete_baseline(name)
    cli.print_result({"name": name, "deleted": True}, as_json, f"{name}: deleted")


webhooks = typer.Typer(no_args_is_help=True, help="Deliveries of webhooks.")
cli.app.add_typer(webhooks, name="webhooks")


@webhooks.command()
@cli.exit_codes
def deliveries(
    status: Annotated[webhook.DeliveryStatus | None, typer.Option(help="Only deliveries with this status.")] = None,
    job: Annotated[str | None, typer.Option(help="Only the delivery of this job.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of deliveries.")] = 50,
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """List the newest deliveries that match all filters."""
    with Client(url) as client:
        cli.print_result(client.deliveries(status=status, job=job, limit=limit), as_json, render.deliveries)


@webhooks.command()
@cli.exit_codes
def redeliver(
    delivery_id: Annotated[str, typer.Argument(help="Id from `dyno webhooks deliveries`: msg_…")],
    url: cli.Url = DEFAULT_URL,
    as_json: cli.AsJson = False,
) -> None:
    """Send a delivery again at once, whatever its status."""
    with Client(url) as client:
        row = client.redeliver(delivery_id)
    cli.print_result(row, as_json, lambda console, row: render.deliveries(console, [row]))
