"""Requests and their answers, as they were really given once; tests hold them to the schemas, and ask again."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from service.codes import PROBLEMS
from service.openapi.errors import codes

Examples = dict[str, Any]

_FILE = Path(__file__).with_name("examples.json")
_JSON = "application/json"


@cache
def recorded() -> Examples:
    """`problems` by code; `requests` and `answers` by operationId, of the latter by status."""
    found: Examples = json.loads(_FILE.read_text())
    return found


def show_examples(document: dict[str, Any]) -> None:
    """Add what was recorded. Problems are shared: each response names those of its codes."""
    kept, used = recorded(), set()
    for methods in document["paths"].values():
        for operation in methods.values():
            _show(operation, kept)
            for status, answer in operation["responses"].items():
                if status >= "400":
                    shown = [code for code in codes(answer) if code in kept["problems"]]
                    _refer(answer, shown)
                    used |= set(shown)
    document["components"]["examples"] = {
        code: {"summary": PROBLEMS[code][1], "value": kept["problems"][code]} for code in PROBLEMS if code in used
    }


def _show(operation: dict[str, Any], kept: Examples) -> None:
    operation_id = operation["operationId"]
    if operation_id in kept["requests"]:
        operation["requestBody"]["content"][_JSON]["examples"] = _named(kept["requests"][operation_id])
    for status, answers in kept["answers"].get(operation_id, {}).items():
        for media_type, media in operation["responses"][status]["content"].items():
            of_type = {name: value for name, value in answers.items() if _is_of(media_type, value)}
            if of_type:
                media["examples"] = _named(of_type)


def _is_of(media_type: str, value: object) -> bool:
    """A text was recorded of what is no JSON: streams and tables."""
    return isinstance(value, str) != (media_type == _JSON)


def _named(values: dict[str, Any]) -> dict[str, Any]:
    return {name: {"value": value} for name, value in values.items()}


def _refer(answer: dict[str, Any], named: list[str]) -> None:
    for media in answer["content"].values():
        media["examples"] = {code: {"$ref": f"#/components/examples/{code}"} for code in named}
