"""A whole Dyno on one host: an embedded server, the API and workers, in the foreground."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import NoReturn

from dyno.client import Client, Refused, ServerUnreachable
from dyno.errors import ServerUnavailable
from dyno.preflight import bind_error, free_port, write_error
from dyno.processes import ENDING, Part, Stack
from dyno.settings import Settings, WrongSettings, configured
from dyno.store.server import EmbeddedServer

READY_S = 60.0


@contextmanager
def together(
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
    settings = configured()
    if settings.tls_cert_file or settings.tls_key_file:
        raise WrongSettings("DYNO_TLS_CERT_FILE, DYNO_TLS_KEY_FILE: for `dyno serve` alone; here the API speaks HTTP")
    if wrong := bind_error(settings.host, port):
        raise WrongSettings(wrong)
    if data_dir is not None and (wrong := write_error(data_dir)):
        raise WrongSettings(f"the data folder {data_dir} can't be used: {wrong}; name another one: --data-dir")
    port = port or free_port(settings.host)
    stack = Stack(say)
    url = url_of(settings.host, port)
    with _terminable(), _kept(data_dir) as files_dir, _server(settings, data_dir, stack) as redis_url:
        # Who presses Ctrl-C wants out: a running job is handed back soon, and runs at the next start.
        env = {"DYNO_SHUTDOWN_S": "1", **os.environ}
        env = {"DYNO_ARTIFACT_DIR": str(files_dir / "artifacts"), "DYNO_SPOOL_DIR": str(files_dir / "spool")} | env
        env |= {"DYNO_REDIS_URL": redis_url, "DYNO_PORT": str(port), "DYNO_API_URL": url}
        try:
            stack.start(Part("API", "service", [], env))
            for device in devices:
                stack.start(Part(f"worker {device}", "workers", ["--device", device], env))
            for device, what in numbered(emulated):
                stack.start(Part(f"worker {device}", "workers", ["--device", device, "--emulate", what], env))
            yield stack, url
        finally:
            stack.stop()


def url_of(host: str, port: int) -> str:
    """An address of IPv6 is in brackets there."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def numbered(emulated: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(id, what it emulates): those of one kind are numbered from 0."""
    count: Counter[str] = Counter()
    for what in emulated:
        kind = what.partition(":")[0]
        yield f"{kind}:{count[kind]}", what
        count[kind] += 1


@contextmanager
def _kept(data_dir: Path | None) -> Iterator[Path]:
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
def _terminable() -> Iterator[None]:
    """TERM ends the block as Ctrl-C does, and a second signal can't cut the clean-up short."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
