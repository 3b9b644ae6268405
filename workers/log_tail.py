"""The end of what a runner printed. Its stdout and stderr are a pipe, so a flood of output fills no disk."""

from __future__ import annotations

import os
from collections.abc import Callable

TAIL_BYTES = 4096
_READ_BYTES = 65536
_MOST_READS = 32  # a pipe holds 1 MiB at most


class LogTail:
    """Keeps the last `TAIL_BYTES`. `write_fd` is given to the runner and closed here afterwards.

    `pass_on` is told of all that is read.
    """

    def __init__(self) -> None:
        self.pass_on: Callable[[bytes], object] = lambda data: None
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_fd, False)
        self._tail = b""

    def read(self) -> int | None:
        """Read what is there, at most a pipe full, so that a flood can't hold its reader.

        Returns the number of bytes, 0 once nobody can write any more, None if there is nothing now.
        """
        try:
            data = os.read(self.read_fd, _READ_BYTES)
        except BlockingIOError:
            return None
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if data:
            self.pass_on(data)
        return len(data)

    def drain(self) -> None:
        """Read what a dead writer left in the pipe; one that escaped and still floods it is not waited for."""
        for _ in range(_MOST_READS):
            if not self.read():
                return

    def text(self) -> str | None:
        """What was kept, None if nothing was printed. Bytes that aren't UTF-8 are replaced."""
        return self._tail.decode("utf-8", "replace") or None

    def close(self) -> None:
        os.close(self.read_fd)
