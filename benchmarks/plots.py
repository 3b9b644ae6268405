"""Plots of the pages in docs/results/."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import RESULTS

Points = tuple[Sequence[float | str], Sequence[float]]  # x and y


class Panel(NamedTuple):
    """`log`: the axes with a logarithmic scale, "", "x", "y" or "xy". `line`: a height to compare with."""

    xlabel: str
    ylabel: str
    series: Mapping[str, Points]
    log: str = ""
    line: float | None = None


def plot(name: str, panels: Sequence[Panel], folder: Path = RESULTS) -> list[str]:
    """Write <name>.svg with the panels side by side. Returns the page's lines that show the picture."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):  # the same file for the same figures
        figure = Figure(figsize=(5.5 * len(panels), 4), layout="constrained")
        for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
            for label, (places, heights) in panel.series.items():
                axis.plot(places, heights, label=label, marker="o", markersize=4, linewidth=1)
            for each in panel.log:
                axis.set(**{f"{each}scale": "log"})
            if panel.line is not None:
                axis.axhline(panel.line, color="#555555", linestyle="--", linewidth=1)
            axis.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
            axis.grid(visible=True, alpha=0.3)
            axis.legend(fontsize=8)
        figure.savefig(folder / f"{name}.svg", format="svg", metadata={"Date": None})
    return [f"![{'; '.join(f'{panel.ylabel} by {panel.xlabel}' for panel in panels)}]({name}.svg)", ""]
