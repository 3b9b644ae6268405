"""Sets of cores as the kernel writes them: "0-1,4" (cpulist, as in /sys/devices/system/cpu/online)."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PART = re.compile(r"^(\d{1,5})(?:-(\d{1,5}))?$")


def parse_cpulist(text: str) -> list[int]:
    """The cores named by `text`, sorted, each once. Raises ValueError on anything that is no cpulist."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        match = _PART.match(part)
        if match is None:
            raise ValueError(f'"{text}" is no list of cores such as "0-1,4"')
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f'"{part}" runs backwards')
        cores.update(range(first, last + 1))
    return sorted(cores)


def format_cpulist(cores: Iterable[int]) -> str:
    """The shortest cpulist of `cores`: [0, 1, 2, 4] gives "0-2,4", [0] gives "0-0" (one core is a range too).

    A set of one core is written "0-0" when it is the whole set, so that a device id looks alike for any number.
    """
    runs: list[list[int]] = []
    for core in sorted(set(cores)):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    if len(runs) == 1:
        return f"{runs[0][0]}-{runs[0][1]}"
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
