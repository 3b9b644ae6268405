"""Start Dyno's processes: `dyno up`, `demo`, `serve`, `worker`.

`up` runs a whole Dyno in the foreground: an embedded server, the API and workers. `demo` runs the main job end to end
on such a Dyno, over HTTP. `serve` and `worker` replace this process with one part.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from pydantic import JsonValue
from rich.console import Console

from dyno.cli import render
from dyno.cli.app import app, console, exit_codes, expand_home
from dyno.client import Client, Refused, ServerUnreachable
from dyno.errors import ServerUnavailable
from dyno.models.job import Job
from dyno.preflight import bind_error, free_port, write_error
from dyno.processes import STOP_SIGNALS, ManagedProcess, Stack
from dyno.settings import Settings, WrongSettings, load_settings
from dyno.store.embedded import EmbeddedServer

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
    """Start everything; yields the processes and the API's URL, ends all of them on leaving.

    A worker for each of `devices`, and one for each of `emulated`, such as "tpu:8": tpu:0, tpu:1, …
    `port` 0: a free one. `data_dir` null: nothing is kept. `DYNO_REDIS_URL` set: that server is used, none is started.
    Raises WrongSettings before it starts anything: also where the port is taken, `data_dir` can't be written to, or the
    API would speak TLS (it is asked over plain HTTP here).
    """
    settings = load_settings()
    if settings.tls_cert_file or settings.tls_key_file:
        raise WrongSettings("DYNO_TLS_CERT_FILE, DYNO_TLS_KEY_FILE: for `dyno serve` alone; here the API speaks HTTP")
    if wrong := bind_error(settings.host, port):
        raise WrongSettings(wrong)
    if data_dir is not None and (wrong := write_error(data_dir)):
        raise WrongSettings(f"the data folder {data_dir} can't be used: {wrong}; name another one: --data-dir")
    port = port or free_port(settings.host)
    stack = Stack(say)
    url = api_url(settings.host, port)
    with _interrupt_on_signals(), _data_folder(data_dir) as files_dir, _server(settings, data_dir, stack) as redis_url:
        # Who presses Ctrl-C wants out: a running job is handed back soon, and runs at the next start.
        env = {"DYNO_SHUTDOWN_S": "1", **os.environ}
        env = {"DYNO_ARTIFACT_DIR": str(files_dir / "artifacts"), "DYNO_SPOOL_DIR": str(files_dir / "spool")} | env
        env |= {"DYNO_REDIS_URL": redis_url, "DYNO_PORT": str(port), "DYNO_API_URL": url}
        try:
            stack.start(ManagedProcess("API", "service", [], env))
            for device in devices:
                stack.start(ManagedProcess(f"worker {device}", "workers", ["--device", device], env))
            for device, what in number_emulated(emulated):
                stack.start(ManagedProcess(f"worker {device}", "workers", ["--device", device, "--emulate", what], env))
            yield stack, url
        finally:
            stack.stop()


def api_url(host: str, port: int) -> str:
    """An address of IPv6 is in brackets there."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def number_emulated(emulated: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(id, what it emulates): those of one kind are numbered from 0."""
    count: Counter[str] = Counter()
    for what in emulated:
        kind = what.partition(":")[0]
        yield f"{kind}:{count[kind]}", what
        count[kind] += 1


@contextmanager
def _data_folder(data_dir: Path | None) -> Iterator[Path]:
    """`data_dir`, or a folder that goes with what is kept nowhere."""
    if data_dir is not None:
        yield data_dir
        return
    with tempfile.TemporaryDirectory(prefix="dyno-data-") as folder:
        yield Path(folder)


@contextmanager
def _server(settings: Settings, data_dir: Path | None, stack: Stack) -> Iterator[str]:
    """The URL of the server in use: the configured one, or an embedded one for as long as the block runs."""
    if settings.redis_url:
        yield settings.redis_url
        return

    def revive() -> None:
        try:
            if server.revive():
                stack.say("server died; started again with its data")
        except ServerUnavailable as error:  # tried again at the next turn
            stack.say(f"server died; {error.detail}")

    with EmbeddedServer(data_dir, appendfsync=settings.durability) as server:
        stack.say(f"{server.binary.name} on a private socket" + (f", data in {data_dir}" if data_dir else ""))
        stack.chores.append(revive)
        yield server.url


def wait_ready(stack: Stack, client: Client, *, want_devices: int) -> None:
    """Until the API answers and every worker offers its device; says what else is amiss.

    Raises ServerUnavailable when a part ends, or at the deadline.
    """
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s:
        if (part := stack.dead()) is not None and part.process is not None:
            raise ServerUnavailable(f"{part.name} ended with exit code {part.process.returncode} while starting")
        if client.alive() and _devices(client, want_devices) >= want_devices:
            if complaint := client.not_ready_because():
                stack.say(f"not ready: {complaint}")
            return
        time.sleep(0.05)  # start-up only: there is nothing to wait on before the API listens
    raise ServerUnavailable(f"not up after {READY_S:.0f} s: {client.not_ready_because() or 'a worker is missing'}")


