"""The roofline of a device (Williams, Waterman & Patterson 2009): what limits each piece of work, and how near it came.

The horizontal axis is the intensity, FLOP per byte of compulsory memory traffic. The roof rises with the memory's
bandwidth up to the ridge, and is flat from there, at the peak of computing. Left of the ridge, memory is the limit.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dyno.charts.axes import (
    EDGE,
    TOP,
    Axis,
    Sample,
    axis_of,
    draw_across,
    draw_up,
    left_of,
    legend,
    legend_of_verdicts,
    mark,
)
from dyno.charts.drawing import TEXT, Canvas, Colour, Picture, Point, Stroke, text_width
from dyno.formatting import format_quantity, percent
from dyno.models.result import Result, Roof

_SAME = 0.9  # limits whose ratio is above this are one line: two measurements of one limit differ
_COLOURS: dict[str | None, Colour] = {"memory": "orange", "compute": "blue"}


class RooflineWork(NamedTuple):
    """A job, or a case of a job, under its roof. `verdict`: of its result."""

    name: str
    roof: Roof
    verdict: str | None = None

    @property
    def is_drawn(self) -> bool:
        """Whether the work does FLOP, and both limits of the device are known."""
        roof = self.roof
        counts = not (roof.dtype or "").startswith("int")
        return bool(counts and roof.intensity and roof.ridge and roof.fraction and roof.value)

    @property
    def limits(self) -> tuple[float, float]:
        """(bytes per second, FLOP per second)"""
        value, ridge = self.roof.value or 0.0, self.roof.ridge or 1.0
        return (value, value * ridge) if self.roof.binds == "memory" else (value / ridge, value)

    @property
    def point(self) -> Point:
        """(FLOP per byte, FLOP per second)"""
        intensity, limit = self.roof.intensity or 0.0, (self.roof.fraction or 0.0) * (self.roof.value or 0.0)
        return intensity, limit * intensity if self.roof.binds == "memory" else limit

    @property
    def in_words(self) -> str:
        """A text such as `attention: memory, 43 %`."""
        if self.roof.binds is None or self.roof.fraction is None:
            return f"{self.name}: {self.roof.reason or 'not known'}"
        return f"{self.name}: {self.roof.binds}, {percent(self.roof.fraction)}"

    @property
    def roof_in_words(self) -> str:
        memory, peak = self.limits
        limit = format_quantity(peak, "FLOP/s") + (f" in {self.roof.dtype}" if self.roof.dtype else "")
        return f"{format_quantity(memory, 'bytes/s')} and {limit}"


def works_of(result: Result, name: str | None = None) -> list[RooflineWork]:
    """The cases of a result, or its whole job, which is called `name`; by default, the name of the workload."""
    job = name or result.workload
    return [RooflineWork(f"{job} {roof.case or ''}".rstrip(), roof, result.verdict) for roof in result.roofs]


def roofline(title: str, works: Sequence[RooflineWork]) -> Picture | None:
    """Each work as a numbered mark under the roof. None if no work can be drawn."""
    drawn = [work for work in works if work.is_drawn]
    if not drawn:
        return None
    others = [work for work in works if not work.is_drawn]
    description = "Limit and fraction of it. " + "; ".join(work.in_words for work in works)
    return Picture(title, lambda canvas: _draw(canvas, drawn, others), description)


def _draw(canvas: Canvas, drawn: Sequence[RooflineWork], others: Sequence[RooflineWork]) -> None:
    roofs = _distinct_roofs(drawn)
    bottom, points = TOP + 240, [work.point for work in drawn]
    peaks = [work.limits[1] for work in roofs]
    up = axis_of([*(rate for _, rate in points), *peaks], bottom, TOP, "speed", "FLOP/s", log=True)
    intensities = [*(intensity for intensity, _ in points), *(work.roof.ridge or 1.0 for work in roofs)]
    along = axis_of(intensities, left_of(up) + 8, canvas.width - EDGE, "FLOP per byte of memory traffic", log=True)
    draw_up(canvas, up, canvas.width - EDGE)
    for work in roofs:
        _draw_roof(canvas, along, up, work)
    marks = [(along.place(intensity), up.place(rate)) for intensity, rate in points]
    for work, (x, y) in zip(drawn, marks, strict=True):
        mark(canvas, x, y, work.verdict, _COLOURS[work.roof.binds], work.in_words)
    _write_numbers(canvas, marks)
    y = draw_across(canvas, along, bottom + 6)
    y = legend(canvas, y, [(_sample(canvas, work), f"{n} {work.in_words}") for n, work in enumerate(drawn, 1)])
    y = legend_of_verdicts(canvas, y, [work.verdict for work in drawn])
    y = canvas.paragraph(y, f"Roof: {'; '.join(work.roof_in_words for work in roofs)}.")
    if any(work.roof.binds == "memory" and (work.roof.fraction or 0.0) > 1 for work in drawn):
        y = canvas.paragraph(y, "Marks above the roof: caches held the data.")
    if others:
        y = canvas.paragraph(y, f"Not drawn: {'; '.join(work.in_words for work in others)}.")
    canvas.height = y + 4


def _distinct_roofs(works: Sequence[RooflineWork]) -> list[RooflineWork]:
    """A work for each different roof, from the highest peak on."""
    kept: list[RooflineWork] = []
    for work in sorted(works, key=lambda work: work.limits[::-1], reverse=True):
        if not any(_about_as_high(work, other) for other in kept):
            kept.append(work)
    return kept


def _about_as_high(work: RooflineWork, other: RooflineWork) -> bool:
    ratios = [min(a, b) / max(a, b) for a, b in zip(work.limits, other.limits, strict=True)]
    return work.roof.dtype == other.roof.dtype and min(ratios) > _SAME


def _draw_roof(canvas: Canvas, along: Axis, up: Axis, work: RooflineWork) -> None:
    """The line of min(peak, intensity x memory). Its lower end is where it meets the left or the lower axis."""
    memory, peak = work.limits
    start = max(along.low, up.low / memory)
    corners = [(start, start * memory), (peak / memory, peak), (along.high, peak)]
    line: list[Point] = [(along.place(intensity), up.place(rate)) for intensity, rate in corners]
    canvas.add(Stroke([line], "ink", 2, title=work.roof_in_words))


def _write_numbers(canvas: Canvas, marks: Sequence[Point]) -> None:
    """Write each mark's number beside it, where it covers no other number. Leave it out if there is no room."""
    taken: list[tuple[float, float, float]] = []  # left, right, y
    for number, (x, y) in enumerate(marks, 1):
        width = text_width(str(number))
        for left, down in ((x + 8, 4.0), (x - 8 - width, 4.0), (x - width / 2, -8.0)):
            covers = (
                left < end + 2 and start < left + width + 2 and abs(y + down - at) < TEXT for start, end, at in taken
            )
            if left + width <= canvas.width and not any(covers):
                canvas.write(left, y + down, str(number), colour="ink")
                taken.append((left, left + width, y + down))
                break


def _sample(canvas: Canvas, work: RooflineWork) -> Sample:
    return lambda x, y: mark(canvas, x, y, work.verdict, _COLOURS[work.roof.binds])
