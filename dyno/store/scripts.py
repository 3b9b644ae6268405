"""The Lua scripts beside this file, one per transition, those of API keys and webhooks, loaded by file name.

Each is sent as `_ledger.lua` (what all of them do alike, with the table of transitions from `dyno.models.job` and the
bounds of histograms from `dyno.store.tally`) and its own text. A script that isn't named here, or a name without a
script, stops the import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from dyno.models.job import TRANSITIONS

_FOLDER = Path(__file__).parent
# Histogram bounds, in seconds, of the readings that the scripts count.
BOUNDS_S: Final[Mapping[str, Sequence[float]]] = {
    "wait": (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400),
    "attempt": (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400),
}


class Script(StrEnum):
    """Name of every script; its text is `SOURCES[name]`."""

    SUBMIT = "submit"
    CLAIM = "claim"
    HEARTBEAT = "heartbeat"
    FINISH = "finish"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    EXPIRE = "expire"
    DELETE = "delete"
    ADMIT = "admit"
    REVOKE = "revoke"
    OPEN = "open"
    DELIVER = "deliver"
    SETTLE = "settle"
    REDELIVER = "redeliver"


def _transitions_in_lua() -> str:
    pairs = (f"['{before or 'none'} {event}'] = '{after}'" for (before, event), after in TRANSITIONS.items())
    return f"local TRANSITIONS = {{ {', '.join(pairs)} }}\n"


def _bounds_in_lua() -> str:
    lists = (f"{what} = {{ {', '.join(map(str, bounds))} }}" for what, bounds in BOUNDS_S.items())
    return f"local BOUNDS_S = {{ {', '.join(lists)} }}\n"


def load(folder: Path = _FOLDER) -> dict[Script, str]:
    """Read all scripts; raises RuntimeError naming those without a caller and those without a file."""
    files = {path.stem: path.read_text() for path in folder.glob("*.lua") if not path.stem.startswith("_")}
    named = {script.value for script in Script}
    if files.keys() != named:
        raise RuntimeError(
            f"Lua scripts without a caller: {sorted(files.keys() - named)}, "
            f"callers without a Lua script: {sorted(named - files.keys())}"
        )
    ledger = _transitions_in_lua() + _bounds_in_lua() + (folder / "_ledger.lua").read_text()
    return {script: _assemble(ledger, files[script]) for script in Script}


def _assemble(ledger: str, text: str) -> str:
    """Redis reads the flags from the very first line, so that one stays in front."""
    flags, _, body = text.partition("\n")
    return f"{flags}\n{ledger}\n{body}"


SOURCES: Final = load()
