"""The latency of a server by the rate of its queries, with the limit and the rate that was found."""

from collections.abc import Mapping, Sequence
from typing import Any

from dyno.charts.axes import EDGE, TOP, axis_of, draw_across, draw_up, left_of, legend, line_sample
from dyno.charts.drawing import LINE_HEIGHT, Canvas, Colour, Dots, Picture, Stroke
from dyno.formatting import format_quantity
from dyno.models.result import Result

_LINES: Mapping[str, tuple[str, Colour, Sequence[float]]] = {
    "p50_s": ("p50", "blue", ()),
    "p99_s": ("p99", "orange", (6, 4)),
}


def load(result: Result) -> Picture | None:
    """The curve of the first run of a job of `inference` with the scenario `server`; None for other jobs."""
    server = result.details.get("server")
    if result.workload != "inference" or not isinstance(server, dict):
        return None
    return Picture("latency by the rate of queries", lambda canvas: _draw(canvas, server))


def _draw(canvas: Canvas, server: Mapping[str, Any]) -> None:
    points, limit_s, rate = server["curve"], server["limit_s"], server["rate_per_s"]
    samples = [line_sample(canvas, colour, dash=dash) for _, colour, dash in _LINES.values()]
    names = [name for name, _, _ in _LINES.values()]
    top = legend(canvas, 0, list(zip(samples, names, strict=True))) + TOP + LINE_HEIGHT
    bottom = top + 200
    observed = {name: server[name] for name in _LINES}
    latencies_s = [point[name] for point in points for name in _LINES]
    up = axis_of([*latencies_s, limit_s, *observed.values()], bottom, top, "latency (lower is better)", "s", log=True)
    rates = [point["rate_per_s"] for point in points]
    along = axis_of(rates, left_of(up) + 8, canvas.width - EDGE, "rate of queries", "queries/s")
    draw_up(canvas, up, canvas.width - EDGE, title_y=top - 14 - LINE_HEIGHT)
    words, ends = f"limit: {format_quantity(limit_s, 's')}", (along.place(rates[0]), along.place(rates[-1]))
    canvas.add(Stroke([[(x, up.place(limit_s)) for x in ends]], "faint", 1.5, dash=(3, 3), title=words))
    for name, (label, colour, dash) in _LINES.items():
        places = [(along.place(point["rate_per_s"]), up.place(point[name])) for point in points]
        canvas.add(Stroke([places], colour, 1.5, dash=dash))
        title = f"{label} at {format_quantity(rate, 'queries/s')}: {format_quantity(observed[name], 's')}"
        canvas.add(Dots([(along.place(rate), up.place(observed[name]))], 4, colour, title=title))
    y = draw_across(canvas, along, bottom + 6)
    grey = f"Grey: the limit, {format_quantity(limit_s, 's')}."
    canvas.height = canvas.paragraph(y, f"{grey} Lines are simulated; dots: real queries at the rate found.") + 4
