"""Axes with their ticks, intervals, marks of verdicts, and legends.

A prediction may be much wider than the measured figures, so the measured figures determine the range of the axis. The
bounds of intervals extend the range only if they are near. `draw_interval` ends other intervals at the edge, with an
arrow.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from dyno.charts.drawing import LINE_HEIGHT, Area, Canvas, Colour, Dots, Point, Stroke, box, fitting, text_width
from dyno.formatting import format_quantity, scaled_unit
from dyno.models.result import Verdict

EDGE = 12.0  # room right of a plot, for labels that reach beyond its axis
TOP = 34.0  # room above a plot, for the title of its vertical axis
LOG_FROM = 20.0  # use a logarithmic axis from this ratio of largest to smallest value
ARROWS = "Arrow: the interval goes on beyond the axis."
_NEAR = 0.25  # share of the largest value: a bound extends the axis if it is at most this far beyond the values
_NEAR_FACTOR = 2.0  # the same limit on a logarithmic axis, as a factor
_BEYOND = 0.15  # share of the axis: room for the part of an interval that is drawn beyond the values
_MARGIN = 0.05
_GAP = 10.0  # least gap between two labels
_RATIOS_ABOVE = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0, 10_000.0)
_RATIOS_BELOW = (0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001, 0.0001)
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_TIME_STEPS = (
    *(1, 2, 5, 10, 15, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY),
    *(91 * _DAY, 182 * _DAY, 365 * _DAY, 730 * _DAY, 1825 * _DAY, 3650 * _DAY),
)


class Tick(NamedTuple):
    value: float
    label: str


# A function of the lowest and the highest value, the maximum number of ticks, the divisor of the labels, the unit, and
# whether ticks must be whole numbers.
_Ticks = Callable[[float, float, int, float, str, bool], Sequence[Tick]]


@dataclass(frozen=True)
class Axis:
    """Places values from `low` to `high` between coordinates `start` and `end`; other values go to the nearer end."""

    low: float
    high: float
    start: float
    end: float
    title: str
    ticks: Sequence[Tick]
    log: bool = False

    def place(self, value: float) -> float:
        held = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(held / self.low) / math.log(self.high / self.low)
        else:
            share = (held - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def axis_of(
    values: Sequence[float],
    start: float,
    end: float,
    name: str,
    unit: str = "1",
    *,
    bounds: Sequence[float] = (),
    from_zero: bool = False,
    log: bool | None = None,
    whole: bool = False,
) -> Axis:
    """An axis that contains all `values`, and those `bounds` that are near the values.

    `from_zero`: start at zero, and end at a round value; for bars. `log`: None means logarithmic if the values are
    positive and far apart. `whole`: ticks at whole numbers only. For a vertical axis, `start` is the bottom.
    """
    if log is None:
        log = min(values) > 0 and max(values) / min(values) >= LOG_FROM
    low, high = _range(values, bounds, log=log)
    if from_zero:
        low, high = _round_range(low, high, log=log)
    elif log:
        margin = (high / low) ** _MARGIN if high > low else 1.1
        low, high = low / margin, high * margin
    else:
        margin = _MARGIN * (high - low) or _MARGIN * abs(high) or 1.0
        low, high = low - margin, high + margin
    ticks = _log_ticks if log else _linear_ticks
    return _labelled(Axis(low, high, start, end, "", (), log), name, unit, ticks, whole=whole)


def _range(values: Sequence[float], bounds: Sequence[float], *, log: bool) -> tuple[float, float]:
    """The lowest and the highest value that the axis shows."""
    if not log:
        return _reached(values, bounds, near=_NEAR * max(map(abs, values)))
    positive = [bound for bound in bounds if bound > 0]
    low, high = _reached([*map(math.log, values)], [*map(math.log, positive)], near=math.log(_NEAR_FACTOR))
    return math.exp(low), math.exp(high)


def _reached(values: Sequence[float], bounds: Sequence[float], *, near: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    reach = max(high - low, near)
    held = [*values, *(bound for bound in bounds if low - reach <= bound <= high + reach)]
    lowest, highest = min(held), max(held)
    room = _BEYOND * (highest - lowest) or near / 2
    if any(bound < low - reach for bound in bounds):
        lowest -= room
    if any(bound > high + reach for bound in bounds):
        highest += room
    return lowest, highest


def _round_range(low: float, high: float, *, log: bool) -> tuple[float, float]:
    """The range for bars, which begin at zero, or at a power of ten on a logarithmic axis."""
    if log:
        return 10.0 ** math.floor(math.log10(low) + 1e-9), 10.0 ** math.ceil(math.log10(high) - 1e-9)
    low, high = min(low, 0.0), max(high, 0.0)
    step = _round_step((high - low) / 5 or 0.2)
    return math.floor(low / step) * step, (math.ceil(high / step - 1e-9) or 1) * step


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least * (1 - 1e-9))


def _labelled(axis: Axis, name: str, unit: str, ticks: _Ticks, *, whole: bool = False) -> Axis:
    """The axis with as many ticks as fit, and with a title that includes the unit if the labels don't."""
    factor, shown = scaled_unit(max(abs(axis.low), abs(axis.high)), unit)
    if axis.log and shown != unit:
        factor, shown = 1.0, ""  # labels of different decades differ in their prefixes, so each has the unit
    chosen: Sequence[Tick] = ()
    for most in (10, 8, 7, 6, 5, 4, 3, 2, 1):
        chosen = ticks(axis.low, axis.high, most, factor, unit, whole)
        if _fit(axis, chosen):
            break
    title = f"{name}, {shown}" if shown and shown != "1" else name
    return replace(axis, title=title, ticks=chosen)