def _devices(client: Client, hoped_for: int) -> int:
    """How many devices are offered; none while the store is away. Whoever has no key can't see them."""
    try:
        return len(client.devices())
    except Refused as error:
        return hoped_for if error.status == HTTPStatus.UNAUTHORIZED else 0
    except ServerUnreachable:
        return 0


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """TERM ends the block as Ctrl-C does, and a second signal can't cut the clean-up short."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


MATMUL: dict[str, JsonValue] = {
    "workload": "matmul",
    "params": {"n": 2000, "repeats": 1},  # a tenth of a second on two common cores
    "device": "cpu",
    "measure": {"max_s": 3},
    "labels": {"from": "demo"},
}
# A short run on the digits that ship: 8,000 to train on. Three processes, to stay well under 90 s in all.
MNIST: dict[str, JsonValue] = {
    "workload": "mnist_cnn",
    "params": {"epochs": 3, "batch_size": 256, "jit_compile": False},  # to measure it would take 5 s
    "device": "cpu",
    "measure": {"processes": 3, "max_s": 4},
    "labels": {"from": "demo"},
}


def _show_while_alive(stack: Stack, show: Callable[[Job], None], job: Job) -> None:
    """Nobody starts a dead part of a demo again, so waiting on would be for ever."""
    if (part := stack.dead()) is not None:
        raise ServerUnavailable(f"{part.name} has ended")
    show(job)


def run_demo(console: Console, *, device: str = "cpu") -> None:
    """Start a Dyno of its own, run both jobs, print what they answer. Leaves no process behind."""
    with run_stack(port=0, data_dir=None, devices=[device], say=console.print) as (stack, url):
        with Client(url) as client:
            with console.status("starting the API and one CPU worker (the worker imports TensorFlow once)"):
                wait_ready(stack, client, want_devices=1)
            console.print(f"API on {url}")
            for spec in (MATMUL, MNIST):
                console.rule(f"POST {url}/v1/jobs  {spec['workload']}")
                console.print_json(data=spec)
                with render.live_progress(console) as show:
                    result = client.run(spec, partial(_show_while_alive, stack, show))
                render.result(console, result)
        console.rule()
        console.print("This was one Dyno of its own, gone now. `dyno up` starts one that stays, on port 8000.")


DEFAULT_DATA_DIR = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "dyno"


@app.command()
@exit_codes
def demo(device: Annotated[str, typer.Option(help="The CPU device to use.")] = "cpu") -> None:
    """Start a Dyno, run a matmul and a short training over HTTP, print the results, end everything."""
    run_demo(console, device=device)


@app.command()
@exit_codes
def up(
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="DYNO_PORT", help="Port of the API, on loopback.")
    ] = 8000,
    data_dir: Annotated[
        Path,
        typer.Option(
            callback=expand_home,
            help="Where jobs and results are kept; `dyno keys` and `dyno doctor` then need the same.",
        ),
    ] = DEFAULT_DATA_DIR,
    device: Annotated[list[str] | None, typer.Option(help="A device to serve; may be repeated.")] = None,
    emulate: Annotated[list[str] | None, typer.Option(help="A device to emulate on the CPU: tpu:8, gpu:1.")] = None,
) -> None:
    """Run embedded server, API and workers in the foreground, until Ctrl-C. A part that dies is started again."""
    devices = list(dict.fromkeys(device or ([] if emulate else ["cpu"])))
    emulated = emulate or []
    with run_stack(port=port, data_dir=data_dir, devices=devices, emulated=emulated, say=console.print) as (stack, url):
        with Client(url) as client:
            wait_ready(stack, client, want_devices=len(devices) + len(emulated))
        console.print(f"Dyno is up: {url}/v1/devices    (Ctrl-C ends it)")
        stack.watch()


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind; loopback unless told otherwise.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind.")] = None,
) -> None:
    """Run the API alone. Needs DYNO_REDIS_URL."""
    env = {"DYNO_HOST": host, "DYNO_PORT": None if port is None else str(port)}
    _become("service", [], {name: value for name, value in env.items() if value is not None})


@app.command()
def worker(
    device: Annotated[str | None, typer.Option(help='"cpu", "cpu:0-1", "gpu:0", …')] = None,
    emulate: Annotated[str | None, typer.Option(help='"tpu:8": a TPU made of 8 virtual CPU devices.')] = None,
    name: Annotated[str | None, typer.Option(help="Its id in the fleet; made up by default.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log a line for each event, not only warnings.")] = False,
) -> None:
    """Run one worker, pinned to one device, the CPU by default. Needs DYNO_REDIS_URL."""
    given = {"--device": device, "--emulate": emulate, "--name": name}
    words = [word for option, value in given.items() if value for word in (option, value)]
    _become("workers", [*words, *["--verbose"] * verbose], {})


def _become(module: str, args: list[str], env: dict[str, str]) -> NoReturn:
    """Turn this process into a part of Dyno, so that signals reach it directly."""
    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *args], {**os.environ, **env})
