"""Write the parts of the docs that the code declares (`make docs`). tests/test_docs.py fails if a page is outdated."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from dyno.bench.measure.warning_codes import CLASSES, CODES, WarningCode
from dyno.bench.registry import bundled
from dyno.models.sweep import presets
from dyno.settings import DATA_DIR, RUN_DIR, Settings
from dyno.store.redis import Keys

ROOT = Path(__file__).parents[1]
RATES = ROOT / "docs" / "results" / "recorded" / "alarms.json"
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
    """A section for each warning: the warnings of results, by class, then the warnings of a spec at its submit."""
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
    rows = (
        (f"`{name}`", found.description, f"_{found.article}_" if found.article else "–")
        for name, found in presets().items()
    )
    return _table(("preset", "what it shows", "article"), *rows)


# First setting of a section of docs/settings.md -> the section's heading.
SECTIONS = {
    "redis_url": "Redis, folders and data",
    "artifact_url": "Artifacts",
    "host": "API",
    "webhook_secret": "Webhooks",
    "prices": "Advice, history and schedules",
    "lease_s": "Jobs and workers",
    "log_format": "Logs and traces",
}


def settings() -> str:
    """The tables of docs/settings.md, one for each section."""
    sections: list[tuple[str, list[Sequence[str]]]] = []
    for name, field in Settings.model_fields.items():
        if name in SECTIONS:
            sections.append((SECTIONS[name], []))
        cells = (f"`DYNO_{name.upper()}`", _default(name, field.default), _bounds(name, field), str(field.description))
        sections[-1][1].append(cells)
    head = ("variable", "default", "values", "meaning")
    return "\n".join(f"## {title}\n\n{_table(head, *rows)}" for title, rows in sections)


def _default(name: str, default: Any) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, Path):
        path = str(default).replace(str(DATA_DIR), "~/.local/share/dyno").replace(str(RUN_DIR), "<temp>/dyno")
        return f"`{path}`"
    if isinstance(default, tuple):
        return ", ".join(_quantity(name, each) for each in default)
    return f"`{str(default).lower()}`" if isinstance(default, bool | str) else _quantity(name, default)


def _bounds(name: str, field: FieldInfo) -> str:
    """The values that a setting may have, if they are a list or have bounds."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    limits = {key: getattr(part, key) for part in field.metadata for key in ("ge", "gt", "le") if hasattr(part, key)}
    words = {"ge": "at least", "gt": "above", "le": "at most"}
    return ", ".join(f"{words[key]} {_quantity(name, limit)}" for key, limit in limits.items())


def _quantity(name: str, value: float) -> str:
    """A figure of a setting, in the unit that its name ends in."""
    if name.endswith("_bytes") and value >= 1024:
        step = min(3, (int(value).bit_length() - 1) // 10)
        return f"{value / 1024**step:g} {('KiB', 'MiB', 'GiB')[step - 1]}"
    unit = " s" if name.endswith("_s") else " bytes" if name.endswith("_bytes") else ""
    return f"{value:,}{unit}" if isinstance(value, int) and value >= 10_000 else f"{value:g}{unit}"


def keys() -> str:
    """The table of keys in docs/architecture.md."""
    lost = {"record": "kept", "derived": "rebuilt", "spare": "lost"}
    rows = ((f"`{row.name}`", row.type, row.holds, row.bound, lost[row.origin]) for row in Keys.rows().values())
    return _table(("key", "type", "holds", "bounded by", "a damaged value is"), *rows)


TABLE = re.compile(r"^\| workload \|.*\n(?:\|.*\n)+", re.MULTILINE)
# Page -> its generated part, and the function that generates this part.
GENERATED: dict[str, tuple[re.Pattern[str], Callable[[], str]]] = {
    "README.md": (TABLE, workloads_in_short),
    "docs/workloads.md": (TABLE, workloads),
    "docs/api.md": (re.compile(r"^\| preset \|.*\n(?:\|.*\n)+", re.MULTILINE), sweeps),
    "docs/dev/architecture.md": (re.compile(r"^\| key \|.*\n(?:\|.*\n)+", re.MULTILINE), keys),
    "docs/settings.md": (re.compile(r"^## Redis, .*\Z", re.MULTILINE | re.DOTALL), settings),
    "docs/warnings.md": (re.compile(r"^## A: .*\Z", re.MULTILINE | re.DOTALL), warnings),
}


def generated(page: str) -> str:
    """The whole page, with its generated part replaced by the current text."""
    part, make = GENERATED[page]
    text, count = part.subn(lambda _: make(), (ROOT / page).read_text())
    assert count == 1, f"{page} has no place for its generated part"
    return text


if __name__ == "__main__":
    for _page in GENERATED:
        (ROOT / _page).write_text(generated(_page))
