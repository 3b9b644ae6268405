"""A Dyno of its own for one benchmark: server, API and one worker as real processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dyno.cli.up import run_stack, wait_ready
from dyno.client import Client
from dyno.processes import Stack


@dataclass(frozen=True)
class Fleet:
    client: Client
    url: str
    stack: Stack

    @property
    def worker_pid(self) -> int:
        process = self.stack.parts[-1].process
        assert process is not None
        return process.pid


@contextmanager
def fleet(device: str = "cpu") -> Iterator[Fleet]:
    with run_stack(port=0, data_dir=None, devices=[device], say=print) as (stack, url), Client(url) as client:
        wait_ready(stack, client, want_devices=1)
        yield Fleet(client, url, stack)


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, itself not included, as /proc shows them now."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # ended meanwhile
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def proportional_set_size_bytes(pid: int) -> int:
    """PSS: private memory plus a share of what is shared, so that a fork's pages aren't counted twice."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no Pss for {pid}")
