"""Draw pictures into a job's artifacts. Without an artifacts folder, draw nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.charts import result_charts
from dyno.charts.drawing import font
from dyno.models.result import Epoch

_COLUMNS, _MOST_ROWS = 5, 12  # a gallery of this size fits a page's text column and is readable on a phone
_CELL, _IMAGE = 144, 128  # pixels
_TEXT, _LINE = 18, 22
_RED, _GREY = "#b0261e", "#444b53"


def plot_curves(folder: Path | None, epochs: Sequence[Epoch], name: str = "training.png") -> None:
    """Plot loss and, if available, accuracy after each epoch, for training and validation."""
    if folder is not None and (picture := result_charts.training(epochs)):
        (folder / name).write_bytes(picture.png())


def plot_gallery(
    folder: Path | None, images: NDArray[Any], titles: Sequence[str], wrong: Sequence[bool], name: str = "wrong.png"
) -> None:
    """Plot up to 60 titled images (count, height, width, 1 or 3), uint8 or 0 to 1.

    Wrong images come first and have red titles.
    """
    if folder is None or not len(images):
        return
    from PIL import Image, ImageDraw

    order = sorted(range(len(images)), key=lambda index: not wrong[index])[: _COLUMNS * _MOST_ROWS]
    height = _CELL + _LINE * max(titles[index].count("\n") + 1 for index in order)
    sheet = Image.new("RGB", (_COLUMNS * _CELL, height * -(-len(order) // _COLUMNS)), "white")
    pen = ImageDraw.Draw(sheet)
    for cell, index in enumerate(order):
        left, top = cell % _COLUMNS * _CELL, cell // _COLUMNS * height
        sheet.paste(_enlarged(images[index]), (left + (_CELL - _IMAGE) // 2, top + 4))
        colour = _RED if wrong[index] else _GREY
        for line, text in enumerate(titles[index].split("\n")):
            place = left + _CELL / 2, top + _IMAGE + 4 + _LINE * (line + 1) - 4
            pen.text(place, text, fill=colour, font=_fitting(text), anchor="ms")
    sheet.save(folder / name, "PNG")


def _enlarged(image: NDArray[Any]) -> Any:
    """The image, enlarged. Grey images become dark on white, scaled to their brightest pixel."""
    from PIL import Image

    pixels = image.squeeze().astype(np.float32)
    if pixels.ndim == 2:
        pixels = 1.0 - pixels / max(float(pixels.max()), 1e-9)
    elif image.dtype == np.uint8:
        pixels = pixels / 255.0
    drawn = Image.fromarray((255 * np.clip(pixels, 0.0, 1.0)).astype(np.uint8)).convert("RGB")
    return drawn.resize((_IMAGE, _IMAGE), Image.Resampling.NEAREST)


def _fitting(text: str) -> Any:
    """The font in its usual size, or smaller if the text would be too wide."""
    wide = font(_TEXT)
    return wide if wide.getlength(text) <= _CELL - 4 else font(int(_TEXT * (_CELL - 4) / wide.getlength(text)))


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
    picture = result_charts.forecast(
        title, [float(value) for value in predicted], [float(value) for value in true], unit
    )
    (folder / name).write_bytes(picture.png())
