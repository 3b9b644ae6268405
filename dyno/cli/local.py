"""`dyno run --local`: measure on this host, without a service."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import JsonValue
from rich.console import Console

from dyno.bench.bench import Bench, resolve_here
from dyno.bench.registry import workload
from dyno.cli.app import as_options, error_console, print_line
from dyno.cli.progress_bars import live_runs
from dyno.errors import DynoError, InvalidSpec, RunFailed, UnknownWorkload
from dyno.formatting import format_duration
from dyno.models.job import Holder
from dyno.models.result import Result
from dyno.processes import interrupt_on_signals
from dyno.settings import WrongSettings


@contextmanager
def usage_errors() -> Iterator[None]:
    """If a spec can't run here, exit with the code for wrong usage, as if a service had refused the spec."""
    try:
        yield
    except (InvalidSpec, UnknownWorkload) as wrong:
        raise WrongSettings(as_options(wrong.detail)) from wrong


def local_schema(name: str) -> Mapping[str, Any]:
    """The JSON schema of a workload's params. Raises UnknownWorkload."""
    return workload(name).params.model_json_schema()


def run_here(spec: Mapping[str, JsonValue], console: Console) -> Result:
    """The result of the spec, with progress on the console. Raises InvalidSpec, UnknownWorkload and DynoError."""
    selected = spec["device"]
    if not isinstance(selected, str):
        raise DynoError('--local needs a device of this host, such as "cpu" or "gpu:0"')
    with (
        interrupt_on_signals(),
        Bench("cpu" if selected == "any" else selected, on_wait=_say_who) as bench,
        live_runs(console) as follow,
    ):
        resolved = resolve_here(spec)
        bench.check(resolved)
        likely_s = resolved.estimate(bench.device).in_all_s(resolved.spec.measure)
        print_line(error_console, f"takes about {format_duration(likely_s)} on {bench.device.full_id}")
        try:
            return bench.run(resolved.spec, on_progress=follow)
        except RunFailed as failed:
            raise DynoError(f"the job failed: {failed.reason}: {failed.detail}") from failed


def _say_who(holder: Holder) -> None:
    print_line(error_console, f"waiting for the device: {holder}")
