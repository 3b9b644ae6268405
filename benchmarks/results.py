"""A result's figures as text for the cells of a page's table."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from dyno.formatting import format_quantity
from dyno.models.result import Metric, Result, Training


def figure(metric: Metric) -> str:
    """The value, its 95 % interval over the runs, and the numbers of runs and samples."""
    value = format_quantity(metric.value, metric.unit)
    if metric.runs == 1 or metric.low is None or metric.high is None:
        return f"{value} ({metric.samples} samples of one run)" if metric.samples > 1 else value
    low, high = format_quantity(metric.low, metric.unit), format_quantity(metric.high, metric.unit)
    return f"{value} [{low} to {high}, {metric.runs} runs, {metric.samples} samples]"


def quality(training: Training | None) -> str:
    """Accuracy with its interval, or the figures on the test set beside those without training."""
    if training is None:
        return "–"
    parts = []
    if training.accuracy is not None and training.accuracy_low is not None and training.accuracy_high is not None:
        parts.append(f"{training.accuracy:.2%} [{training.accuracy_low:.2%} to {training.accuracy_high:.2%}]")
    if training.wrong is not None:
        parts.append(f"{training.wrong:,} of {training.data.test_samples:,} wrong")
    parts += [f"{name} {value:.4g}" for name, value in training.test.items()]
    if training.baselines:
        baselines = (_baseline(training, name, value) for name, value in training.baselines.items())
        parts.append(f"without training {', '.join(baselines)}")
    return ", ".join(parts) or f"loss {training.epochs[-1].loss:.4g}"


def _baseline(training: Training, name: str, value: float) -> str:
    """A reference predictor's figure, and the relative difference of the trained model's figure from it."""
    ours = next((found for figure, found in training.test.items() if name.endswith(f"_{figure}")), None)
    return f"{name} {value:.4g}" if ours is None or value == 0 else f"{name} {value:.4g} ({ours / value - 1:+.1%})"


def epochs(training: Training) -> str:
    """Their times, the first one (with compiling) apart, and the loss."""
    first, *further = training.epochs
    times = f"first epoch {format_quantity(first.time_s, 's')}"
    if further:
        times += f", further {format_quantity(sum(epoch.time_s for epoch in further) / len(further), 's')} on average"
    return f"{len(training.epochs)} epochs: {times}; loss {first.loss:.4g} to {training.epochs[-1].loss:.4g}"


def callbacks(training: Training) -> str:
    """How often each callback acted."""
    counts = Counter(event.callback for event in training.callbacks)
    return "callbacks: " + ", ".join(f"{name} {count} x" for name, count in counts.items()) if counts else ""


def date(result: Result) -> str:
    """The day on which its first run began, UTC."""
    at_s = result.runs[0].started_at_s
    return "" if at_s is None else datetime.fromtimestamp(at_s, UTC).date().isoformat()


def data(training: Training | None) -> str:
    """The data set, whether it is the real one, and how much of it."""
    if training is None:
        return "–"
    origin = training.data
    return f"{origin.name}, {origin.kind}, {origin.train_samples:,} + {origin.test_samples:,}"


def memory(result: Result) -> str:
    """The peak of one process: on the device if it has memory of its own."""
    peak_bytes = result.memory.device_peak_bytes or result.memory.host_peak_bytes
    return "–" if peak_bytes is None else f"{peak_bytes / 2**20:,.0f} MiB"


def hardware(result: Result) -> str:
    cores = f", {len(result.device['cores'])} cores" if result.device["kind"] == "cpu" else ""
    return f"{result.device['model']}{cores}"


def framework(result: Result) -> str:
    """Its name and version."""
    name, packages = str(result.environment.get("framework")), result.environment["packages"]
    return " ".join([name, *(packages[each] for each in (name, f"{name}-cpu") if each in packages)][:2])


def detail(value: Any) -> str:
    """A forecast's errors beside those of the last value, margins with their intervals, other values unchanged."""
    if isinstance(value, dict) and all(isinstance(each, dict) and "by" in each for each in value.values()):
        return ", ".join(f"{name} by {_margin(each)}" for name, each in value.items())
    if not isinstance(value, list):
        return str(value)
    return ", ".join(
        f"{one['signal']} RMSE {one['rmse']:.3g} {one['unit']} (last value {one['last_value_rmse']:.3g})"
        for one in value
    )


def _margin(margin: dict[str, Any]) -> str:
    if margin["low"] is None or margin["high"] is None:
        return f"{margin['by']}, {margin.get('reason')}"
    interval = f"{margin['low']:.3g} to {margin['high']:.3g}, 99.9 % over {margin['blocks']} blocks"
    return f"{margin['by']:.3g} [{interval}]"


def verdict(result: Result) -> str:
    """The verdict, with the codes of the warnings."""
    codes = ", ".join(dict.fromkeys(each.code for each in result.warnings))
    return f"{result.verdict} ({codes})" if codes else str(result.verdict)
