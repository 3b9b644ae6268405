"""Pictures of one result: its runs, samples, phases and training.

Functions return None if there is too little to draw. The page shows the figures of a picture as a table, too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from dyno.charts.axes import (
    ARROWS,
    EDGE,
    TOP,
    Axis,
    Sample,
    axis_of,
    both,
    draw_across,
    draw_interval,
    draw_up,
    in_words,
    left_of,
    legend,
    line_sample,
    range_in_words,
    write_in_row,
)
from dyno.charts.drawing import Area, Canvas, Colour, Dots, Picture, Stroke, box, text_width
from dyno.formatting import format_quantity
from dyno.models.result import Epoch, Metric, Phases, RunSamples, RunSummary

_BINS = 40
_MOST_DOTS = 40  # per curve
_MOST_ROWS, _ROW = 12, 44  # number of rows in a histogram, and the height of a row


def runs(metric: Metric, earlier: Sequence[float] = ()) -> Picture | None:
    """A dot for each run, the 95 % interval of the runs, and the prediction for the next result.

    `earlier`: the values of earlier results of the series.
    """
    if len(metric.by_run) < 2:
        return None
    return Picture(f"{metric.name}: each run and its intervals", lambda canvas: _draw_runs(canvas, metric, earlier))


def _draw_runs(canvas: Canvas, metric: Metric, earlier: Sequence[float]) -> None:
    interval = both(metric.low, metric.high)
    repeat = (metric.repeat.low, metric.repeat.high) if metric.repeat else None
    bounds = [*earlier, *(interval or ()), *(repeat or ())]
    left = text_width("earlier results") + 12
    along = axis_of(metric.by_run, left, canvas.width - EDGE, in_words(metric.name), metric.unit, bounds=bounds)
    y, arrows = 4.0, False
    if earlier:
        y = _row(canvas, y, "earlier results")
        _dots(canvas, along, earlier, y, 3, "faint", lambda number: "an earlier result", metric.unit)
        y += 16
    y = _row(canvas, y + 6, "runs")
    _dots(canvas, along, metric.by_run, y, 4.5, "blue", lambda number: f"run {number}", metric.unit)
    y += 22
    for name, bounded, width in (("95 % interval", interval, 6.0), ("next result", repeat, 1.5)):
        if bounded:
            y = _row(canvas, y, name)
            title = f"{name}: {range_in_words(bounded, metric.unit)}"
            colour: Colour = "blue" if width > 2 else "faint"
            arrows |= draw_interval(canvas, along, bounded, y, colour, width, title=title)
            y += 12
    beyond = any(not along.holds(value) for value in earlier)
    y = draw_across(canvas, along, y + 2)
    if arrows or beyond:
        y = canvas.paragraph(y, ARROWS if arrows else "Earlier results at the edge lie beyond the axis.")
    canvas.height = y + 4


def _row(canvas: Canvas, y: float, name: str) -> float:
    """Write the name of a row, 16 pixels high, below `y`. Returns the y of its middle."""
    canvas.write(0, y + 12, name)
    return y + 8


def _dots(
    canvas: Canvas,
    along: Axis,
    values: Sequence[float],
    y: float,
    radius: float,
    colour: Colour,
    name: Callable[[int], str],
    unit: str,
) -> None:
    """Draw a dot for each value. Dots that would overlap are spread over three lanes."""
    lanes = [-math.inf] * 3
    lane_of: dict[int, int] = {}
    for number in sorted(range(len(values)), key=lambda index: values[index]):
        x = along.place(values[number])
        free = next((lane for lane in (1, 0, 2) if x - lanes[lane] >= 2 * radius), lanes.index(min(lanes)))
        lanes[free], lane_of[number] = x, free
    for number, value in enumerate(values):
        place = y + (lane_of[number] - 1) * 1.6 * radius
        title = f"{name(number + 1)}: {format_quantity(value, unit)}"
        canvas.add(Dots([(along.place(value), place)], radius, colour, opacity=0.8, title=title))


def samples(taken: Sequence[RunSamples], runs: Sequence[RunSummary] = ()) -> Picture | None:
    """Each sample's time in the order in which it was taken, run after run; warm-up is faint.

    Below each run are its clock and temperature, if there is room for these figures of all `runs`.
    """
    if sum(len(run.warmup) + len(run.samples) for run in taken) < 2:
        return None
    return Picture("the time of each sample, run after run", lambda canvas: _draw_samples(canvas, taken, runs))


def _draw_samples(canvas: Canvas, taken: Sequence[RunSamples], runs: Sequence[RunSummary]) -> None:
    steady = [time_s for run in taken for time_s in run.samples]
    warmup = [time_s for run in taken for time_s in run.warmup]
    top, bottom = TOP, TOP + 150
    up = axis_of(steady or warmup, bottom, top, "time of a sample", "s", bounds=warmup, log=False)
    left, right = left_of(up), canvas.width - EDGE
    draw_up(canvas, up, right)
    every = [
        (run.run, kind, time_s) for run in taken for kind in ("warmup", "samples") for time_s in getattr(run, kind)
    ]
    step = math.ceil(len(every) / (1.5 * (right - left)))  # more dots can't be distinguished
    along = Axis(0, len(every), left, right, "", ())
    styles: Mapping[str, tuple[Colour, float]] = {"warmup": ("faint", 0.5), "samples": ("blue", 0.8)}
    for kind, (colour, opacity) in styles.items():
        places = [
            (along.place(index + 0.5), up.place(time_s))
            for index, (_, of_kind, time_s) in enumerate(every)
            if of_kind == kind and index % step == 0
        ]
        canvas.add(Dots(places, 2, colour, opacity=opacity))
    y = _draw_sections(canvas, along, [run for run, *_ in every], bottom, runs)
    entries: list[tuple[Sample, str]] = [(lambda x, y: canvas.add(Dots([(x, y)], 3, "blue")), "sample")]
    if warmup:
        entries.append((lambda x, y: canvas.add(Dots([(x, y)], 3, "faint", 0.5)), "warm-up, which no figure uses"))
    y = legend(canvas, y, entries)
    if any(not up.holds(time_s) for time_s in warmup):
        y = canvas.paragraph(y, "Warm-up at the edge took longer than the axis shows.")
    canvas.height = y + 4


def _draw_sections(
    canvas: Canvas, along: Axis, run_of: Sequence[int], bottom: float, runs: Sequence[RunSummary]
) -> float:
    """Separate and name the runs. Write all runs' conditions if they fit. Returns the y of the texts' lower end."""
    starts = [index for index, run in enumerate(run_of) if index == 0 or run != run_of[index - 1]]
    places = [along.place(index) for index in (*starts, len(run_of))]
    canvas.add(Stroke([[(x, TOP - 6), (x, bottom + 4)] for x in places], "line"))
    middles, numbers = [(start + end) / 2 for start, end in pairwise(places)], [run_of[index] for index in starts]
    names = [f"run {number + 1}" for number in numbers]
    write_in_row(canvas, bottom + 16, [(x, name, "faint") for x, name in zip(middles, names, strict=True)])
    conditions = [_conditions(runs[number]) if number < len(runs) else "" for number in numbers]
    widths = [end - start - 8 for start, end in pairwise(places)]
    if not any(conditions) or any(text_width(c) > width for c, width in zip(conditions, widths, strict=True)):
        return bottom + 20
    write_in_row(canvas, bottom + 32, [(x, text, "faint") for x, text in zip(middles, conditions, strict=True)])
    return bottom + 36


def _conditions(run: RunSummary) -> str:
    """A text such as `3.55 GHz, 61 °C`; empty if neither figure is known."""
    clock = f"{run.clock_hz / 1e9:.2f} GHz" if run.clock_hz else ""
    known = run.sensors is not None and run.sensors.temperature_c is not None
    temperature = f"{run.sensors.temperature_c:.0f} °C" if known and run.sensors else ""
    return ", ".join(filter(None, (clock, temperature)))


def histogram(taken: Sequence[RunSamples]) -> Picture | None:
    """A histogram of the times of each run, without warm-up. Many runs share one row."""
    rows = {f"run {run.run + 1}": run.samples for run in taken if run.samples}
    times = [time_s for row in rows.values() for time_s in row]
    if len(rows) > _MOST_ROWS:
        rows = {f"{len(rows)} runs": times}
    if len(times) < 10 or min(times) == max(times):
        return None
    return Picture("histogram of the samples, a row for each run", lambda canvas: _draw_histogram(canvas, rows))


def _draw_histogram(canvas: Canvas, rows: Mapping[str, Sequence[float]]) -> None:
    times = [time_s for row in rows.values() for time_s in row]
    low, width_s = min(times), (max(times) - min(times)) / _BINS
    left = text_width(max(rows, key=text_width)) + 12
    counts = {name: _counts(row, low, width_s) for name, row in rows.items()}
    highest = max(max(row) for row in counts.values())
    name = f"time of a sample (highest bar: {highest} samples)"
    along = axis_of(times, left, canvas.width - EDGE, name, "s", log=False)
    for number, (name, row) in enumerate(counts.items()):
        floor = _ROW * (number + 1.0)
        canvas.add(Stroke([[(along.start, floor), (along.end, floor)]], "line"))
        canvas.write(0, floor - 4, name)
        for index, count in enumerate(row):
            if count:
                x, end = (along.place(low + place * width_s) for place in (index, index + 1))
                height, title = (_ROW - 8) * count / highest, f"{name}: {count} of {len(rows[name])}"
                canvas.add(Area(box(x, floor - height, max(1.0, end - x - 1), height), "blue", title=title))
    canvas.height = draw_across(canvas, along, _ROW * len(counts) + 2.0) + 4


def _counts(times: Sequence[float], low: float, width_s: float) -> list[int]:
    counts = [0] * _BINS
    for time_s in times:
        counts[min(_BINS - 1, int((time_s - low) / width_s))] += 1
    return counts


def phases(process_phases: Phases) -> Picture:
    """A row for each phase of a process with its duration, in the order of the phases."""
    durations = [(name.removesuffix("_s"), seconds) for name, seconds in process_phases.model_dump().items() if seconds]
    return Picture("the phases of the first run", lambda canvas: _draw_phases(canvas, durations))


def _draw_phases(canvas: Canvas, durations: Sequence[tuple[str, float]]) -> None:
    total = math.fsum(seconds for _, seconds in durations) or 1.0
    left = max((text_width(in_words(name)) for name, _ in durations), default=0.0) + 12
    along = axis_of([0.0, total], left, canvas.width - EDGE, "time since the process was requested", "s", log=False)
    along = Axis(0.0, along.high, along.start, along.end, along.title, [t for t in along.ticks if t.value >= 0])
    y, begun = 0.0, 0.0
    for name, seconds in durations:
        start, end = along.place(begun), along.place(begun + seconds)
        text = format_quantity(seconds, "s")
        canvas.write(0, y + 14, in_words(name))
        canvas.add(Area(box(start, y + 3, max(end - start, 2.0), 14), "blue", title=f"{name}: {text}"))
        if max(end, start + 2) + 6 + text_width(text) <= canvas.width:
            canvas.write(max(end, start + 2) + 6, y + 14, text)
        elif start - 6 - text_width(text) >= left:
            canvas.write(start - 6, y + 14, text, "end")
        else:
            canvas.write(end - 6, y + 14, text, "end", colour="paper")
        begun, y = begun + seconds, y + 22
    canvas.height = draw_across(canvas, along, y + 2) + 4


def training(epochs: Sequence[Epoch]) -> Picture | None:
    """Loss and accuracy of each epoch: on the training data as solid lines, on the held-out data as dashed lines."""
    panels = {name: _curves(epochs, name) for name in ("loss", "accuracy")}
    panels = {name: curves for name, curves in panels.items() if curves}
    if not panels:
        return None
    return Picture(f"{' and '.join(panels)} by epoch", lambda canvas: _draw_panels(canvas, panels, "epoch", _LINES))


_Curve = Sequence[tuple[float, float]]
Style = tuple[Colour, Sequence[float]]  # the colour and the dashes of a line
_LINES: Mapping[str, Style] = {
    "training data": ("blue", ()),
    "held-out data": ("orange", (6, 4)),
}


def _curves(epochs: Sequence[Epoch], figure: str) -> Mapping[str, _Curve]:
    """A curve for each kind of data for which the epochs have this figure."""
    names = {"training data": figure, "held-out data": f"validation_{figure}"}
    known = {
        kind: [(e.index + 1.0, value) for e in epochs if (value := getattr(e, name)) is not None]
        for kind, name in names.items()
    }
    return {kind: line for kind, line in known.items() if line}


def forecast(title: str, predicted: Sequence[float], true: Sequence[float], unit: str) -> Picture:
    """The true values of a signal as a solid line, and the predicted values as a dashed line."""
    curves = {"true": list(enumerate(true)), "predicted": list(enumerate(predicted))}
    styles: Mapping[str, Style] = {"true": ("faint", ()), "predicted": ("orange", (6, 4))}
    return Picture(title, lambda canvas: _draw_panels(canvas, {unit: curves}, "step", styles))


def _draw_panels(
    canvas: Canvas, panels: Mapping[str, Mapping[str, _Curve]], over: str, styles: Mapping[str, Style]
) -> None:
    """Draw the panels side by side if they fit, one below the other on a narrow canvas."""
    kinds = [kind for kind in styles if any(kind in curves for curves in panels.values())]
    samples = [line_sample(canvas, colour, dash=dash) for colour, dash in map(styles.__getitem__, kinds)]
    top = bottom = legend(canvas, 0, list(zip(samples, kinds, strict=True)))
    columns = 1 if canvas.is_narrow else len(panels)
    width = (canvas.width - 32 * (columns - 1)) / columns
    for number, (name, curves) in enumerate(panels.items()):
        panel = Canvas(width)
        _draw_curves(panel, curves, name, over, styles)
        y = bottom if columns == 1 else top
        canvas.place(panel, (width + 32) * (number % columns), y)
        bottom = y + panel.height
    canvas.height = bottom


def _draw_curves(
    canvas: Canvas, curves: Mapping[str, _Curve], name: str, over: str, styles: Mapping[str, Style]
) -> None:
    """Draw curves on one pair of axes; the horizontal axis has whole numbers."""
    values = [y for line in curves.values() for _, y in line]
    places = [x for line in curves.values() for x, _ in line]
    bottom = TOP + 150
    up = axis_of(values, bottom, TOP, name)
    along = axis_of(places, left_of(up) + 6, canvas.width - EDGE, over, log=False, whole=True)
    draw_up(canvas, up, canvas.width - EDGE)
    for kind, line in curves.items():
        colour, dash = styles[kind]
        drawn = [(along.place(x), up.place(y)) for x, y in line]
        canvas.add(Stroke([drawn], colour, 2, dash=dash))
        if len(line) <= _MOST_DOTS:
            for (x, y), (number, value) in zip(drawn, line, strict=True):
                canvas.add(Dots([(x, y)], 3, colour, title=f"{over} {number:g}, {kind}: {value:.4g}"))
    canvas.height = draw_across(canvas, along, bottom + 4) + 4
