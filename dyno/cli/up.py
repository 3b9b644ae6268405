"""Start Dyno's processes: `dyno up`, `demo`, `serve`, `worker`.

`up` runs an embedded server, the API and workers in the foreground. `demo` starts the same processes, runs two jobs
over HTTP and prints their results. `serve` and `worker` replace this process with the API or a worker.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import JsonValue
from rich.console import Console

from dyno import errors, folders
from dyno.bench.devices import cpu
from dyno.cli import render
from dyno.cli.app import command, console, expand_home
from dyno.cli.progress_bars import live_progress
from dyno.client import Client, Refused, ServerUnreachable
from dyno.models.job import Job
from dyno.processes import ManagedProcess, Stack, bind_error, free_port, interrupt_on_signals
from dyno.settings import Settings, WrongSettings, load_settings

READY_S = 60.0


@contextmanager
def run_stack(
    *,
    port: int,
    data_dir: Path | None,
    devices: Sequence[str],
    say: Callable[[str], None],
    emulated: Sequence[str] = (),
) -> Iterator[tuple[Stack, str]]:
    """Start all processes, yield them and the API's URL, and stop all processes at the end of the block.

    Starts a worker for each of `devices`, and a worker for each of `emulated`, such as "tpu:8". The ids of emulated
    devices are tpu:0, tpu:1, … Port 0 means a free port. Without `data_dir`, Dyno keeps no data. If `DYNO_REDIS_URL` is
    set, Dyno uses that server and starts none. All processes except runners use the reserved cores, if there are any.
    Raises WrongSettings before it starts a process, for example if the port is taken, `data_dir` isn't writable, or the
    settings turn on TLS (`up` and `demo` call the API over plain HTTP).
    """
    check_installed()
    settings = load_settings()
    _check(settings, port, data_dir)
    allowed = os.sched_getaffinity(0)
    reserved = reserve(settings, devices, allowed)
    port = port or free_port(settings.host)
    stack = Stack(say)
    url = api_url(settings.host, port)
    with (
        interrupt_on_signals(),
        _data_folder(data_dir) as files_dir,
        _bound(reserved, say),
        _server(settings, data_dir, stack) as redis_url,
    ):
        # Ctrl-C should end `dyno up` quickly: workers hand back running jobs after 1 s, and the next start runs them.
        env = {"DYNO_SHUTDOWN_S": "1", **os.environ}
        env = {"DYNO_ARTIFACT_DIR": str(files_dir / "artifacts"), "DYNO_SPOOL_DIR": str(files_dir / "spool")} | env
        env |= {"DYNO_REDIS_URL": redis_url, "DYNO_PORT": str(port), "DYNO_API_URL": url}
        env["DYNO_RESERVED_CORES"] = cpu.format_cpulist(reserved) if reserved else cpu.NO_CORES
        args = [(device, ["--device", device]) for device in devices]
        args += [(device, ["--device", device, "--emulate", what]) for device, what in number_emulated(emulated)]
        try:
            stack.start(ManagedProcess("API", "service", [], env))
            for device, words in args:
                worker = ManagedProcess(f"worker {device}", "workers", words, env, cores=allowed)
                stack.start(worker)
            yield stack, url
        finally:
            stack.stop()


def check_installed() -> None:
    if find_spec("fastapi") is None:
        raise WrongSettings("only the client is installed; pip install '.[demo,cpu]' in a checkout adds the rest")


def _check(settings: Settings, port: int, data_dir: Path | None) -> None:
    if settings.tls_cert_file or settings.tls_key_file:
        raise WrongSettings("unset DYNO_TLS_CERT_FILE and DYNO_TLS_KEY_FILE; only `dyno serve` supports TLS")
    if settings.redis_password and not settings.redis_url:
        raise WrongSettings("DYNO_REDIS_PASSWORD needs DYNO_REDIS_URL: a server of `dyno up` has no password; unset it")
    if wrong := bind_error(settings.host, port):
        raise WrongSettings(wrong)
    if data_dir is not None and (wrong := folders.write_error(data_dir)):
        raise WrongSettings(f"the data folder {data_dir} can't be used: {wrong}; choose another with --data-dir")


def reserve(settings: Settings, devices: Sequence[str], allowed: Collection[int]) -> set[int]:
    """The cores of `allowed` for the API, Redis and workers' own threads: DYNO_RESERVED_CORES, or else one core that
    none of `devices` names, if four or more cores are allowed.

    Raises WrongSettings for a core that isn't allowed.
    """
    if settings.reserved_cores is None:
        return cpu.core_to_reserve(allowed, {core for device in devices for core in _named_cores(device)})
    try:
        reserved = cpu.reserved_cores(settings)
    except errors.DeviceUnavailable as error:
        raise WrongSettings(error.detail) from None
    if missing := reserved - set(allowed):
        listed, usable = cpu.format_cpulist(missing), cpu.format_cpulist(allowed)
        raise WrongSettings(f"DYNO_RESERVED_CORES: this process may not use {listed}; it may use {usable}")
    return reserved


def _named_cores(device: str) -> list[int]:
    """The cores in an id such as "cpu:0-1@host". Empty for any other id; the worker reports invalid ids."""
    kind, _, index = device.partition("@")[0].partition(":")
    try:
        return cpu.parse_cpulist(index) if kind == "cpu" else []
    except ValueError:
        return []


@contextmanager
def _bound(cores: Collection[int], say: Callable[[str], None]) -> Iterator[None]:
    """Bind this thread to `cores`, if there are any. Processes that the thread starts inherit the binding."""
    before = os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, cores)
        say(f"kept free of benchmarks: core {', '.join(map(str, sorted(cores)))} (DYNO_RESERVED_CORES)")
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def api_url(host: str, port: int) -> str:
    """The API's URL. An IPv6 address is in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def number_emulated(emulated: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (device id, emulated device). Ids of one kind are numbered from 0."""
    count: Counter[str] = Counter()
    for what in emulated:
        kind = what.partition(":")[0]
        yield f"{kind}:{count[kind]}", what
        count[kind] += 1


