"""A result's figures in the words of a page's table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import JsonValue

from dyno.formatting import format_quantity
from dyno.models.result import Metric, Result, Training


def named(result: Result, name: str) -> Metric:
    """Raises KeyError for a metric that the result hasn't."""
    return {metric.name: metric for metric in result.metrics}[name]


def headline(result: Result) -> Metric:
    """The time of one sample where there are samples, else the workload's first metric."""
    return next((metric for metric in result.metrics if metric.name == "time_per_sample"), result.metrics[0])


def figure(metric: Metric) -> str:
    """The value, its 95 % interval over the runs, how many runs and samples it rests on."""
    value = format_quantity(metric.value, metric.unit)
    if metric.runs == 1 or metric.low is None or metric.high is None:
        return f"{value} ({metric.samples} samples of one run)" if metric.samples > 1 else value
    low, high = format_quantity(metric.low, metric.unit), format_quantity(metric.high, metric.unit)
    return f"{value} [{low} to {high}, {metric.runs} runs, {metric.samples} samples]"


def quality(training: Training | None) -> str:
    """What was learnt: accuracy with its interval, or the figures on the test set beside those without training."""
    if training is None:
        return "–"
    said = []
    if training.accuracy is not None and training.accuracy_low is not None and training.accuracy_high is not None:
        said.append(f"{training.accuracy:.2%} [{training.accuracy_low:.2%} to {training.accuracy_high:.2%}]")
    if training.wrong is not None:
        said.append(f"{training.wrong:,} of {training.data.test_samples:,} wrong")
    if training.test:
        said.append(_listed(training.test))
    if training.baselines:
        said.append(f"without training {', '.join(_beside(training, *each) for each in training.baselines.items())}")
    return ", ".join(said) or f"loss {training.epochs[-1].loss:.4g}"


def epochs(training: Training) -> str:
    """How long they took, the first one (with compiling) apart, and where the loss went."""
    first, *further = training.epochs
    times = f"first epoch {format_quantity(first.time_s, 's')}"
    if further:
        times += f", further {format_quantity(sum(epoch.time_s for epoch in further) / len(further), 's')} on average"
    return f"{len(training.epochs)} epochs: {times}; loss {first.loss:.4g} to {training.epochs[-1].loss:.4g}"


def fired(training: Training) -> str:
    """What the callbacks did; each epoch's checkpoint is one of them."""
    counts = Counter(event.callback for event in training.callbacks)
    return "callbacks: " + ", ".join(f"{name} {count} x" for name, count in counts.items()) if counts else ""


def taken(result: Result) -> str:
    """The day on which its first run began, UTC."""
    at_s = result.runs[0].started_at_s
    return "" if at_s is None else datetime.fromtimestamp(at_s, UTC).date().isoformat()


def data(training: Training | None) -> str:
    """Which set it was, whether the real one, and how much of it."""
    if training is None:
        return "–"
    origin = training.data
    return f"{origin.name}, {origin.kind}, {origin.train_samples:,} + {origin.test_samples:,}"


def memory(result: Result) -> str:
    """The peak of one process: the device's where it has memory of its own."""
    peak_bytes = result.memory.device_peak_bytes or result.memory.host_peak_bytes
    return "–" if peak_bytes is None else f"{peak_bytes / 2**20:,.0f} MiB"


def hardware(result: Result) -> str:
    cores = len(result.device["cores"])
    return f"{result.device['model']}, {cores} cores" if result.device["kind"] == "cpu" else result.device["model"]


def framework(result: Result) -> str:
    """Which one executed it, and its version."""
    name, packages = str(result.environment.get("framework")), result.environment["packages"]
    return " ".join([name, *(packages[each] for each in (name, f"{name}-cpu") if each in packages)][:2])


def detail(value: JsonValue) -> str:
    """As it is; of a forecast's signals the errors, beside those of the last value; of margins their intervals."""
    if isinstance(value, dict) and all(isinstance(each, dict) and "by" in each for each in value.values()):
        return ", ".join(f"{name} by {_span(each)}" for name, each in value.items() if isinstance(each, dict))
    if not isinstance(value, list):
        return str(value)
    return ", ".join(
        f"{one['signal']} RMSE {one['rmse']:.3g} {one['unit']} (last value {one['last_value_rmse']:.3g})"
        for one in value
        if isinstance(one, dict)
    )


def verdict(result: Result) -> str:
    """With the codes of all that speaks against the figures."""
    codes = ", ".join(dict.fromkeys(each.code for each in result.warnings))
    return f"{result.verdict} ({codes})" if codes else str(result.verdict)


def _span(margin: Mapping[str, JsonValue]) -> str:
    by, low, high = (margin[name] for name in ("by", "low", "high"))
    if not isinstance(by, float) or not isinstance(low, float) or not isinstance(high, float):
        return f"{by}, {margin.get('reason')}"
    return f"{by:.3g} [{low:.3g} to {high:.3g}, 99.9 % over {margin['blocks']} blocks]"


def _beside(training: Training, name: str, value: float) -> str:
    """A baseline, and how far the figure that its name ends with lies from it."""
    ours = next((found for figure, found in training.test.items() if name.endswith(f"_{figure}")), None)
    return f"{name} {value:.4g}" if ours is None or value == 0 else f"{name} {value:.4g} ({ours / value - 1:+.1%})"


def _listed(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
