"""The pages in docs/results/, one per benchmark: what was measured, and on which machine."""

from __future__ import annotations

import datetime
import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from dyno.bench.devices.cpu_speed import measure_clock_hz
from dyno.bench.devices.discovery import discover
from dyno.bench.devices.environment import environment
from dyno.settings import Settings, WrongSettings, load_settings

RESULTS = Path(__file__).parent.parent / "docs" / "results"
USAGE = 2


def requested(known: Iterable[str], default: Sequence[str] = ()) -> list[str]:
    """The names on the command line; without any, `default` or all.

    A wrong setting or an unknown name ends the process before anything is measured: one line on stderr, exit code 2.
    """
    try:
        load_settings()
        wrong = ""
    except WrongSettings as error:
        wrong = error.detail
    names, valid = sys.argv[1:], list(known)
    if unknown := [name for name in names if name not in valid]:
        wrong = wrong or f"no such benchmark: {', '.join(unknown)}; there are {', '.join(valid)}"
    if wrong:
        sys.stderr.write(f"{wrong}\n")
        raise SystemExit(USAGE)
    return names or list(default) or valid


def machine() -> str:
    """This machine's processor, cores and memory."""
    device = discover("cpu", Settings())
    return f"{device.called}, {device.memory_bytes / 2**30:.0f} GiB"


def write(name: str, title: str, lines: Sequence[str], environment_of: str = "Environment") -> None:
    """Write docs/results/<name>.md and print it. `environment_of` is the heading above this machine's environment."""
    clock = measure_clock_hz(discover("cpu", Settings()).cores[0])
    clock_text = f"{clock / 1e9:.2f} GHz measured" if clock else "clock not measured"
    today, packages = datetime.datetime.now(datetime.UTC), json.dumps(environment(), indent=1, sort_keys=True)
    foot = [f"## {environment_of}", "", f"{today:%Y-%m-%d}, {machine()}, {clock_text}", "", "```json", packages, "```"]
    text = "\n".join([f"# {title}", "", "\n".join(lines).rstrip(), "", *foot, ""])
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text)
    print(text)


def prose(text: str) -> list[str]:
    """`text` wrapped as the lines of a page, and an empty line."""
    return [*textwrap.wrap(" ".join(text.split()), 116, break_on_hyphens=False), ""]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table as lines, and an empty line. A bar in a cell becomes a slash, a line break a space."""
    cells = [[str(cell).replace("|", "/").replace("\n", " ") for cell in row] for row in rows]
    return [*(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *cells]), ""]
