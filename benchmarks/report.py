"""One page in docs/results/ per benchmark: what was measured, on what."""

from __future__ import annotations

import datetime
import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from dyno.devices.cpu_speed import measure_clock_hz
from dyno.devices.discovery import discover
from dyno.devices.environment import environment
from dyno.settings import Settings

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def machine() -> str:
    """Its processor, cores and memory."""
    device = discover("cpu", Settings())
    return f"{device.model}, {len(device.cores)} cores, {device.memory_bytes / 2**30:.0f} GiB"


def write(name: str, title: str, lines: Sequence[str], environment_of: str = "Environment") -> None:
    """Write docs/results/<name>.md and print it. `environment_of` heads what was found of this machine now."""
    clock = measure_clock_hz(discover("cpu", Settings()).cores[0])
    clock_text = f"{clock / 1e9:.2f} GHz measured" if clock else "clock not measured"
    text = "\n".join(
        [
            f"# {title}",
            "",
            "\n".join(lines).rstrip(),
            "",
            f"## {environment_of}",
            "",
            f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {machine()}, {clock_text}",
            "",
            "```json",
            json.dumps(environment(), indent=1, sort_keys=True),
            "```",
            "",
        ]
    )
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text)
    print(text)


def prose(text: str) -> list[str]:
    """`text` as the lines of a page, however it was broken before, and an empty one."""
    return [*textwrap.wrap(" ".join(text.split()), 116, break_on_hyphens=False), ""]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table as lines, and an empty one."""
    cells = [head, ["---"] * len(head), *rows]
    return [*(f"| {' | '.join(map(str, row))} |" for row in cells), ""]
