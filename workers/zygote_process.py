"""A zygote seen from the worker: its process and the control socket."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence

from workers.log_tail import TAIL_BYTES

# What may hold one: a URL a password, headers for a collector of traces a token.
_SECRET = re.compile(r"^DYNO_(REDIS|ARTIFACT)_URL$|API_KEY|SECRET|PASSWORD|_(TOKEN|HEADERS)$")
_GRACE_S = 3.0  # it waits itself for 2 s at most, for what it kills


class ZygoteProcess:
    """Started by the constructor, on the thread whose life its own is tied to. Loading goes on in the background."""

    def __init__(self, framework: str | None, cores: Sequence[int], doors: Sequence[str] = ()) -> None:
        """`doors`: the files through which it joins the groups of its runners."""
        self.framework = framework
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # TensorFlow greets everybody who imports it; that is kept from the worker's stderr until it matters.
        self._log_fd = os.memfd_create("zygote-log", os.MFD_CLOEXEC)
        with theirs:
            self._process = subprocess.Popen(
                _command(framework, theirs.fileno(), cores, doors),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log_fd,
                stderr=self._log_fd,
                env=_environment(framework),
                start_new_session=True,  # Ctrl-C in the worker's terminal is the supervisor's to handle
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, argv: list[str] | None, fds: list[int]) -> None:
        """Ask for a child with `fds` = frames, log, request, status; `argv` is what a spawned one executes.

        Raises BrokenPipeError or ConnectionResetError if the zygote is gone.
        """
        socket.send_fds(self._control, [json.dumps({"argv": argv}).encode()], fds)

    def end(self) -> None:
        """End it and with it its children and what they orphaned; reap it. One that doesn't hear is killed."""
        self._control.close()
        self._process.terminate()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._log_fd)

    def obituary(self) -> str | None:
        """Of a zygote that died by itself: how, and its last words; None while it lives."""
        code = self._process.poll()
        if code is None:
            return None
        start = max(0, os.fstat(self._log_fd).st_size - TAIL_BYTES)
        return f"exit code {code}\n{os.pread(self._log_fd, TAIL_BYTES, start).decode('utf-8', 'replace')}"


def _command(framework: str | None, socket_fd: int, cores: Sequence[int], doors: Sequence[str]) -> list[str]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "workers.zygote",
        "--socket-fd",
        str(socket_fd),
        "--parent",
        str(os.getpid()),
    ]
    if framework is not None:
        command += ["--framework", framework]
    if cores:
        command += ["--cores", ",".join(map(str, cores))]
    for door in doors:
        command += ["--join", door]
    return command


def _environment(framework: str | None) -> dict[str, str]:
    """The worker's, without what a runner has no use for and may hold a secret, with Keras' backend."""
    environment = {name: value for name, value in os.environ.items() if _SECRET.search(name) is None}
    if framework is not None:
        environment["KERAS_BACKEND"] = framework
    return environment
