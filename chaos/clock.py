"""A jumping wall clock for one worker and its child processes. As on a real host, the monotonic clock doesn't jump.

It is our own library (`jumping.c`), because libfaketime 0.9.10 can't do this. If it is set to leave the monotonic clock
alone, every `time.sleep` of Python fails with EINVAL; by default, that clock jumps too.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = Path(__file__).with_name("jumping.c")


class JumpingClock:
    """`env`: the worker's environment. Without a C compiler it is empty, and `left_out` has the reason."""

    def __init__(self, folder: Path) -> None:
        self._file, self._library = folder / "clock", folder / "jumping.so"
        self._file.write_bytes(struct.pack("=q", 0))
        self.left_out = self._compiled()

    @property
    def env(self) -> Mapping[str, str]:
        if self.left_out is not None:
            return {}
        return {"LD_PRELOAD": str(self._library), "JUMPING_CLOCK": str(self._file)}

    def jump(self, offset_s: int) -> None:
        """Set the offset from the true time, for all processes with this clock at once."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", offset_s))

    def _compiled(self) -> str | None:
        compiler = shutil.which("cc")
        if compiler is None:
            return "no C compiler is here to make a jumping clock with"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else f"the jumping clock can't be compiled: {done.stderr.strip()[:200]}"
