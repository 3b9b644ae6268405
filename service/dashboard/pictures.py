"""Pictures of results as SVG within a page. Colours and type sizes come from the page's style sheet.

Each picture has a title for screen readers. The page has the figures behind it as a table.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from xml.etree import ElementTree

from markupsafe import Markup

from dyno.formatting import format_quantity, scaled_unit
from dyno.models.comparison import Ratio
from dyno.models.history import ResultSeries
from dyno.models.result import Epoch, Metric, Phases, RunSamples, RunSummary

WIDTH = 720
MOST_POINTS = 1500  # of a picture: more can't be told apart
_MARGIN = 0.06  # of a scale, beyond its outermost values
_BINS = 40
_MOST_ROWS, _ROW = 12, 44  # of a histogram, and the height of one
_MOST_CONDITIONS = 6  # runs whose clock and temperature have room side by side
_NAMES, _LONGEST_NAME = 0.36 * WIDTH, 42  # start of the axis to the right of the rows' names; characters of a name
_RATIO_STEPS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
_TICK_APART = 44.0


@dataclass(frozen=True)
class Scale:
    """Places values between two coordinates. `unit`: of the labels. `least_step`: between two ticks."""

    low: float
    high: float
    start: float
    end: float
    unit: str
    least_step: float = 0.0

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> Iterator[tuple[float, str]]:
        """Coordinates and labels of round values."""
        factor, _ = self._scaled
        step = max(self.least_step, _round_step((self.high - self.low) / factor / most))
        first, last = math.ceil(self.low / factor / step), math.floor(self.high / factor / step)
        for number in range(first, last + 1):
            yield self.place(number * step * factor), f"{number * step:.6g}"

    @property
    def shown_unit(self) -> str:
        """The unit of the labels; empty for a plain number."""
        return "" if self.unit == "1" else self._scaled[1]

    @property
    def _scaled(self) -> tuple[float, str]:
        return scaled_unit(max(abs(self.low), abs(self.high)), self.unit)


def scale(values: Sequence[float], start: float, end: float, unit: str, *, from_zero: bool = False) -> Scale:
    """A scale that holds all values, and a little more."""
    low, high = min(values), max(values)
    margin = _MARGIN * (high - low) or abs(high) * _MARGIN or 1.0
    return Scale(0.0 if from_zero else low - margin, high + margin, start, end, unit)


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least * (1 - 1e-9))


class Picture:
    """An SVG that is drawn shape by shape."""

    def __init__(self, title: str, height: float, width: float = WIDTH) -> None:
        self.width, self.height = width, height
        size = {"width": f"{width:g}", "height": f"{height:g}", "viewBox": f"0 0 {width:g} {height:g}"}
        box = {**size, "role": "img", "class": "picture"}
        self._root = ElementTree.Element("svg", box)
        ElementTree.SubElement(self._root, "title").text = title

    def add(self, shape: str, css: str, title: str | None = None, /, **attributes: Any) -> None:
        """Add a shape of the style sheet's class `css`; `title` is shown beside the pointer."""
        texts = {name.replace("_", "-"): _short(value) for name, value in attributes.items()}
        element = ElementTree.SubElement(self._root, shape, {"class": css, **texts})
        if title:
            ElementTree.SubElement(element, "title").text = title

    def write(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        element = ElementTree.SubElement(self._root, "text", {"x": _short(x), "y": _short(y), "text-anchor": anchor})
        element.text = text

    def draw_x(self, along: Scale, y: float) -> None:
        self.add("line", "axis", x1=along.start, x2=along.end, y1=y, y2=y)
        for x, label in along.ticks():
            self.add("line", "axis", x1=x, x2=x, y1=y, y2=y + 4)
            if x < along.end - 56 or not along.shown_unit:
                self.write(x, y + 17, label)
        self.write(along.end, y + 17, along.shown_unit, "end")

    def draw_y(self, along: Scale, x: float, x_end: float) -> None:
        for y, label in along.ticks(4):
            self.add("line", "grid", x1=x, x2=x_end, y1=y, y2=y)
            self.write(x - 6, y + 4, label, "end")
        self.write(0, 10, along.shown_unit, "start")

    def markup(self) -> Markup:
        return Markup(ElementTree.tostring(self._root, encoding="unicode"))


def _short(value: Any) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def runs(metric: Metric, earlier: Sequence[float] = ()) -> Markup | None:
    """A dot for each run, the 95 % interval as a thick line, the prediction of the next result as a thin one.

    `earlier`: the values of earlier results of the series, as faint dots above.
    """
    figures = [*earlier, *metric.by_run, metric.value, metric.low, metric.high]
    figures += [metric.repeat.low, metric.repeat.high] if metric.repeat else []
    values = [value for value in figures if value is not None]
    if len(metric.by_run) < 2:
        return None
    picture, along = (
        Picture(f"{metric.name}: each run and its intervals", 76),
        scale(values, 12, WIDTH - 12, metric.unit),
    )
    for value in earlier:
        title = f"an earlier result: {format_quantity(value, metric.unit)}"
        picture.add("circle", "dot small faint", title, cx=along.place(value), cy=6.0, r=3)
    if metric.repeat:
        bounds = {"x1": along.place(metric.repeat.low), "x2": along.place(metric.repeat.high)}
        picture.add("line", "repeat", "where the next result falls (95 %)", y1=24, y2=24, **bounds)
    if metric.low is not None and metric.high is not None:
        bounds = {"x1": along.place(metric.low), "x2": along.place(metric.high)}
        picture.add("line", "interval", "95 % interval of these runs", y1=24, y2=24, **bounds)
    for number, value in enumerate(metric.by_run):
        title = f"run {number + 1}: {format_quantity(value, metric.unit)}"
        picture.add("circle", "dot", title, cx=along.place(value), cy=24 + 5 * (number % 3 - 1), r=4.5)
    picture.draw_x(along, 46)
    return picture.markup()


def samples(taken: Sequence[RunSamples], runs: Sequence[RunSummary] = ()) -> Markup | None:
    """Each sample's time in the order in which it was taken, run after run; warm-up is faint.

    The picture names the clocks and temperatures of `runs` below, where there is room.
    """
    every = [
        (run.run, kind, time_s) for run in taken for kind in ("warmup", "samples") for time_s in getattr(run, kind)
    ]
    if len(every) < 2:
        return None
    step = math.ceil(len(every) / MOST_POINTS)
    steady = sorted(time_s for _, kind, time_s in every if kind == "samples") or [time_s for *_, time_s in every]
    top = 1.5 * steady[-1]  # a first warm-up step may take a hundred times as long
    conditions = [_conditions(run) for run in runs] if len(runs) <= _MOST_CONDITIONS else []
    picture = Picture("the time of each sample, run after run", 206 if any(conditions) else 190)
    up = scale([min(time_s for *_, time_s in every), min(top, max(time_s for *_, time_s in every))], 165, 12, "s")
    picture.draw_y(up, 76, WIDTH)
    along = Scale(0, len(every), 80, WIDTH - 8, "1")
    last_run = None
    for index, (run, kind, time_s) in enumerate(every):
        if run != last_run:
            picture.add("line", "edge", x1=along.place(index), x2=along.place(index), y1=8, y2=168)
            picture.write(along.place(index) + 4, 184, f"run {run + 1}", "start")
            if run < len(conditions):
                picture.write(along.place(index) + 4, 200, conditions[run], "start")
            last_run = run
        if index % step == 0:
            height = max(8.0, up.place(min(time_s, up.high)))
            css = "dot small" if kind == "samples" else "dot small faint"
            picture.add("circle", css, format_quantity(time_s, "s"), cx=along.place(index), cy=height, r=2)
    return picture.markup()


def _conditions(run: RunSummary) -> str:
    """Such as `3.55 GHz, 61 °C`; empty if neither is known."""
    clock = f"{run.clock_hz / 1e9:.2f} GHz" if run.clock_hz else ""
    has_temperature = run.sensors is not None and run.sensors.temperature_c is not None
    return ", ".join(
        filter(None, (clock, f"{run.sensors.temperature_c:.0f} °C" if has_temperature and run.sensors else ""))
    )


def histogram(taken: Sequence[RunSamples]) -> Markup | None:
    """A histogram of the times of each run, without warm-up. Many runs share one row."""
    rows = {f"run {run.run + 1}": run.samples for run in taken if run.samples}
    times = [time_s for row in rows.values() for time_s in row]
    if len(rows) > _MOST_ROWS:
        rows = {f"{len(rows)} runs": times}
    if len(times) < 10 or min(times) == max(times):
        return None
    along = Scale(min(times), max(times), 80, WIDTH - 12, "s")
    counts = {name: _counts(row, along) for name, row in rows.items()}
    highest, bottom = max(max(row) for row in counts.values()), _ROW * len(counts)
    picture, width = (
        Picture("histogram of the samples, a row for each run", bottom + 30),
        (along.end - along.start) / _BINS,
    )
    for number, (name, row) in enumerate(counts.items()):
        floor = _ROW * (number + 1)
        picture.add("line", "grid", x1=along.start, x2=along.end, y1=floor, y2=floor)
        picture.write(along.start - 12, floor - 4, name, "end")
        for index, count in enumerate(row):
            if count:
                height, title = (_ROW - 8) * count / highest, f"{name}: {count} of {len(rows[name])}"
                x = along.start + index * width
                picture.add("rect", "bar", title, x=x, width=width - 1, y=floor - height, height=height)
    picture.draw_x(along, bottom)
    return picture.markup()


def _counts(times: Sequence[float], along: Scale) -> list[int]:
    """The number of times in each of the bins of the scale."""
    counts, width = [0] * _BINS, (along.high - along.low) / _BINS
    for time_s in times:
        counts[min(_BINS - 1, int((time_s - along.low) / width))] += 1
    return counts


def phases(process_phases: Phases) -> Markup:
    """The phases of a process as parts of one bar, in the order in which they happened."""
    durations = [(name.removesuffix("_s"), seconds) for name, seconds in process_phases.model_dump().items() if seconds]
    total = math.fsum(seconds for _, seconds in durations) or 1.0
    picture, x = Picture("the phases of the first run", 34), 0.0
    for number, (name, seconds) in enumerate(durations):
        width, title = seconds / total * WIDTH, f"{name}: {format_quantity(seconds, 's')}"
        picture.add("rect", f"part part-{number % 4}", title, x=x, y=2, width=max(width - 1, 0.6), height=30)
        if width > 9 * len(name):
            picture.write(x + width / 2, 21, name)
        x += width
    return picture.markup()


def training(epochs: Sequence[Epoch], figure: str) -> Markup | None:
    """`figure`, loss or accuracy, of each epoch on the training data, and on the held-out data as a second line."""
    lines = {css: [(e.index + 1, getattr(e, name)) for e in epochs] for css, name in _lines(figure)}
    curves = {css: [(x, y) for x, y in line if y is not None] for css, line in lines.items()}
    values = [y for line in curves.values() for _, y in line]
    if len(epochs) < 2 or not values:
        return None
    picture, along = Picture(f"{figure} by epoch", 180, WIDTH / 2), _of_epochs(len(epochs))
    up = scale(values, 150, 12, "1")
    picture.draw_y(up, 56, WIDTH / 2)
    for css, line in curves.items():
        points = " ".join(f"{along.place(x):.1f},{up.place(y):.1f}" for x, y in line)
        picture.add("polyline", css, points=points)
        for x, y in line:
            picture.add("circle", f"{css} dot", f"epoch {x}: {y:.4g}", cx=along.place(x), cy=up.place(y), r=3)
    picture.draw_x(along, 150)
    return picture.markup()


def _of_epochs(count: int) -> Scale:
    return replace(scale([1, count], 60, WIDTH / 2 - 12, "1"), least_step=1.0)


class Bounded(NamedTuple):
    """A named figure with its interval and the figures of its runs, for a row of a picture."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    by_run: Sequence[float] = ()


def intervals(title: str, rows: Sequence[Bounded], unit: str) -> Markup:
    """A dot for each row, with its interval as a thick line and small dots for its runs, on one axis."""
    picture = Picture(title, 40 * len(rows) + 36)
    bounds = [bound for row in rows for bound in (row.value, row.low, row.high, *row.by_run) if bound is not None]
    along = scale(bounds or [0.0, 1.0], _NAMES, WIDTH - 12, unit)
    for number, row in enumerate(rows):
        y = 40 * number + 22
        picture.write(along.start - 12, y + 4, _fitting(row.name), "end")
        if row.low is not None and row.high is not None:
            picture.add("line", "interval", y1=y, y2=y, x1=along.place(row.low), x2=along.place(row.high))
        for run, value in enumerate(row.by_run):
            title = f"run {run + 1}: {format_quantity(value, unit)}"
            picture.add("circle", "dot small", title, cx=along.place(value), cy=y + 11, r=2.5)
        if row.value is not None:
            picture.add("circle", "dot", format_quantity(row.value, unit), cx=along.place(row.value), cy=y, r=5)
    picture.draw_x(along, 40 * len(rows) + 8)
    return picture.markup()


def ratios(named_ratios: Sequence[tuple[str, Ratio]], margin: float) -> Markup | None:
    """Ratios with their intervals on one logarithmic axis; the band holds ratios that count as the same."""
    rows = [
        Bounded(name, ratio.value, ratio.low, ratio.high)
        for name, ratio in named_ratios
        if ratio.value and ratio.value > 0
    ]
    if not rows:
        return None
    bounds = [bound for row in rows for bound in (row.value, row.low, row.high) if bound is not None and bound > 0]
    along = scale([math.log(ratio) for ratio in (*bounds, 1 / (1 + margin), 1 + margin)], _NAMES, WIDTH - 12, "1")
    bottom = 32 * len(rows) + 8
    picture = Picture("the ratios with their intervals, on a logarithmic axis", bottom + 24)
    low, high = along.place(-math.log1p(margin)), along.place(math.log1p(margin))
    picture.add("rect", "band", f"within {100 * margin:g} %: the same", x=low, width=high - low, y=4, height=bottom - 4)
    for number, row in enumerate(rows):
        y = 32 * number + 22
        picture.write(along.start - 12, y + 4, _fitting(row.name), "end")
        if row.low is not None and row.high is not None and row.high > 0:
            start = along.place(math.log(row.low)) if row.low > 0 else along.start
            picture.add("line", "interval", y1=y, y2=y, x1=start, x2=along.place(math.log(row.high)))
        picture.add("circle", "dot", f"{row.value:.4g}", cx=along.place(math.log(row.value or 1.0)), cy=y, r=5)
    for x, label in _ratio_ticks(along):
        picture.add("line", "axis", x1=x, x2=x, y1=4 if label == "1" else bottom, y2=bottom + 4)
        picture.write(x, bottom + 17, label)
    picture.add("line", "axis", x1=along.start, x2=along.end, y1=bottom, y2=bottom)
    return picture.markup()


def _fitting(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _ratio_ticks(along: Scale) -> Iterator[tuple[float, str]]:
    """Coordinates and labels of 1 and of round ratios on both sides of it, on a scale of logarithms."""
    yield along.place(0.0), "1"
    for side in (1, -1):
        last = along.place(0.0)
        for step in _RATIO_STEPS:
            x = along.place(side * math.log(step))
            if along.start <= x <= along.end and abs(x - last) >= _TICK_APART:
                last = x
                yield x, f"{step**side:.3g}"


def trend(series: ResultSeries, job: str) -> Markup | None:
    """The results of a series as a line that fits into a row of a table; the dot is the result of `job`."""
    values = [point.adjusted_value or point.value for point in series.points]
    if len(values) < 2:
        return None
    lowest, highest = (format_quantity(value, series.unit) for value in (min(values), max(values)))
    picture = Picture(f"{len(values)} results, {lowest} to {highest}", 24, 96)
    along, up = Scale(0, len(values) - 1, 4, 92, "1"), scale(values, 21, 3, series.unit)
    places = {point.job: (along.place(number), up.place(values[number])) for number, point in enumerate(series.points)}
    picture.add("polyline", "line", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places.values()))
    if job in places:
        picture.add("circle", "dot", cx=places[job][0], cy=places[job][1], r=3.0)
    return picture.markup()


def history(series: ResultSeries, lines: Mapping[str, float]) -> Markup | None:
    """The points of a series over time: their verdicts as shapes, changes and new software as vertical lines.

    `lines`: values of baselines by name, drawn as horizontal lines. Each is the value of a point.
    """
    points = [(point, point.adjusted_value or point.value) for point in series.points]
    if len(points) < 2:
        return None
    picture = Picture(f"{series.metric} over time", 210)
    times = [point.time.timestamp() for point, _ in points]
    along = (
        scale(times, 80, WIDTH - 12, "1") if times[0] != times[-1] else Scale(times[0] - 1, times[0] + 1, 80, 708, "1")
    )
    up = scale([value for _, value in points], 168, 14, series.unit)
    picture.draw_y(up, 76, WIDTH)
    for name, value in lines.items():
        picture.add("line", "base", f"baseline {name}", x1=80, x2=WIDTH - 12, y1=up.place(value), y2=up.place(value))
        picture.write(WIDTH - 12, up.place(value) - 4, _fitting(name), "end")
    for context in series.contexts[1:]:
        x = along.place(context.since.timestamp())
        picture.add("line", "edge", "new software", x1=x, x2=x, y1=8, y2=170)
    for change in series.changes:
        x = along.place(change.time.timestamp())
        picture.add("line", "change", f"{change.ratio:.3g} times as good from here", x1=x, x2=x, y1=8, y2=170)
        picture.write(x, 184, f"x {change.ratio:.3g}")
    for point, value in points:
        x, y = along.place(point.time.timestamp()), up.place(value)
        title = f"{format_quantity(value, series.unit)}, {point.verdict}, {point.time:%Y-%m-%d %H:%M}"
        if point.verdict == "trusted":
            picture.add("circle", "dot", title, cx=x, cy=y, r=4)
        else:
            picture.add(
                "rect",
                "dot" if point.verdict == "indicative" else "dot faint",
                title,
                x=x - 3,
                y=y - 3,
                width=6,
                height=6,
            )
    for moment, anchor in ((series.points[0].time, "start"), (series.points[-1].time, "end")):
        picture.write(along.place(moment.timestamp()), 204, f"{moment:%Y-%m-%d %H:%M}", anchor)
    return picture.markup()


def _lines(figure: str) -> Sequence[tuple[str, str]]:
    return ("line", figure), ("line second", f"validation_{figure}")