@contextmanager
def _data_folder(data_dir: Path | None) -> Iterator[Path]:
    """`data_dir`, or a temporary folder."""
    if data_dir is not None:
        yield data_dir
        return
    with tempfile.TemporaryDirectory(prefix="dyno-data-") as folder:
        yield Path(folder)


@contextmanager
def _server(settings: Settings, data_dir: Path | None, stack: Stack) -> Iterator[str]:
    """Yields the URL of the configured Redis, or of an embedded server that runs during the block."""
    if settings.redis_url:
        yield settings.redis_url
        return

    def revive() -> None:
        try:
            if server.revive():
                stack.say("server died; restarted it with its data")
        except errors.ServerUnavailable as error:  # the stack soon calls `revive` again
            stack.say(f"server died; {error.detail}")

    from dyno.store.embedded import EmbeddedServer  # here, since a client-only install has no redis

    with EmbeddedServer(data_dir, appendfsync=settings.durability) as server:
        stack.say(f"{server.binary.name} on a private socket" + (f", data in {data_dir}" if data_dir else ""))
        stack.chores.append(revive)
        yield server.url


def wait_ready(stack: Stack, client: Client, *, want_devices: int) -> None:
    """Wait until the API is ready and every worker offers its device. Prints why the API isn't ready yet.

    Raises ServerUnavailable if a process ends, or after READY_S.
    """
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s:
        if (part := stack.dead()) is not None and part.process is not None:
            raise errors.ServerUnavailable(f"{part.name} ended with exit code {part.process.returncode} while starting")
        if client.alive() and _devices(client, want_devices) >= want_devices:
            if complaint := client.not_ready_because():
                stack.say(f"not ready: {complaint}")
            return
        time.sleep(0.05)  # at start-up only, since no event signals that the API listens
    reason = client.not_ready_because() or "a worker is missing"
    raise errors.ServerUnavailable(f"Dyno didn't start within {READY_S:.0f} s: {reason}")


def _devices(client: Client, expected: int) -> int:
    """The number of devices; 0 while the store is unreachable, `expected` if the list of devices needs a key."""
    try:
        return len(client.devices())
    except Refused as error:
        return expected if error.status == HTTPStatus.UNAUTHORIZED else 0
    except ServerUnreachable:
        return 0