def _fit(axis: Axis, ticks: Sequence[Tick]) -> bool:
    if axis.end < axis.start:  # vertical
        places = [axis.place(tick.value) for tick in ticks]
        return all(abs(a - b) >= 2 * LINE_HEIGHT for a, b in pairwise(places))
    boxes = [_box(axis, tick) for tick in ticks]
    return all(left - right >= _GAP for (_, right), (left, _) in pairwise(boxes))


def _box(axis: Axis, tick: Tick) -> tuple[float, float]:
    """The left and the right end of a label, which may reach beyond the axis by 12 pixels."""
    width = text_width(tick.label)
    left = max(0.0, min(axis.place(tick.value) - width / 2, axis.end + EDGE - width))
    return left, left + width


def _linear_ticks(low: float, high: float, most: int, factor: float, _: str, whole: bool) -> Sequence[Tick]:
    step = max(1.0 if whole else 0.0, _round_step((high - low) / factor / most))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / factor / step - 1e-9), math.floor(high / factor / step + 1e-9)
    return [Tick(n * step * factor, f"{n * step:,.{decimals}f}") for n in range(first, last + 1)]


def _log_ticks(low: float, high: float, most: int, _: float, unit: str, whole: bool) -> Sequence[Tick]:
    """Ticks at powers of ten; if there is room, also at 2 and 5 times each power, or at 3 times each power."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        values = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
        held = [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        if len(held) <= most:
            break
    return [Tick(value, _label(value, unit)) for value in _thinned(held, most)]


def _label(value: float, unit: str) -> str:
    """The label of a tick on a logarithmic axis. A unit without prefixes is in the axis title instead."""
    if scaled_unit(1e6, unit)[1] == unit:
        return f"{value:,.6g}"
    return format_quantity(value, unit)


def _thinned(values: Sequence[float], most: int) -> Sequence[float]:
    return values[:: max(1, math.ceil(len(values) / most))]


def axis_of_numbers(values: Sequence[float], start: float, end: float, name: str) -> Axis:
    """The axis of a varying param: logarithmic for values far apart, and for powers of two, which become the ticks."""
    distinct = sorted(set(values))
    if distinct[0] > 0 and len(distinct) > 1 and all(math.log2(value).is_integer() for value in distinct):
        margin = (distinct[-1] / distinct[0]) ** _MARGIN
        axis = Axis(distinct[0] / margin, distinct[-1] * margin, start, end, "", (), log=True)
        return _labelled(axis, name, "1", lambda _, __, most, *___: _powers(distinct, most))
    return axis_of(values, start, end, name, whole=all(value.is_integer() for value in distinct))


def _powers(values: Sequence[float], most: int) -> Sequence[Tick]:
    return [Tick(value, f"{value:,.10g}") for value in _thinned(values, most)]


def axis_of_ratios(ratios: Sequence[float], start: float, end: float, name: str, bounds: Sequence[float] = ()) -> Axis:
    """A logarithmic axis with ticks at 1 and at round ratios below and above 1."""
    axis = axis_of([1.0, *ratios], start, end, name, bounds=bounds, log=True)
    ticks = [Tick(1.0, "1")]
    for ratio in (*_RATIOS_ABOVE, *_RATIOS_BELOW):
        more = sorted([*ticks, Tick(ratio, f"{ratio:g}")])
        if axis.holds(ratio) and _fit(axis, more):
            ticks = more
    return replace(axis, title=name, ticks=ticks)


def axis_of_times(times: Sequence[datetime], start: float, end: float) -> Axis:
    """An axis of moments, as seconds since 1970. The title includes the date if the labels don't."""
    seconds = [moment.timestamp() for moment in times]
    margin = max(_MARGIN * (max(seconds) - min(seconds)), 1.0)
    axis = Axis(min(seconds) - margin, max(seconds) + margin, start, end, "", ())
    first, last = (f"{_utc(moment):%Y-%m-%d}" for moment in (min(seconds), max(seconds)))
    for step in _TIME_STEPS:
        count = (axis.high - axis.low) / step
        ticks = list(_times(axis, step)) if count <= 20 else []
        if ticks and _fit(axis, ticks):
            break
    days = first if first == last else f"{first} to {last}"
    title = "finished at (UTC)" if step >= _DAY else f"finished at (UTC), {days}"
    return replace(axis, title=title, ticks=ticks)


