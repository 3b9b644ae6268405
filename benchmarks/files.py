"""Keep the answers of long benchmarks, a JSON file each, so that the next call continues."""

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
    """What a figure depends on besides its spec: the method's version and the hardware."""
    return {"method_version": METHOD_VERSION, "hardware_id": hardware_id(discover("cpu", Settings()))}


class Files:
    """One file per answer in `folder`, with a name from the caller.

    `stamp` is written into each file. Files with another stamp are ignored, files without a stamp are not.
    """

    def __init__(self, folder: Path, stamp: Mapping[str, JsonValue] | None = None) -> None:
        self._folder, self._stamp = folder, stamp or {}

    def get(self, name: str, spec: Spec) -> dict[str, Any] | None:
        """The answer of this name with its `spec`. None if spec or stamp differ, or if the file can't be read."""
        try:
            found: dict[str, Any] = json.loads(self._path(name).read_text())
            alike = all(found.get(key, value) == value for key, value in self._stamp.items())
            return found if found["spec"] == spec and alike else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, name: str, spec: Spec, answer: Mapping[str, Any]) -> None:
        """Write the answer whole or not at all, whenever this process ends."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._path(name).with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"spec": dict(spec), **self._stamp, **answer}))
        unfinished.replace(self._path(name))

    def once(self, name: str, spec: Spec, make: Callable[[], Mapping[str, JsonValue]]) -> dict[str, Any]:
        """The kept answer. Without one, make it and keep it."""
        if (kept := self.get(name, spec)) is None:
            print(f"{name}: {json.dumps(dict(spec))}", flush=True)
            self.put(name, spec, make())
            kept = self.get(name, spec)
            assert kept is not None
        return kept

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
