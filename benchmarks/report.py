"""One page in docs/results/ per benchmark: what was measured, on what."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path

from dyno.devices import discover, environment
from dyno.devices.clock import measure_clock_hz
from dyno.settings import Settings

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def write(name: str, title: str, lines: Sequence[str]) -> None:
    """Write docs/results/<name>.md and print it."""
    device = discover("cpu", Settings())
    clock = measure_clock_hz(device.cores[0])
    clock_text = f"{clock / 1e9:.2f} GHz measured" if clock else "clock not measured"
    machine = f"{device.model}, {len(device.cores)} cores, {clock_text}, {device.memory_bytes / 2**30:.0f} GiB"
    text = "\n".join(
        [
            f"# {title}",
            "",
            *lines,
            "",
            "## Environment",
            "",
            f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {machine}",
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
