"""The figures of a stored result, read without all that they rest on: a tenth of the time."""

from __future__ import annotations

from typing import Any

from dyno.job import Stored
from dyno.result import Metric, Verdict


class Figures(Stored):
    """Some fields of `dyno.result.Result`."""

    verdict: Verdict
    metrics: list[Metric]
    hardware_id: str | None = None
    device: dict[str, Any] = {}
    arms: list[Figures] = []
