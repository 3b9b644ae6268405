"""The `dyno` command as a real process in its own process group. None of its children may survive it."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.waiting import eventually

GONE_S = 30.0
DYNO = Path(sys.executable).parent / "dyno"


@contextmanager
def begun(http, *words):
    """A command against the service, which Ctrl-C can end; a shell's background jobs ignore it."""
    command, hears = [DYNO, *words, "--url", str(http.base_url)], partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, preexec_fn=hears) as running:
        try:
            yield running
        finally:
            running.kill()


@dataclass
class Command:
    """One running `dyno …`. Its descendants have `mark` in their environment. The server overwrites its environment
    with its title, but its working directory is below `home`."""

    process: subprocess.Popen[bytes]
    mark: str
    home: Path
    output: Path
    errors: Path

    def text(self):
        """What it has written to stdout, then what to stderr."""
        return "".join(each.read_text(errors="replace") for each in (self.output, self.errors))

    def pids(self):
        """pid -> command line of the command's live processes."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self._is_ours(folder):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found

    def _is_ours(self, folder):
        return self.mark.encode() in (folder / "environ").read_bytes() or (folder / "cwd").readlink().is_relative_to(
            self.home
        )

    def pid_of(self, words):
        return next(pid for pid, line in self.pids().items() if words in line)

    def says(self, words, timeout_s=120):
        def printed_or_ended():
            return words in self.text() or self.process.poll() is not None

        eventually(printed_or_ended, timeout_s, f"{words!r} in {self.text()[-2000:]}")
        assert words in self.text()

    def interrupt(self):
        """Send SIGINT to the whole foreground group, as a terminal does on Ctrl-C. Returns the exit status."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(GONE_S)

    def assert_nothing_left(self):
        eventually(lambda: not self.pids(), 30, f"still alive: {self.pids()}")
