"""`python -P -m service`: serve the API on settings.host and settings.port, in settings.processes processes.

Several processes are for hosts with more than one core to spare. The first process opens the listening socket, passes
it to its children, and restarts children that die. The kernel gives each new connection to one child. The processes add
up their HTTP metrics in a common folder, so a scrape of any process returns the sum.

`--socket N --number K`: run as the K-th of several processes, and accept connections on the inherited socket N.

Exit codes:

- 1: the store is unfit, or a workload is broken.
- 2: a setting is invalid, the address needs an API key, or the TLS files can't be used.
- 3: the address can't be bound.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import NoReturn, cast

import uvicorn
from fastapi import FastAPI
from prometheus_client.multiprocess import mark_process_dead

from dyno import errors
from dyno.logging import set_up_logging
from dyno.processes import ManagedProcess, Stack, bind_error, interrupt_on_signals
from dyno.settings import Settings, WrongSettings, load_settings
from service import anonymous_access, middleware, state
from service.app import create_app
from service.server import CertificateWatch, HttpProtocol, allowed_connections, set_tcp_user_timeout, tls_error

KEEP_ALIVE_S = 75  # longer than common proxies keep idle connections, so that no proxy reuses a closed one
_REFUSALS = range(1, 4)  # exit codes of a service that doesn't start
_STOP_S = 5.0  # child processes may take this much longer than `shutdown_s` to stop


class Server(uvicorn.Server):
    """A server that prints its address once it listens, reloads renewed TLS files, and ends long polls at shutdown."""

    def __init__(
        self,
        config: uvicorn.Config,
        stopping: asyncio.Event,
        certificate: CertificateWatch | None = None,
        *,
        prints: bool,
    ) -> None:
        super().__init__(config)
        self._certificate = certificate
        self._renewal: asyncio.Task[NoReturn] | None = None  # runs until the event loop ends
        self._stopping, self._prints = stopping, prints
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Print the address once everything is open. With port 0 the system picks a port; scripts read it here."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            set_tcp_user_timeout(listener for server in self.servers for listener in server.sockets)
        if self.config.ssl is not None and self._certificate is not None:
            self._renewal = asyncio.create_task(self._certificate.run(self.config.ssl))
        if self.started and self._prints:
            port = self.servers[0].sockets[0].getsockname()[1]
            sys.stdout.write(
                f"dyno serves {'https' if self.config.is_ssl else 'http'}://{_in_url(self.config.host)}:{port}\n"
            )
            sys.stdout.flush()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Wake long polls now. The end of the lifespan would be too late, because it comes after the last response."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        super().handle_exit(sig, frame)


def main(words: Sequence[str]) -> int:
    """Serve until a signal; returns the exit code. `words`: the command line."""
    parser = argparse.ArgumentParser(prog="python -P -m service")
    parser.add_argument("--socket", type=int)
    parser.add_argument("--number", type=int, default=1)
    options = parser.parse_args(words)
    try:
        settings = load_settings()
    except WrongSettings as error:
        return _refuse(error.detail, 2)
    set_up_logging(settings.log_format)
    settings = settings.model_copy(update={"max_connections": allowed_connections(settings.max_connections)})
    middleware.ACCESS_LOG.setLevel(logging.INFO if settings.access_log else logging.WARNING)
    if wrong := tls_error(settings):
        return _refuse(wrong, 2)
    try:
        if anonymous_access.needs_keys(settings) and not (settings.require_keys or state.has_keys(settings)):
            return _refuse(
                f"other hosts can reach {settings.host}, and there is no API key: create one with `dyno keys create`, "
                "or start with DYNO_REQUIRE_KEYS=true and create it then; or bind 127.0.0.1; "
                "or set DYNO_ALLOW_UNAUTHENTICATED=true to serve every client without a key",
                2,
            )
        if options.socket is None and (wrong := bind_error(settings.host, settings.port)):
            return _refuse(wrong, 3)
        if options.socket is None and settings.processes > 1:
            return _serve_with_children(settings)
        app = create_app(settings)
        state.check_store(settings)
    except errors.DynoError as error:
        return _refuse(error.detail, 1)
    gc.collect()
    gc.freeze()  # full collections would visit all modules and block requests for 80 ms (docs/dev/decisions/0016)
    certificate = CertificateWatch.of(settings, app.state.meter)
    server = Server(_config(app, settings), app.state.stopping, certificate, prints=options.number == 1)
    server.run(None if options.socket is None else [socket.socket(fileno=options.socket)])
    return 0


def _config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=cast(type[asyncio.Protocol], partial(HttpProtocol, settings, app.state.meter)),
        ws="none",
        host=settings.host,
        port=settings.port,
        access_log=False,
        log_config=None,
        log_level=logging.ERROR,  # uvicorn warns of each malformed request, and clients could fill a disk
        server_header=False,
        ssl_certfile=settings.tls_cert_file,
        ssl_keyfile=settings.tls_key_file,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(settings.shutdown_s),
    )


class _NotStartedError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _serve_with_children(settings: Settings) -> int:
    """Run `settings.processes` processes until a signal. Returns 0, or the exit code of a child that can't start."""
    listening = uvicorn.Config("", host=settings.host, port=settings.port, log_config=None).bind_socket()
    stack = Stack(_say)
    with tempfile.TemporaryDirectory(prefix="dyno-metrics-") as folder, interrupt_on_signals(), listening:
        stack.chores.append(partial(_note_deaths, stack, folder))
        fd = listening.fileno()
        try:
            for number in range(1, settings.processes + 1):
                args = ["--socket", str(fd), "--number", str(number)]
                env = {**os.environ, middleware.METRICS_FOLDER: folder}
                stack.start(ManagedProcess(f"API {number}", "service", args, env, pass_fds=(fd,)))
            stack.watch()
        except _NotStartedError as error:
            return error.code
        except KeyboardInterrupt:
            pass
        finally:
            stack.stop(settings.shutdown_s + _STOP_S)
    return 0


def _note_deaths(stack: Stack, folder: str) -> None:
    """Remove the gauges of dead processes from the metrics. Raises _NotStartedError if a process refused to start."""
    for part in stack.parts:
        if part.process is not None and (code := part.process.poll()) is not None:
            mark_process_dead(part.process.pid, folder)  # type: ignore[no-untyped-call]
            if code in _REFUSALS:
                raise _NotStartedError(code)


def _say(line: str) -> None:
    sys.stderr.write(f"dyno: {line}\n")


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _refuse(reason: str, code: int) -> int:
    _say(reason)
    return code


if __name__ == "__main__":
    # A second Ctrl-C while the interpreter exits would print a traceback.
    code = main(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)
