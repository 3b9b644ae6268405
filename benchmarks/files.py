"""What long benchmarks have found so far, a JSON file each: the next call goes on there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from dyno.bench.devices.discovery import discover
from dyno.bench.devices.environment import hardware_id
from dyno.models.result import METHOD_VERSION
from dyno.settings import Settings

Spec = Mapping[str, JsonValue]


def here() -> dict[str, JsonValue]:
    """What a figure rests on besides its spec: the method's version, and hardware like this machine's."""
    return {"method_version": METHOD_VERSION, "hardware_id": hardware_id(discover("cpu", Settings()))}


class Files:
    """One file per answer in `folder`, by the name given to what was asked for.

    `stamp` goes into each file; one that bears another is no answer. One that bears none is taken as it is.
    """

    def __init__(self, folder: Path, stamp: Mapping[str, JsonValue] | None = None) -> None:
        self._folder, self._stamp = folder, stamp or {}

    def get(self, name: str, spec: Spec) -> dict[str, Any] | None:
        """What was kept under this name, `spec` included, if it answers this very spec and can be read."""
        try:
            found: dict[str, Any] = json.loads(self._path(name).read_text())
            alike = all(found.get(key, value) == value for key, value in self._stamp.items())
            return found if found["spec"] == spec and alike else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, name: str, spec: Spec, answer: Mapping[str, Any]) -> None:
        """Whole or not at all, whenever this process is ended."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._path(name).with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"spec": dict(spec), **self._stamp, **answer}))
        unfinished.replace(self._path(name))

    def once(self, name: str, spec: Spec, make: Callable[[], Mapping[str, JsonValue]]) -> dict[str, Any]:
        """What was kept, or else the new answer, which is kept."""
        if (kept := self.get(name, spec)) is None:
            print(f"{name}: {json.dumps(dict(spec))}", flush=True)
            self.put(name, spec, make())
            kept = self.get(name, spec)
            assert kept is not None
        return kept

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
