"""Several API processes behind one address, for hosts with more than one core to spare: `DYNO_PROCESSES`.

This process opens the listening socket, passes it to its children, and restarts those that die. The kernel gives each
new connection to one of them. They add their HTTP metrics in a common folder, so a scrape of any shows the sum.
"""

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from dyno.processes import ManagedProcess, Stack, interrupt_on_signals
from dyno.settings import Settings

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it when it is imported
_REFUSALS = range(1, 4)  # exit codes of a service that doesn't start; see `service.__main__`
_STOP_S = 5.0  # beyond `shutdown_s`


class _NotStartedError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def serve(settings: Settings) -> int:
    """Run `settings.processes` processes until a signal. Returns the exit code: a child's if that refuses to start."""
    listening = uvicorn.Config("", host=settings.host, port=settings.port, log_config=None).bind_socket()
    stack = Stack(_say)
    with tempfile.TemporaryDirectory(prefix="dyno-metrics-") as folder, interrupt_on_signals(), listening:
        stack.chores.append(partial(_note_deaths, stack, folder))
        fd = listening.fileno()
        try:
            for number in range(1, settings.processes + 1):
                args = ["--socket", str(fd), "--number", str(number)]
                env = {**os.environ, METRICS_FOLDER: folder}
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
    """Take the gauges of dead processes out of the metrics. Raises _NotStartedError if one refused to start."""
    for part in stack.parts:
        if part.process is not None and (code := part.process.poll()) is not None:
            mark_process_dead(part.process.pid, folder)  # type: ignore[no-untyped-call]
            if code in _REFUSALS:
                raise _NotStartedError(code)


def _say(line: str) -> None:
    sys.stderr.write(f"dyno: {line}\n")


def metrics_folder() -> Path | None:
    """Where the processes behind this address add their metrics; None if this is the only process."""
    return Path(folder) if (folder := os.environ.get(METRICS_FOLDER)) else None
