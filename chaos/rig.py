"""The rig: a whole Dyno with Redis behind the proxy, the API, and workers. Parts that die are restarted."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

import httpx

from chaos import kin
from chaos.clock import JumpingClock
from chaos.disk import SmallDisk
from chaos.proxy import Proxy
from chaos.schedule import API, JUMPING, WORKERS
from dyno.errors import ServerUnavailable
from dyno.preflight import free_port
from dyno.processes import ManagedProcess
from dyno.settings import Durability
from dyno.store.embedded import EmbeddedServer

LEASE_S = 5.0  # instead of 30, so that many leases run out in a run
READY_S = 120.0
GONE_S = 10.0  # a killed worker's runners end with it, but on a busy machine that takes time
_AGAIN_S = 0.5  # between a part's death and its restart
_LOOK_S = 0.05
_STOP_S = 20.0


class Rig:
    """All files are in `folder`, with the parts' output in its `log`. Use it from one event loop's thread.

    `died`: parts that ended by themselves. `stuck`: parts that didn't end on request.
    """

    def __init__(self, folder: Path, durability: Durability) -> None:
        self.name = secrets.token_hex(8)
        self.died: list[str] = []
        self.stuck: list[str] = []
        self.parts: dict[str, ManagedProcess] = {}
        self.disk = SmallDisk(folder / "disk")
        self.clock = JumpingClock(folder)
        self.server = EmbeddedServer(folder / "redis", appendfsync=durability)
        self.proxy = Proxy()
        self.durability = durability
        self._folder, self._port = folder, free_port()
        self._log = (folder / "log").open("ab")
        self._down: set[str] = set()
        self._stopped: set[str] = set()
        self._ending_server: int | None = None

    @property
    def run_dir(self) -> Path:
        return self._folder / "disk" / "run"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def server_pid(self) -> int | None:
        try:
            return self.server.pid
        except ServerUnavailable:
            return None

    @property
    def log(self) -> Path:
        return self._folder / "log"

    @property
    def cores(self) -> tuple[int, int]:
        """The cores of the two devices."""
        first, *others = sorted(os.sched_getaffinity(0))
        return first, (others or [first])[0]

    @property
    def devices(self) -> Mapping[str, str]:
        """The device of each worker; the third worker shares the second one's."""
        cores = (*self.cores, self.cores[1])
        return {name: f"cpu:{core}-{core}" for name, core in zip(WORKERS, cores, strict=True)}

    async def open(self) -> None:
        """Start everything, and wait until every worker is idle."""
        os.environ[kin.MARK] = self.name  # the Redis server inherits this environment
        self.disk.mount()
        self.server.start()
        await self.proxy.open(self.server.url.removeprefix("unix://"))
        self._furnish()
        for part in self.parts.values():
            part.start()
        await self._ready()

    def _furnish(self) -> None:
        env = self._env()
        self.parts[API] = ManagedProcess(API, "service", [], env, says_to=self._log.fileno())
        for name, device in self.devices.items():
            faked = self.clock.env if name == JUMPING else {}
            arguments = ["--device", device, "--name", name]
            self.parts[name] = ManagedProcess(name, "workers", arguments, {**env, **faked}, says_to=self._log.fileno())

    def _env(self) -> dict[str, str]:
        """The environment of the parts.

        Dyno's variables of the shell are dropped, so that runs don't depend on them.
        """
        foreign = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
        return foreign | {
            kin.MARK: self.name,
            "DYNO_LEASE_S": str(LEASE_S),
            "DYNO_HEARTBEAT_S": "1",
            "DYNO_REAP_EVERY_S": "1",
            "DYNO_SHUTDOWN_S": "3",
            "DYNO_TERM_GRACE_S": "2",
            "DYNO_REDIS_URL": self.proxy.url,
            "DYNO_HOST": "127.0.0.1",
            "DYNO_PORT": str(self._port),
            "DYNO_API_URL": self.url,
            "DYNO_DURABILITY": self.durability,
            "DYNO_ARTIFACT_DIR": str(self._folder / "artifacts"),
            "DYNO_RUN_DIR": str(self.run_dir),
            "DYNO_SPOOL_DIR": str(self._folder / "disk" / "spool"),
        }

    async def _ready(self) -> None:
        if busy := await self.not_idle(READY_S, unless=lambda: any(_ended(part) for part in self.parts.values())):
            said = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{', '.join(busy)} did not start:\n{said}")

    async def not_idle(self, within_s: float, unless: Callable[[], bool] = lambda: False) -> list[str]:
        """Wait until all workers are idle.

        Returns those that aren't after the timeout, or as soon as `unless` holds.
        """
        deadline_s = time.monotonic() + within_s
        async with httpx.AsyncClient(base_url=self.url) as http:
            while busy := set(WORKERS) - await _idle(http):
                if time.monotonic() > deadline_s or unless():
                    break
                await asyncio.sleep(_LOOK_S)
        return sorted(busy)

    async def mind(self) -> None:
        """Restart parts that have died, forever, except those that a fault keeps down."""
        while True:
            for name, part in self.parts.items():
                if _ended(part) and name not in self._down:
                    assert part.process is not None
                    self.died.append(f"{name} ended by itself with exit code {part.process.returncode}")
                    await asyncio.sleep(_AGAIN_S)
                    if _ended(part) and name not in self._down:  # a fault may have restarted it meanwhile
                        part.start()
            await asyncio.sleep(_LOOK_S)

    def end(self, name: str, number: signal.Signals) -> None:
        """Send KILL or TERM to a part. It stays down until `start`."""
        self._down.add(name)
        self._send(name, number)

    async def start(self, name: str) -> None:
        """Restart a part after `end`, as soon as it has ended. Does nothing if another fault has restarted it."""
        await self._gone([name])
        if name in self._down:
            self.parts[name].start()
            self._down.discard(name)

    def stop(self, name: str) -> None:
        self._stopped.add(name)
        self._send(name, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        self._stopped.discard(name)
        self._send(name, signal.SIGCONT)

    async def end_server(self) -> None:
        """End a part with TERM. If this is canceled, `mend` waits for the part's end."""
        self._ending_server = self.server.pid
        os.kill(self._ending_server, signal.SIGTERM)
        await kin.ended(self._ending_server)
        self._ending_server = None

    async def mend(self) -> None:
        """Undo interrupted faults: Redis, the network and all parts work again."""
        self._clear()
        if self._ending_server is not None:
            await kin.ended(self._ending_server)
        self.server.revive()
        if not self.proxy.is_open:
            await self.proxy.open()
        for name in list(self._down):
            await self.start(name)

    def _clear(self) -> None:
        self.proxy.replies_late_by_s = 0.0
        self.proxy.speak()
        self.disk.free()
        self.clock.jump(0)
        for name in list(self._stopped):
            self.go_on(name)

    async def close_parts(self) -> None:
        """End the API and the workers in order, as `dyno up` does. Call `mend` first."""
        self._clear()
        for name in self.parts:
            self.end(name, signal.SIGTERM)
        await self._gone(self.parts)

    def close(self) -> None:
        """Close everything that `open` created, except the parts."""
        self.server.close()
        self.disk.unmount()
        self._log.close()
        os.environ.pop(kin.MARK, None)

    async def _gone(self, names: Collection[str]) -> None:
        """Wait until these parts have ended; KILL those that take too long."""
        deadline_s = time.monotonic() + _STOP_S
        while left := [name for name in names if name in self._down and not _ended(self.parts[name])]:
            if time.monotonic() > deadline_s:
                self.stuck += [f"{name} was still there {_STOP_S:g} s after a signal to end" for name in left]
                for name in left:
                    self._send(name, signal.SIGKILL)
                deadline_s = time.monotonic() + _STOP_S
            await asyncio.sleep(_LOOK_S)

    def _send(self, name: str, number: signal.Signals) -> None:
        process = self.parts[name].process
        if process is not None:
            process.send_signal(number)  # no effect if it has ended


async def _idle(http: httpx.AsyncClient) -> set[str]:
    with suppress(httpx.HTTPError):
        answer = await http.get("/v1/workers")
        if answer.status_code == httpx.codes.OK:
            return {each["id"] for each in answer.json()["data"] if each["state"] == "idle"}
    return set()


def _ended(part: ManagedProcess) -> bool:
    return part.process is not None and part.process.poll() is not None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
