"""Write the parts of the docs that the code declares: `make docs`. tests/test_docs.py fails where they differ."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from dyno.bench.measure.warning_codes import CODES, WarningCode
from dyno.bench.registry import bundled
from dyno.models.sweep import presets
from dyno.store.redis import Keys

ROOT = Path(__file__).parents[1]
RATES = ROOT / "docs" / "results" / "recorded" / "alarms.json"
CLASSES = {"A": "the number is wrong", "B": "it may not repeat", "C": "read it with care"}
_OF_RESULTS = [row for row in CODES.values() if not row.at_submit]
# `{measure.stability.DRIFT_LIMIT:%}` in a text is the value of dyno.bench.measure.stability.DRIFT_LIMIT in per cent.
CONSTANT = re.compile(r"\{([a-z_.]+)\.([A-Z_]+)(?:\[([^]]+)\])?(?::(.+?))?\}")
UNITS: dict[str | None, Callable[[Any], str]] = {
    None: lambda value: f"{value:g}",
    "%": lambda share: f"{100 * share:g} %",
    "/": lambda ratio: str(Fraction(ratio).limit_denominator(9)),
    "e": lambda small: re.sub(r"(\.0)?e-0", "e-", f"{small:.1e}"),
    "ms": lambda seconds: f"{1e3 * seconds:g} ms",
    "days": lambda seconds: f"{seconds / 86400:g} days",
}


def warnings() -> str:
    """A section for each warning, by class; then those of a spec at its submit."""
    parts = [(f"{key}: {title}", [row for row in _OF_RESULTS if row.severity == key]) for key, title in CLASSES.items()]
    parts.append(
        ("At submit: the spec may not measure what you want", [row for row in CODES.values() if row.at_submit])
    )
    return "\n".join(f"## {title}\n\n" + "\n".join(map(_section, rows)) for title, rows in parts)


def _section(row: WarningCode) -> str:
    parts = [f"**Means.** {row.means}", f"**Found.** {row.found}", f"**Do.** {row.do}", *_measured(row.code)]
    return "\n\n".join([f"### {row.code}", *map(_wrapped, parts)]) + "\n"


def _measured(code: str) -> list[str]:
    """How often the warning was right, as the last run of `python -m benchmarks alarms` counted."""
    rates = json.loads(RATES.read_text()).get(code, {}) if RATES.exists() else {}
    (hits, provoked), (false, quiet) = rates.get("provoked", (0, 0)), rates.get("quiet", (0, 0))
    said = [f"raised in {hits} of {provoked} runs of the tests that provoke it"] if provoked else []
    said += [f"in {false} of {quiet} jobs on a quiet machine"] if quiet else []
    return [f"**Measured.** [alarms.md](results/alarms.md): {', and '.join(said)}."] if said else []


def _wrapped(text: str) -> str:
    """The text's paragraphs and lists in lines of 120 characters, with the values of constants."""
    text = CONSTANT.sub(_value, inspect.cleandoc(text))
    blocks = [re.split(r"\n(?=- )", block) for block in text.split("\n\n")]
    return "\n\n".join("\n".join(map(_filled, block)) for block in blocks)


def _filled(item: str) -> str:
    indent = "  " if item.startswith("- ") else ""
    words = " ".join(item.split())
    return textwrap.fill(words, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _value(constant: re.Match[str]) -> str:
    module, name, key, unit = constant.groups()
    package = "dyno.bench" if module.startswith("measure.") else "dyno"
    value = getattr(import_module(f"{package}.{module}"), name)
    if key:
        value = value[int(key) if key.isdigit() else " ".join(key.split())]
    return UNITS[unit](value)


def workloads_in_short() -> str:
    """The table of README.md."""
    rows = ((f"`{name}`", found.description) for name, found in bundled().items())
    return _table(("workload", "what it measures"), *rows)


def workloads() -> str:
    """The table of docs/workloads.md."""
    rows = ((f"`{name}`", found.description, found.options) for name, found in bundled().items())
    return _table(("workload", "what it measures", "options and outputs"), *rows)


def _table(head: Sequence[str], *rows: Sequence[str]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


def sweeps() -> str:
    """The table of presets in docs/api.md."""
    rows = ((f"`{name}`", found.description, f"_{found.article}_") for name, found in presets().items())
    return _table(("preset", "what it shows", "article"), *rows)


def alerts() -> str:
    """The table of alerts in docs/operations.md."""
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "dyno.rules.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    rows = (
        (
            f"[`{each['alert']}`](runbooks.md#{each['alert'].lower()})",
            each["labels"]["severity"],
            each.get("for", "at once"),
            each["annotations"]["description"],
        )
        for each in rules
    )
    return _table(("alert", "severity", "fires after", "what to do"), *rows)


def keys() -> str:
    """The table of keys in docs/architecture.md."""
    lost = {"record": "kept", "derived": "made again", "spare": "lost"}
    rows = ((f"`{row.name}`", row.type, row.holds, row.bound, lost[row.origin]) for row in Keys.rows().values())
    return _table(("key", "type", "holds", "bounded by", "a damaged value is"), *rows)


TABLE = re.compile(r"^\| workload \|.*\n(?:\|.*\n)+", re.MULTILINE)
# Page -> the part of it that is generated, and what generates it.
GENERATED: dict[str, tuple[re.Pattern[str], Callable[[], str]]] = {
    "README.md": (TABLE, workloads_in_short),
    "docs/workloads.md": (TABLE, workloads),
    "docs/api.md": (re.compile(r"^\| preset \|.*\n(?:\|.*\n)+", re.MULTILINE), sweeps),
    "docs/architecture.md": (re.compile(r"^\| key \|.*\n(?:\|.*\n)+", re.MULTILINE), keys),
    "docs/operations.md": (re.compile(r"^\| alert \|.*\n(?:\|.*\n)+", re.MULTILINE), alerts),
    "docs/warnings.md": (re.compile(r"^## A: .*\Z", re.MULTILINE | re.DOTALL), warnings),
}


def generated(page: str) -> str:
    """The whole page with its generated part anew."""
    part, make = GENERATED[page]
    text, count = part.subn(lambda _: make(), (ROOT / page).read_text())
    assert count == 1, f"{page} has no place for its generated part"
    return text


if __name__ == "__main__":
    for _page in GENERATED:
        (ROOT / _page).write_text(generated(_page))
