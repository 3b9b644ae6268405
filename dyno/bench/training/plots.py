"""Draw plots into a job's artifacts, without a display. Without an artifacts folder, draw nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.models.result import Epoch

_Values = Sequence[float | None] | Sequence[float] | NDArray[Any]

_DPI = 100
_COLUMNS, _MOST_ROWS = 10, 6  # of a gallery
_LINE = 0.14  # height of a title line, in column widths
_BLUE, _ORANGE, _RED, _GREY = "#1f5fa8", "#d9730d", "#c62828", "#555555"


def plot_curves(folder: Path | None, epochs: Sequence[Epoch], name: str = "training.png") -> None:
    """Plot loss and, if available, accuracy after each epoch, for training and validation."""
    if folder is None or not epochs:
        return
    curves: list[tuple[str, _Values, _Values]] = [
        ("loss", [epoch.loss for epoch in epochs], [epoch.validation_loss for epoch in epochs])
    ]
    if any(epoch.accuracy is not None for epoch in epochs):
        accuracies = [epoch.accuracy for epoch in epochs], [epoch.validation_accuracy for epoch in epochs]
        curves.append(("accuracy", *accuracies))
    figure, axes = _figure(1, len(curves), (5.5 * len(curves), 3.8))
    numbers = [epoch.index + 1 for epoch in epochs]
    for axis, (title, training, validation) in zip(axes.flat, curves, strict=True):
        _curve(axis, numbers, training, "training", _BLUE)
        _curve(axis, numbers, validation, "validation", _ORANGE)
        axis.set(xlabel="epoch", ylabel=title)
        axis.xaxis.get_major_locator().set_params(integer=True)  # no half epochs
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    _save(figure, folder / name)


def plot_gallery(
    folder: Path | None, images: NDArray[Any], titles: Sequence[str], wrong: Sequence[bool], name: str = "wrong.png"
) -> None:
    """Plot up to 60 titled images (count, height, width, 1 or 3), uint8 or 0 to 1.

    Wrong images come first and have red titles.
    """
    if folder is None or not len(images):
        return
    order = sorted(range(len(images)), key=lambda index: not wrong[index])[: _COLUMNS * _MOST_ROWS]
    rows = -(-len(order) // _COLUMNS)
    height = 1 + _LINE * max(titles[index].count("\n") + 1 for index in order)
    figure, axes = _figure(1, 1, (1.2 * _COLUMNS, 1.2 * height * rows))
    axis = axes.flat[0]  # one axis for all images: separate axes take 20 ms each
    axis.axis("off")
    for cell, index in enumerate(order):
        left, bottom = cell % _COLUMNS, (cell // _COLUMNS + 1) * height
        image = images[index].squeeze()
        box = (left + 0.05, left + 0.95, bottom - 0.02, bottom - 0.92)
        axis.imshow(image, cmap="gray_r" if image.ndim == 2 else None, extent=box, aspect="auto")
        colour = _RED if wrong[index] else _GREY
        axis.text(left + 0.5, bottom - 0.95, titles[index], fontsize=7, color=colour, ha="center", linespacing=1.0)
    axis.set(xlim=(0, _COLUMNS), ylim=(rows * height, 0))  # imshow sets other limits
    _save(figure, folder / name)


def plot_forecast(
    folder: Path | None,
    name: str,
    predicted: Sequence[float] | NDArray[Any],
    true: Sequence[float] | NDArray[Any],
    title: str,
    unit: str,
) -> None:
    """Plot the true and the predicted values of one signal."""
    if folder is None:
        return
    figure, axes = _figure(1, 1, (11, 3.6))
    axis = axes.flat[0]
    _curve(axis, range(len(true)), true, "true", _GREY)
    _curve(axis, range(len(predicted)), predicted, "predicted", _ORANGE)
    axis.set(title=title, xlabel="step", ylabel=unit)
    axis.grid(visible=True, alpha=0.3)
    axis.legend()
    _save(figure, folder / name)


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """A figure without pyplot, which would keep global state and look for a display. `size` is in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _curve(axis: Any, places: Sequence[int], values: _Values, label: str, colour: str) -> None:
    heights = np.array([np.nan if value is None else value for value in values], np.float64)
    if not np.isnan(heights).all():
        axis.plot(places, heights, label=label, color=colour, marker="o" if len(heights) < 40 else None, markersize=3)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, format="png")
