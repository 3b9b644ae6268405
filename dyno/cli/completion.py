"""What the shell completes besides commands and options: workloads, their params, and ids of jobs.

Workloads come from this machine, so no service is needed. Ids come from the service if it answers within a second.
A shell shows no errors, so a failure completes nothing.
"""

from collections.abc import Sequence
from importlib.util import find_spec

import typer
from typer.core import TyperCommand, TyperOption

from dyno.bench.contract import Workload
from dyno.bench.registry import registry
from dyno.client import DEFAULT_URL, Client
from dyno.errors import DynoError

_WITHIN_S = 1.0
_JOBS = 20


def workloads(incomplete: str) -> list[tuple[str, str]]:
    """The names of workloads that begin so, each with its description."""
    return [(name, workload.description) for name, workload in _registry().items() if name.startswith(incomplete)]


def params(words: Sequence[str]) -> TyperCommand:
    """A command whose options are the params of the workload among `words`. It completes them and does nothing."""
    workload = next((candidate for name, candidate in _registry().items() if name in words), None)
    fields = workload.params.model_fields if workload else {}
    options = [
        TyperOption(param_decls=[f"--{name.replace('_', '-')}"], help=field.description)
        for name, field in fields.items()
    ]
    return TyperCommand(name="params", params=[*options])


def job_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The ids of the newest jobs that begin so, each with its workload and status."""
    try:
        with Client(context.params.get("url") or DEFAULT_URL, timeout_s=_WITHIN_S) as client:
            jobs = client.jobs(limit=_JOBS)
    except DynoError:
        return []
    return [(job.id, f"{job.spec.workload} {job.status}") for job in jobs if job.id.startswith(incomplete)]


def _registry() -> dict[str, Workload]:
    try:
        return {} if find_spec("numpy") is None else dict(registry())  # with the client alone there are none
    except DynoError:  # a broken file of DYNO_WORKLOADS_DIR, or an invalid setting
        return {}
