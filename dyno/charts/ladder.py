"""The bandwidth of a memory by the size of the data, with the sizes of the caches: each cache is a step of a ladder."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dyno.charts.axes import (
    EDGE,
    TOP,
    axis_of,
    draw_across,
    draw_interval,
    draw_up,
    left_of,
    legend,
    line_sample,
    write_in_row,
)
from dyno.charts.drawing import LINE_HEIGHT, Canvas, Colour, Dots, Picture, Stroke
from dyno.formatting import format_quantity
from dyno.models.result import Metric, Result

_ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3}  # that a kernel reads or writes
_STYLES: Mapping[str, tuple[Colour, Sequence[float]]] = {
    "copy": ("blue", ()),
    "scale": ("orange", (6, 4)),
    "add": ("green", (2, 3)),
    "triad": ("purple", (9, 3, 2, 3)),
}


class _Rung(NamedTuple):
    size_bytes: int  # of all arrays
    metric: Metric


def ladder(result: Result) -> Picture | None:
    """The figures of a job of `memory_bandwidth` with several sizes of arrays; None for other jobs."""
    kernels = result.details.get("kernels")
    if result.workload != "memory_bandwidth" or not isinstance(kernels, dict):
        return None
    by_kernel = _rungs(result.metrics, kernels)
    if max((len(rungs) for rungs in by_kernel.values()), default=0) < 2:
        return None
    caches: Any = result.details.get("caches") or {}
    return Picture("bandwidth by the size of the data", lambda canvas: _draw(canvas, by_kernel, caches))


def _rungs(metrics: Sequence[Metric], kernels: Mapping[str, Any]) -> dict[str, list[_Rung]]:
    """The rungs of each kernel from the smallest size on. `kernels`: the facts of each case by its name."""
    figures = {metric.name.removeprefix("bandwidth_"): metric for metric in metrics if metric.value is not None}
    by_kernel: dict[str, list[_Rung]] = {}
    for case, facts in kernels.items():
        kernel = case.partition("_")[0]
        if case in figures:
            rung = _Rung(_ARRAYS[kernel] * facts["array_bytes"], figures[case])
            by_kernel.setdefault(kernel, []).append(rung)
    return {kernel: sorted(rungs, key=lambda rung: rung.size_bytes) for kernel, rungs in by_kernel.items()}


def _draw(canvas: Canvas, by_kernel: Mapping[str, Sequence[_Rung]], caches: Mapping[str, int]) -> None:
    rungs = [rung for of_kernel in by_kernel.values() for rung in of_kernel]
    samples = [line_sample(canvas, colour, dash=dash) for colour, dash in map(_STYLES.__getitem__, by_kernel)]
    top = legend(canvas, 0, list(zip(samples, by_kernel, strict=True))) + TOP + LINE_HEIGHT
    bottom = top + 200
    values = [rung.metric.value or 0.0 for rung in rungs]
    up = axis_of(values, bottom, top, "bandwidth (higher is better)", "bytes/s")
    sizes = [float(rung.size_bytes) for rung in rungs]
    along = axis_of(sizes, left_of(up) + 8, canvas.width - EDGE, "size of all arrays", "B", log=True)
    draw_up(canvas, up, canvas.width - EDGE, title_y=top - 14 - LINE_HEIGHT)
    marked = {name: size for name, size in caches.items() if along.holds(size)}
    for name, size in marked.items():
        x = along.place(size)
        title = f"{name}: {format_quantity(size, 'B')}"
        canvas.add(Stroke([[(x, top - 6), (x, bottom)]], "faint", 1.5, dash=(3, 3), title=title))
    write_in_row(canvas, top - 10, [(along.place(size), name, "faint") for name, size in marked.items()])
    for kernel, of_kernel in by_kernel.items():
        colour, dash = _STYLES[kernel]
        places = [(along.place(rung.size_bytes), up.place(rung.metric.value or 0.0)) for rung in of_kernel]
        canvas.add(Stroke([places], colour, 1.5, dash=dash))
        for (x, y), rung in zip(places, of_kernel, strict=True):
            metric = rung.metric
            if metric.low is not None and metric.high is not None:
                draw_interval(canvas, up, (metric.low, metric.high), x, colour, 4, opacity=0.5)
            words = f"{format_quantity(rung.size_bytes, 'B')}: {format_quantity(metric.value, 'bytes/s')}"
            canvas.add(Dots([(x, y)], 3, colour, title=f"{kernel}, {words}"))
    y = draw_across(canvas, along, bottom + 6)
    if marked:
        y = canvas.paragraph(y, "Dashed: the size of all caches of a level that the device's cores have.")
    canvas.height = y + 4
