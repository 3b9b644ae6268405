"""A real Redis and a real API process, on loopback, and what that process takes."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dyno.store.embedded import EmbeddedServer

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 60


@dataclass(frozen=True)
class Api:
    process: subprocess.Popen[str]
    port: int

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def forget_peak(self) -> None:
        """Of memory; what follows is looked at alone."""
        self._proc("clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        return self._kilobytes("VmHWM") * 1024

    def resident_bytes(self) -> int:
        return self._kilobytes("VmRSS") * 1024

    def cpu_s(self) -> float:
        """User and system time so far."""
        fields = self._proc("stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _kilobytes(self, name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+) kB$", self._proc("status").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def _proc(self, name: str) -> Path:
        return Path(f"/proc/{self.process.pid}/{name}")


@contextmanager
def api(**settings: str) -> Iterator[Api]:
    """With the settings of production, but for those given. Ends with its Redis, which keeps a file as `dyno up`'s does
    and loses it then."""
    raise_file_limit()
    foreign = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    with EmbeddedServer() as server:
        own = {"REDIS_URL": server.url, "PORT": "0", "HOST": "127.0.0.1"} | settings
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "service"],
            env=foreign | {f"DYNO_{name}": value for name, value in own.items()},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            yield Api(process, int(process.stdout.readline().rpartition(":")[2]))
        finally:
            process.terminate()
            try:
                process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def raise_file_limit() -> int:
    """As far as this process may; its new limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