MATMUL: dict[str, JsonValue] = {
    "workload": "matmul",
    "params": {"n": 2000, "repeats": 1},  # takes about 0.1 s on two common cores
    "device": "cpu",
    "measure": {"budget_s": 10},
    "labels": {"from": "demo"},
}
# A short run on the digits that Dyno ships with: 8,000 for training.
MNIST: dict[str, JsonValue] = {
    "workload": "mnist_cnn",
    "params": {"epochs": 3, "batch_size": 256, "jit_compile": False},  # the default measures both values for 5 s
    "device": "cpu",
    "measure": {"budget_s": 10},
    "labels": {"from": "demo"},
}


def show_while_alive(stack: Stack, show: Callable[[Job], None], job: Job) -> None:
    """Show the job. Raises if a process died: the demo doesn't restart processes, so the job would wait forever."""
    if (part := stack.dead()) is not None:
        raise errors.ServerUnavailable(f"{part.name} has ended")
    show(job)


def run_demo(console: Console, *, device: str = "cpu") -> None:
    """Start a temporary Dyno, run both jobs, print their results. Leaves no process behind."""
    with run_stack(port=0, data_dir=None, devices=[device], say=console.print) as (stack, url):
        with Client(url) as client:
            with console.status("starting the API and one CPU worker, which imports TensorFlow"):
                wait_ready(stack, client, want_devices=1)
            console.print(f"API on {url}")
            for spec in (MATMUL, MNIST):
                console.rule(f"POST {url}/v1/jobs  {spec['workload']}")
                console.print_json(data=spec)
                with live_progress(console) as show:
                    result = client.run(spec, partial(show_while_alive, stack, show))
                render.result(console, result, "")
        console.rule()
        console.print("The demo has stopped its Dyno. `dyno up` starts one that keeps running, on port 8000.")


DEFAULT_DATA_DIR = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "dyno"


@command()
def demo(device: Annotated[str, typer.Option(help="The CPU device to use.")] = "cpu") -> None:
    """Start a Dyno, run a matmul and a short training over HTTP, print the results, end everything."""
    run_demo(console, device=device)


@command()
def up(
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="DYNO_PORT", help="Port of the API, on loopback.")
    ] = 8000,
    data_dir: Annotated[
        Path,
        typer.Option(
            callback=expand_home,
            help="Folder for jobs and results; pass the same one to `dyno keys` and `dyno doctor`.",
        ),
    ] = DEFAULT_DATA_DIR,
    device: Annotated[list[str] | None, typer.Option(help="Device to serve; may be repeated.")] = None,
    emulate: Annotated[list[str] | None, typer.Option(help="Device to emulate on the CPU: tpu:8, gpu:1.")] = None,
) -> None:
    """Run an embedded server, the API and workers in the foreground until Ctrl-C. Restarts processes that die."""
    devices = list(dict.fromkeys(device or ([] if emulate else ["cpu"])))
    emulated = emulate or []
    with run_stack(port=port, data_dir=data_dir, devices=devices, emulated=emulated, say=console.print) as (stack, url):
        with Client(url) as client:
            wait_ready(stack, client, want_devices=len(devices) + len(emulated))
        console.print(f"Dyno is up: {url}/    (stop it with Ctrl-C)")
        stack.watch()


@command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind; loopback by default.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind.")] = None,
    processes: Annotated[int | None, typer.Option(help="API processes that share the port; 1 by default.")] = None,
) -> None:
    """Run only the API. Needs DYNO_REDIS_URL."""
    given = {"DYNO_HOST": host, "DYNO_PORT": port, "DYNO_PROCESSES": processes}
    _become("service", [], {name: str(value) for name, value in given.items() if value is not None})


@command()
def worker(
    device: Annotated[str | None, typer.Option(help='"cpu", "cpu:0-1", "gpu:0", …')] = None,
    emulate: Annotated[str | None, typer.Option(help='"tpu:8": a TPU made of 8 virtual CPU devices.')] = None,
    name: Annotated[str | None, typer.Option(help="Id of the worker; generated by default.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log every event, not only warnings.")] = False,
) -> None:
    """Run one worker, pinned to one device, the CPU by default. Needs DYNO_REDIS_URL."""
    given = {"--device": device, "--emulate": emulate, "--name": name}
    words = [word for option, value in given.items() if value for word in (option, value)]
    _become("workers", [*words, *["--verbose"] * verbose], {})


def _become(module: str, args: list[str], env: dict[str, str]) -> NoReturn:
    """Replace this process with a Dyno module, so that signals reach the module directly."""
    check_installed()
    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *args], {**os.environ, **env})
