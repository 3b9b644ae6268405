"""Options that describe a job, the parsing of their values, and shell completion of workloads, params and job ids.

Names of workloads come from this machine, so completing them needs no service. Job ids come from the service if it
responds within a second. A shell can't show errors during completion, so after a failure it completes nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any, TypeVar

import typer
from pydantic import JsonValue
from typer.core import TyperCommand, TyperOption

from dyno.bench import contract
from dyno.bench.registry import registry
from dyno.cli import app as cli
from dyno.cli import listings
from dyno.client import DEFAULT_URL, Client
from dyno.errors import DynoError
from dyno.formatting import did_you_mean
from dyno.models.spec import BUDGET_S, Measure
from dyno.models.sweep import PRECISION_PARAMS

_WORDS = "dyno.words"
_WITHIN_S = 1.0
_JOBS = 20
T = TypeVar("T")


def complete_workloads(incomplete: str) -> list[tuple[str, str]]:
    """The names of workloads that begin with `incomplete`, each with its description."""
    return [(name, workload.description) for name, workload in _registry().items() if name.startswith(incomplete)]


def complete_job_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The ids of the newest jobs that begin with `incomplete`, each with its workload and status."""
    try:
        with Client(context.params.get("url") or DEFAULT_URL, timeout_s=_WITHIN_S) as client:
            jobs = client.jobs(limit=_JOBS)
    except DynoError:
        return []
    return [(job.id, f"{job.spec.workload} {job.status}") for job in jobs if job.id.startswith(incomplete)]


def _registry() -> dict[str, contract.Workload]:
    try:
        return {} if find_spec("numpy") is None else dict(registry())  # a client-only install has no workloads
    except DynoError:  # a broken file of DYNO_WORKLOADS_DIR, or an invalid setting
        return {}


class WorkloadCommand(TyperCommand):
    """A command whose help and completion include the params of the workload that is given. Calls no service."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = tuple(args)  # Typer prints help before it parses the arguments
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        workload = next((candidate for name, candidate in _registry().items() if name in ctx.meta[_WORDS]), None)
        fields = workload.params.model_fields if workload else {}
        params = [
            TyperOption(param_decls=[option_name(name)], help=field.description) for name, field in fields.items()
        ]
        more = TyperCommand(name="params", params=[*params]).shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *more]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        if find_spec("numpy") is None:  # a client-only install
            cli.console.print("`dyno workloads NAME` lists the params that a service's workload has.")
            return
        for workload in (candidate for name, candidate in registry().items() if name in ctx.meta[_WORDS]):
            listings.params(cli.console, workload.name, workload.description, workload.params.model_json_schema())


OF_WORKLOAD: dict[str, Any] = {
    "cls": WorkloadCommand,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}


def option_name(param: str) -> str:
    return f"--{param.replace('_', '-')}"


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

    `schema`: the schema of the workload's params. `parse`: parses the text of a value by the param's schema;
    `parse_value` by default.
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
    return finite_json(value, text)


def finite_json(value: T, text: str) -> T:
    """`value`, parsed from `text`. Raises BadParameter for NaN and 1e999, which Python parses but JSON can't hold."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise typer.BadParameter(f"{text} has NaN or infinity; name finite numbers") from error
    return value


def _option_names(names: dict[str, Any]) -> str:
    return ", ".join(map(option_name, names)) or "none"


_DEVICE = '"cpu", "gpu", "tpu", "any", an id, or JSON such as {"model": "NVIDIA L4"}.'
_QUEUE_IF_ABSENT = "Queue the job even if no live worker has such a device."
_BASELINE_ALLOW = "What may differ from the baseline's job: params.n, precision, hardware … May be repeated."
_MEASURED = ", ".join(name for name in Measure.model_fields if name not in ("processes", "budget_s"))
_PROCESSES = "Number of fresh processes to measure in; by default as many as the budget allows, at least 5."
_BUDGET = f"How long to measure, s; by default {BUDGET_S:g}. A larger one gives a narrower interval."
_JOB_ID = "Job id from `dyno jobs`."

JobId = Annotated[str, typer.Argument(help=_JOB_ID, autocompletion=complete_job_ids)]
Workload = Annotated[str, typer.Argument(help="Name from `dyno workloads`.", autocompletion=complete_workloads)]
Params = Annotated[list[str] | None, typer.Option("--param", help="name=value; the value is JSON or text.")]
_FRAMEWORK = "tensorflow, jax or torch; by default the first that the workload supports."
_REPLICAS = (
    "Units of the device to run on: copies of the model, which split the batch evenly, or units of `collectives`."
)
Framework = Annotated[str, typer.Option("--framework", help="tensorflow, jax or torch.")]
RunCount = Annotated[int | None, typer.Option("--processes", help=_PROCESSES)]
Budget = Annotated[float | None, typer.Option("--budget", help=_BUDGET)]
BaselineAllow = Annotated[list[str] | None, typer.Option("--baseline-allow", help=_BASELINE_ALLOW)]


@dataclass(frozen=True)
class JobOptions:
    """The options that `dyno run` and `dyno schedule save` share."""

    param: Params = None
    device: Annotated[str, typer.Option(help=_DEVICE)] = "any"
    framework: Annotated[str | None, typer.Option(help=_FRAMEWORK)] = None
    replicas: Annotated[int | None, typer.Option(help=_REPLICAS)] = None
    budget: Budget = None
    processes: RunCount = None
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 0
    measure: Annotated[list[str] | None, typer.Option(help=f"name=value; one of {_MEASURED}.")] = None
    label: Annotated[list[str] | None, typer.Option(help="name=value, to find the job by; may be repeated.")] = None
    queue_if_absent: Annotated[bool, typer.Option("--queue-if-absent", help=_QUEUE_IF_ABSENT)] = False

    def spec(
        self, workload: str, words: Sequence[str], schema_of: Callable[[str], Mapping[str, Any]], baseline: str | None
    ) -> dict[str, JsonValue]:
        """The spec that these options describe. `words`: options of the workload. Raises BadParameter."""
        if workload.startswith("-"):
            raise typer.BadParameter(f"name the workload first, then {workload} and other options")
        params = parse_params(self.param)
        if words:
            params |= parse_workload_options(workload, schema_of(workload), words)
        chosen: dict[str, JsonValue] = {"framework": self.framework, "replicas": self.replicas}
        of_job: dict[str, JsonValue] = {
            "seed": self.seed,
            "queue_if_absent": self.queue_if_absent,
            "workload": workload,
            "params": params,
            "device": parse_value(self.device),
            "labels": {**parse_pairs(self.label)},
            "measure": measure_of(self.budget, self.processes, self.measure),
            "baseline": baseline,
        }
        return of_job | {name: value for name, value in chosen.items() if value is not None}


def measure_of(budget: float | None, processes: int | None, measure: list[str] | None) -> dict[str, JsonValue]:
    """The `measure` that --budget, --processes and --measure describe."""
    given: dict[str, JsonValue] = {"budget_s": budget, "processes": processes}
    return {name: value for name, value in given.items() if value is not None} | parse_params(measure)


def service_schema(client: Client, workload: str) -> Mapping[str, Any]:
    """The schema of the workload's params, from the service."""
    return client.workload(workload).params
