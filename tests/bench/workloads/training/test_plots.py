import numpy as np
import pytest

from dyno.bench.training.plots import plot_curves, plot_forecast, plot_gallery
from dyno.models.result import Epoch

EPOCHS = [
    Epoch(index=0, time_s=1.0, loss=2.0, accuracy=0.5, validation_loss=2.1, validation_accuracy=0.4),
    Epoch(index=1, time_s=1.0, loss=1.0, accuracy=0.7, validation_loss=1.3, validation_accuracy=0.6),
]


def _pixels(path):
    from PIL import Image

    with Image.open(path) as picture:
        assert picture.format == "PNG"
        return np.array(picture.convert("RGB"))


def _red_columns(pixels):
    """The tenths of the width that contain red text, even blurred."""
    red, green, blue = pixels.astype(int).transpose(2, 0, 1)
    places = np.flatnonzero(((red > green + 50) & (red > blue + 50)).any(axis=0))
    return sorted({int(place * 10 // pixels.shape[1]) for place in places})


def test_curves_of_a_classification_are_two_pictures_wide_and_of_a_forecast_one(tmp_path):
    plot_curves(tmp_path, EPOCHS)
    plot_curves(tmp_path, [epoch.model_copy(update={"accuracy": None}) for epoch in EPOCHS], "loss.png")
    assert _pixels(tmp_path / "training.png").shape[1] == 2 * _pixels(tmp_path / "loss.png").shape[1]


def test_validation_is_drawn_only_where_there_was_one(tmp_path):
    alone = [epoch.model_copy(update={"validation_loss": None, "validation_accuracy": None}) for epoch in EPOCHS]
    plot_curves(tmp_path, alone, "alone.png")
    plot_curves(tmp_path, EPOCHS, "beside.png")
    orange = (0xD9, 0x73, 0x0D)
    drawn = [bool((_pixels(tmp_path / name) == orange).all(axis=2).any()) for name in ("alone.png", "beside.png")]
    assert drawn == [False, True]


def test_the_wrong_images_come_first_with_their_titles_in_red(tmp_path):
    images = np.random.default_rng(1).random((10, 28, 28, 1))
    wrong = [False] * 8 + [True, True]
    plot_gallery(tmp_path, images, ["title"] * 10, wrong)
    assert _red_columns(_pixels(tmp_path / "wrong.png")) == [0, 1]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_gallery_takes_grey_and_coloured_images_and_shows_no_more_than_fit(tmp_path, channels):
    images = np.zeros((200, 8, 8, channels), np.uint8)
    plot_gallery(tmp_path, images, [str(index) for index in range(200)], [True] * 200, "many.png")
    plot_gallery(tmp_path, images[:60], [str(index) for index in range(60)], [True] * 60, "all.png")
    assert _pixels(tmp_path / "many.png").shape == _pixels(tmp_path / "all.png").shape


def test_a_forecast_shows_both_lines(tmp_path):
    steps = np.linspace(0, 6, 50)
    plot_forecast(tmp_path, "temperature.png", np.sin(steps), np.cos(steps), "Temperature", "°C")
    pixels = _pixels(tmp_path / "temperature.png")
    for colour in ((0xD9, 0x73, 0x0D), (0x55, 0x55, 0x55)):
        assert (pixels == colour).all(axis=2).any()


def test_nothing_is_drawn_where_no_artifacts_are_kept():
    plot_curves(None, EPOCHS)
    plot_gallery(None, np.zeros((1, 8, 8, 1)), ["0"], [True])
    plot_forecast(None, "x.png", [1.0], [1.0], "Signal", "1")