def _times(axis: Axis, step: int) -> Iterator[Tick]:
    """Ticks at round moments. If the labels are times of day, midnight has its date as the label."""
    form = "%H:%M:%S" if step < _MINUTE else "%H:%M" if step < _DAY else "%Y-%m-%d"
    for number in range(math.ceil(axis.low / step), math.floor(axis.high / step) + 1):
        moment = number * step
        yield Tick(moment, f"{_utc(moment):{form if moment % _DAY or step >= _DAY else '%m-%d'}}")


def _utc(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def draw_across(canvas: Canvas, axis: Axis, y: float) -> float:
    """Draw a horizontal axis, with its title, below `y`. Returns the y of the title's lower end."""
    canvas.add(Stroke([[(axis.start, y), (axis.end, y)]], "faint"))
    for tick in axis.ticks:
        x = axis.place(tick.value)
        canvas.add(Stroke([[(x, y), (x, y + 4)]], "faint"))
        left, right = _box(axis, tick)
        canvas.write((left + right) / 2, y + 17, tick.label, "middle")
    title = fitting(axis.title, canvas.width)
    start = max(0.0, min(axis.start, canvas.width - text_width(title)))
    canvas.write(start, y + 35, title)
    return y + 40


def draw_up(canvas: Canvas, axis: Axis, right: float, *, title_y: float | None = None) -> None:
    """Draw the labels of a vertical axis, its lines from `left_of(axis)` to `right`, and its title above it."""
    left = left_of(axis)
    for tick in axis.ticks:
        y = axis.place(tick.value)
        canvas.add(Stroke([[(left, y), (right, y)]], "line"))
        canvas.write(left - 6, y + 4, tick.label, "end")
    canvas.write(0, axis.end - 14 if title_y is None else title_y, fitting(axis.title, canvas.width))


def write_in_row(canvas: Canvas, y: float, texts: Iterable[tuple[float, str, Colour]]) -> None:
    """Write each text around its x, from left to right. Leaves out texts without room."""
    last = -math.inf
    for x, text, colour in texts:
        width = text_width(text)
        left = min(max(x - width / 2, 0.0), canvas.width - width)
        if left >= last + 8:
            canvas.write(left + width / 2, y, text, "middle", colour=colour)
            last = left + width


def left_of(axis: Axis) -> float:
    """The left end of the plot, to the right of the labels."""
    return 8 + max((text_width(tick.label) for tick in axis.ticks), default=0.0)


def draw_interval(
    canvas: Canvas,
    axis: Axis,
    bounds: tuple[float, float],
    across: float,
    colour: Colour,
    width: float,
    *,
    opacity: float = 1.0,
    title: str = "",
) -> bool:
    """Draw the interval along the axis, at `across`. Draws an arrow, and returns True, if it ends beyond the axis."""
    upright = axis.end < axis.start

    def point(along: float, beside: float = 0.0) -> Point:
        return (across + beside, along) if upright else (along, across + beside)

    low, high = (axis.place(bound) for bound in bounds)
    tiny = max(0.0, 1 - abs(high - low) / 2)  # so that an interval of length 0 is visible
    ends = [point(min(low, high) - tiny), point(max(low, high) + tiny)]
    canvas.add(Stroke([ends], colour, width, opacity=opacity, title=title))
    beyond = [(low, -1), (high, 1)]
    beyond = [(end, side) for (end, side), bound in zip(beyond, bounds, strict=True) if not axis.holds(bound)]
    for end, side in beyond:
        outwards = side * (-1 if upright else 1)
        back = end - 7 * outwards
        canvas.add(Area([point(back, -4), point(end), point(back, 4)], colour, title=title))
    return bool(beyond)


def in_words(name: str) -> str:
    return name.replace("_", " ")


def both(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def range_in_words(bounds: tuple[float, float], unit: str) -> str:
    return " to ".join(format_quantity(bound, unit) for bound in bounds)


def mark(canvas: Canvas, x: float, y: float, verdict: str | None, colour: Colour, title: str = "") -> None:
    """Draw a disc for a trusted figure, a square for an indicative figure, a cross for an untrusted figure."""
    if verdict == Verdict.TRUSTED:
        canvas.add(Dots([(x, y)], 4.5, colour, title=title))
    elif verdict == Verdict.UNTRUSTED:
        corners = [[(x - 4, y - 4), (x + 4, y + 4)], [(x - 4, y + 4), (x + 4, y - 4)]]
        canvas.add(Stroke(corners, colour, 2, title=title))
    else:
        canvas.add(Area(box(x - 4, y - 4, 8, 8), colour, title=title))


Sample = Callable[[float, float], None]  # draws the sample of a legend, centred


def line_sample(canvas: Canvas, colour: Colour, width: float = 2.0, dash: Sequence[float] = ()) -> Sample:
    return lambda x, y: canvas.add(Stroke([[(x - 12, y), (x + 12, y)]], colour, width, dash))


def legend(canvas: Canvas, y: float, entries: Sequence[tuple[Sample, str]]) -> float:
    """Draw samples with texts, in lines below `y`. Returns the y of their lower end."""
    x, y = 0.0, y + LINE_HEIGHT
    for draw, text in entries:
        shown = fitting(text, canvas.width - 30)
        width = 30 + text_width(shown)
        if x and x + width > canvas.width:
            x, y = 0.0, y + LINE_HEIGHT
        draw(x + 12, y - 8)
        canvas.write(x + 28, y - 4, shown)
        x += width + 16
    return y


def legend_of_verdicts(canvas: Canvas, y: float, verdicts: Sequence[str | None]) -> float:
    """Draw a legend with the marks of the verdicts that occur."""

    def sample(verdict: Verdict) -> Sample:
        return lambda x, y: mark(canvas, x, y, verdict, "faint")

    shown = [verdict for verdict in reversed(Verdict) if verdict in verdicts]
    return legend(canvas, y, [(sample(verdict), str(verdict)) for verdict in shown]) if shown else y
