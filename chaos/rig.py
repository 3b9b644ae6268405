"""The rig: a whole Dyno with Redis behind the proxy, the API, and workers. Parts that die are restarted."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import httpx

from chaos.injectors import JumpingClock, Proxy, SmallDisk
from chaos.plan import API, WORKERS
from dyno.processes import ManagedProcess, free_port
from dyno.settings import Durability
from dyno.store.embedded import EmbeddedServer

LEASE_S = 5.0  # instead of 30, so that many leases run out in a run
READY_S = 120.0
MARK = "CHAOS_RIG"  # variable of every process of a rig, with the rig's own name
_RESTART_S, _STOP_S, _POLL_S = 0.5, 20.0, 0.05


class Rig:
    """All files are in `folder`, with the parts' output in its `log`. Use it from one event loop's thread.

    `cores`: those of the two devices. `died`: parts that ended by themselves.
    `stuck`: parts that didn't end on request.
    """

    def __init__(self, folder: Path, durability: Durability) -> None:
        self.folder, self.run_dir, self.log = folder, folder / "disk" / "run", folder / "log"
        self.name, self.durability = secrets.token_hex(8), durability
        self.died, self.stuck = list[str](), list[str]()
        self.parts: dict[str, ManagedProcess] = {}
        self.disk, self.clock, self.proxy = SmallDisk(folder / "disk"), JumpingClock(folder), Proxy()
        self.server = EmbeddedServer(folder / "redis", appendfsync=durability)
        self.url = f"http://127.0.0.1:{free_port()}"
        first, *others = sorted(os.sched_getaffinity(0))
        self.cores = (first, (others or [first])[0])
        self._output = self.log.open("ab")
        self._down: set[str] = set()

    async def open(self) -> None:
        """Start everything, and wait until every worker is idle."""
        os.environ[MARK] = self.name  # the Redis server inherits this environment
        self.disk.mount()
        self.server.start()
        await self.proxy.open(self.server.url.removeprefix("unix://"))
        self._add(API, "service", [], {})
        for name, core in zip(WORKERS, (*self.cores, self.cores[1]), strict=True):  # two workers share a device
            jumping = self.clock.env if name == WORKERS[-1] else {}
            self._add(name, "workers", ["--device", f"cpu:{core}-{core}", "--name", name], jumping)
        for part in self.parts.values():
            part.start()
        if busy := await self.not_idle(READY_S):
            output = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{', '.join(busy)} did not start:\n{output}")

    def _add(self, name: str, module: str, arguments: list[str], env: Mapping[str, str]) -> None:
        """Dyno's variables of the shell are dropped, so that runs don't depend on them."""
        shell = {variable: value for variable, value in os.environ.items() if not variable.startswith("DYNO_")}
        settings = {
            MARK: self.name,
            "DYNO_RUNNER_ENV": f"{MARK},JUMPING_CLOCK",
            "DYNO_ALARMS_EVERY_S": "0",  # faults look like changes, and no client submits the rerun that confirms one
            "DYNO_LEASE_S": str(LEASE_S),
            "DYNO_HEARTBEAT_S": "1",
            "DYNO_REAP_EVERY_S": "1",
            "DYNO_SHUTDOWN_S": "3",
            "DYNO_TERM_GRACE_S": "2",
            "DYNO_REDIS_URL": self.proxy.url,
            "DYNO_HOST": "127.0.0.1",
            "DYNO_PORT": self.url.rpartition(":")[2],
            "DYNO_API_URL": self.url,
            "DYNO_DURABILITY": self.durability,
            "DYNO_ARTIFACT_DIR": str(self.folder / "artifacts"),
            "DYNO_RUN_DIR": str(self.run_dir),
            "DYNO_SPOOL_DIR": str(self.folder / "disk" / "spool"),
        }
        environment = {**shell, **settings, **env}
        self.parts[name] = ManagedProcess(name, module, arguments, environment, says_to=self._output.fileno())

    async def not_idle(self, within_s: float) -> list[str]:
        """Wait until all workers are idle. Returns the workers that aren't idle after `within_s`."""
        deadline_s, busy = time.monotonic() + within_s, set(WORKERS)
        async with httpx.AsyncClient(base_url=self.url) as http:
            while True:
                with suppress(httpx.HTTPError):
                    if (response := await http.get("/v1/workers")).status_code == httpx.codes.OK:
                        idle = {each["id"] for each in response.json()["data"] if each["state"] == "idle"}
                        busy = set(WORKERS) - idle
                if not busy or time.monotonic() > deadline_s:
                    return sorted(busy)
                await asyncio.sleep(_POLL_S)

    async def restart_dead_parts(self) -> None:
        """Restart dead parts forever, except those that a fault keeps down."""
        while True:
            for name, part in self.parts.items():
                if _ended(part) and name not in self._down:
                    assert part.process is not None
                    self.died.append(f"{name} ended by itself with exit code {part.process.returncode}")
                    await asyncio.sleep(_RESTART_S)
                    if _ended(part) and name not in self._down:  # a fault may have restarted it meanwhile
                        part.start()
            await asyncio.sleep(_POLL_S)

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal, without effect if the part has ended."""
        if (process := self.parts[name].process) is not None:
            process.send_signal(number)

    def end(self, name: str, number: signal.Signals) -> None:
        """Send KILL or TERM to a part. It stays down until `start`."""
        self._down.add(name)
        self.send(name, number)

    async def start(self, name: str) -> None:
        """Restart a part after `end`, as soon as it has ended. Does nothing if another fault has restarted it."""
        await self._wait_ended([name])
        if name in self._down:
            self.parts[name].start()
            self._down.discard(name)

    async def close_parts(self) -> None:
        """End the API and the workers in order, as `dyno up` does. Interrupted faults don't keep them from ending."""
        self.disk.free()
        await self.proxy.restore()
        for name in self.parts:
            self.end(name, signal.SIGTERM)
            self.send(name, signal.SIGCONT)
        await self._wait_ended(self.parts)

    def close(self) -> None:
        """Close everything that `open` created, except the parts."""
        self.server.close()
        self.disk.unmount()
        self._output.close()
        os.environ.pop(MARK, None)

    async def _wait_ended(self, names: Collection[str]) -> None:
        """Wait until the parts have ended. KILL those that take too long."""
        deadline_s = time.monotonic() + _STOP_S
        while left := [name for name in names if name in self._down and not _ended(self.parts[name])]:
            if time.monotonic() > deadline_s:
                self.stuck += [f"{name} still ran {_STOP_S:g} s after a signal to end" for name in left]
                for name in left:
                    self.send(name, signal.SIGKILL)
                deadline_s = time.monotonic() + _STOP_S
            await asyncio.sleep(_POLL_S)


def _ended(part: ManagedProcess) -> bool:
    return part.process is not None and part.process.poll() is not None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
