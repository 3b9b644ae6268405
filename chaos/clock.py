"""A wall clock that jumps, for one worker and all it starts; the monotonic one is left alone, as on a real host.

Our own (`jumping.c`), for libfaketime 0.9.10 can't do just that: told to leave the monotonic clock alone, it has every
`time.sleep` of Python fail with EINVAL, and told nothing it lets that clock jump too.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = Path(__file__).with_name("jumping.c")


class JumpingClock:
    """`env` is for the worker. Without a C compiler it is empty, and `left_out` says so."""

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
        """So far from the true time, for all who have the clock, at once."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", offset_s))

    def _compiled(self) -> str | None:
        compiler = shutil.which("cc")
        if compiler is None:
            return "no C compiler is here to make a jumping clock with"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else f"the jumping clock can't be compiled: {done.stderr.strip()[:200]}"
