"""The `dyno` command as a real process, in a session of its own; nothing it starts may survive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

DYNO = Path(sys.executable).parent / "dyno"
GONE_S = 30.0


def eventually(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.02)


@dataclass
class Command:
    """One running `dyno …` whose whole offspring carries `mark` in its environment."""

    process: subprocess.Popen[bytes]
    mark: str
    output: Path

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def pids(self) -> dict[int, str]:
        """pid -> command line of every live process that carries the mark."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found

    def pid_of(self, words: str) -> int:
        return next(pid for pid, line in self.pids().items() if words in line)

    def says(self, words: str, timeout_s: float = 60) -> None:
        def said_or_ended() -> bool:
            return words in self.text() or self.process.poll() is not None

        eventually(said_or_ended, timeout_s, f"{words!r} in {self.text()[-2000:]}")
        assert words in self.text()

    def interrupt(self) -> int:
        """Ctrl-C, as a terminal does it: to the whole foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(GONE_S)

    def assert_nothing_left(self) -> None:
        eventually(lambda: not self.pids(), 10, f"still alive: {self.pids()}")


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*arguments: str, **env: str) -> Command:
        mark = f"mark-{uuid.uuid4().hex}"
        output = tmp_path / f"output-{len(started)}"
        environment = {**os.environ, "DYNO_MARK": mark, "DYNO_RUN_DIR": str(tmp_path / "run"), "COLUMNS": "200", **env}
        environment.pop("DYNO_REDIS_URL", None)
        with output.open("wb") as file:
            process = subprocess.Popen(
                [DYNO, *arguments], env=environment, stdout=file, stderr=file, stdin=subprocess.DEVNULL, process_group=0
            )
        started.append(Command(process, mark, output))
        return started[-1]

    yield start
    for one in started:
        for pid in one.pids():
            os.kill(pid, signal.SIGKILL)
        one.process.wait()
