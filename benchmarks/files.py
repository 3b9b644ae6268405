"""What long benchmarks have found so far, a JSON file each: the next call goes on there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

Spec = Mapping[str, JsonValue]


class Files:
    """One file per answer in `folder`, by the name given to what was asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, name: str, spec: Spec) -> dict[str, Any] | None:
        """What was kept under this name, `spec` included, if it answers this very spec and can be read."""
        try:
            found: dict[str, Any] = json.loads(self._path(name).read_text())
            return found if found["spec"] == spec else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, name: str, spec: Spec, answer: Mapping[str, JsonValue]) -> None:
        """Whole or not at all, whenever this process is ended."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._path(name).with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"spec": dict(spec), **answer}))
        unfinished.replace(self._path(name))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
