"""Processors that this machine doesn't have, as files of the kernel: for fast tests, and for rows of `make matrix`.

They keep this machine's instruction sets, since the code that Dyno times must run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dyno.bench.devices.cpu import CPUINFO, TOPOLOGY

# What each maker's processors say. The fields that aren't named here are missing, as on a real machine.
MAKERS = {
    "amd": {
        **{"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "17", "stepping": "1"},
        **{"model name": "AMD EPYC 9554 64-Core Processor", "cpu MHz": "3100.000", "flags": ""},
    },
    "intel": {
        **{"vendor_id": "GenuineIntel", "cpu family": "6", "model": "143", "stepping": "8"},
        **{"model name": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "cpu MHz": "2700.000", "flags": ""},
    },
    "arm": {
        **{"BogoMIPS": "2000.00", "Features": "fp asimd", "CPU implementer": "0x41", "CPU architecture": "8"},
        **{"CPU variant": "0x0", "CPU part": "0xd4f", "CPU revision": "1"},
    },
    "unknown": {
        **{"vendor_id": "ExampleMaker", "cpu family": "999", "model": "999", "stepping": "unknown"},
        **{"model name": "Example 1", "flags": ""},
    },
}
PROCESSORS = (1, 2, 64)
CACHE = {"level": "3", "type": "Unified", "size": "32768K", "coherency_line_size": "64", "ways_of_associativity": "16"}
# In a mount namespace of its own. A user other than root needs a user namespace for it.
MOUNTED = (
    f"""mount --bind "$1{CPUINFO}" {CPUINFO} && mount --bind "$1{TOPOLOGY}" {TOPOLOGY} && shift && exec "$@" """.strip()
)


class Identity(NamedTuple):
    maker: str
    processors: int

    def write(self, root: Path) -> Path:
        """Write /proc/cpuinfo and /sys/devices/system/cpu below `root`, and return it."""
        fields = {name: value or _own_flags() for name, value in MAKERS[self.maker].items()}
        described = "".join(f"{name}\t: {value}\n" for name, value in fields.items())
        blocks = (f"processor\t: {number}\n{described}\n" for number in range(self.processors))
        _write(root, dict(self._topology()) | {str(CPUINFO): "".join(blocks)})
        return root

    def _topology(self) -> Iterator[tuple[str, str]]:
        every = f"0-{self.processors - 1}" if self.processors > 1 else "0"
        for name in ("online", "possible", "present"):
            yield f"{TOPOLOGY}/{name}", every
        for number in range(self.processors):
            folder = f"{TOPOLOGY}/cpu{number}"
            yield f"{folder}/topology/physical_package_id", "0"
            yield f"{folder}/topology/core_siblings_list", every
            yield f"{folder}/topology/thread_siblings_list", str(number)
            for name, value in (CACHE | {"shared_cpu_list": every}).items():
                yield f"{folder}/cache/index3/{name}", value


def wrapper(root):
    """The command that starts another one on the processor whose files are below `root`. Empty if it doesn't work."""
    become = [] if os.geteuid() == 0 else ["--map-root-user"]
    words = ["unshare", "--mount", *become, "sh", "-c", MOUNTED, "sh", str(root)]
    works = (
        shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    )
    return words if works else []


def _own_flags():
    """The instruction sets of this machine, if it is one of x86."""
    lines = (line.partition(":") for line in CPUINFO.read_text().splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == "flags"), "fpu")


def _write(root, files):
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
