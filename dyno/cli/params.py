"""A workload's params from the words of a command, and in its help."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer
from pydantic import JsonValue
from typer.core import TyperCommand

from dyno import tables
from dyno.catalogue import WorkloadEntry
from dyno.cli.app import console
from dyno.workloads import registry

_WORDS = "dyno.words"


class OfWorkload(TyperCommand):
    """A command whose help has the params of the workload that is named beside `--help`. No service is asked."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = tuple(args)  # help is printed before any of them is taken
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        for workload in (known for name, known in registry().items() if name in ctx.meta[_WORDS]):
            tables.params(console, workload.name, workload.description, workload.params.model_json_schema())


def assignments(pairs: list[str] | None) -> dict[str, JsonValue]:
    """Of words such as `n=4096`. Raises BadParameter."""
    return {name: value_of(text) for name, text in pairs_of(pairs).items()}


def pairs_of(pairs: list[str] | None) -> dict[str, str]:
    """Of words such as `team=vision`, each name once. Raises BadParameter."""
    values: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{pair!r} is not name=value")
        if name in values:
            raise typer.BadParameter(f"{name} is given more than once")
        values[name] = text
    return values


def own_params(workload: WorkloadEntry, words: Sequence[str]) -> dict[str, JsonValue]:
    """Of words such as `--n 4096`, `--batch-size=32` or `--jit-compile`. Raises BadParameter that names them all."""
    known: dict[str, Any] = workload.params.get("properties", {})
    values: dict[str, JsonValue] = {}
    left = list(words)
    while left:
        option, equals, text = left.pop(0).partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in known:
            raise typer.BadParameter(f"{workload.name} has no {option}; its params: {_listed(known)}")
        if equals or (left and not left[0].startswith("--")):
            values[name] = value_of(text if equals else left.pop(0), known[name])
        elif known[name].get("type") == "boolean":
            values[name] = True
        else:
            raise typer.BadParameter(f"{option} of {workload.name} needs a value")
    return values


def value_of(text: str, schema: dict[str, Any] | None = None) -> JsonValue:
    """JSON, or a word: the latter always where nothing but text is allowed."""
    if schema is not None and schema.get("type") == "string":
        return text
    try:
        found: JsonValue = json.loads(text)
    except json.JSONDecodeError:
        return text
    return found


def _listed(known: dict[str, Any]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in known) or "none"
