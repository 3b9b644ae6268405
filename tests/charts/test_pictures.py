"""What a person sees of every picture: nothing overlaps or is cut, texts are readable, and no figure is missing."""

from __future__ import annotations

import io
import math
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from dyno.charts import result_charts, several
from dyno.charts.axes import ARROWS, axis_of, axis_of_numbers, axis_of_ratios, axis_of_times
from dyno.charts.drawing import (
    FILE_WIDTH,
    PALETTE,
    WIDTHS,
    Area,
    Canvas,
    Dots,
    Label,
    Picture,
    Stroke,
    font,
    text_width,
    wrapped,
)
from dyno.charts.ladder import ladder
from dyno.charts.load import load
from dyno.charts.roofline import RooflineWork, roofline
from dyno.charts.sweep_charts import _DEEPEST
from dyno.models.result import Roof
from tests.charts.pictures import ADDITION, NOW, PICTURES, a_ladder, a_ratio, a_series, bars_of, samples_of, with_repeat
from tests.comparisons import RATES, times

SVG = "{http://www.w3.org/2000/svg}"
SHEET = (Path(__file__).parents[2] / "service" / "dashboard" / "static" / "dashboard.css").read_text()
# The width that a figure has at 375, 768 and 1440 pixels, and the picture that the page shows there.
SHOWN = {343: "narrow", 720: "medium", 1152: "wide"}


def canvases(name):
    picture = PICTURES[name]
    assert isinstance(picture, Picture)
    return [picture.on(width) for width in {*picture.widths.values(), FILE_WIDTH}]


def box(label):
    """Left, top, right and bottom of a text."""
    width = text_width(label.text, label.size)
    return label.left, label.y - 0.78 * label.size, label.left + width, label.y + 0.22 * label.size


def labels(canvas):
    return [shape for shape in canvas.shapes if isinstance(shape, Label) and shape.text]


def points(shape):
    if isinstance(shape, Area):
        return shape.corners
    if isinstance(shape, Dots):
        return [(x + side * shape.radius, y + side * shape.radius) for x, y in shape.centres for side in (-1, 1)]
    return [point for line in shape.lines for point in line]


def texts(picture):
    return " ".join(label.text for label in labels(picture.on(FILE_WIDTH)))


def titles(picture):
    return [shape.title for shape in picture.on(FILE_WIDTH).shapes if not isinstance(shape, Label) and shape.title]


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_covers_another(name):
    for canvas in canvases(name):
        boxes = [(label.text, box(label)) for label in labels(canvas)]
        for number, (text, (left, top, right, bottom)) in enumerate(boxes):
            for other, (other_left, other_top, other_right, other_bottom) in boxes[:number]:
                apart = right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top
                assert apart, f"{text!r} covers {other!r} at {canvas.width}"


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_is_cut_off(name):
    for canvas in canvases(name):
        for label in labels(canvas):
            left, top, right, bottom = box(label)
            assert left >= -0.5, f"{label.text!r} at {canvas.width}"
            assert right <= canvas.width + 0.5, f"{label.text!r} at {canvas.width}"
            assert top >= -0.5, f"{label.text!r} at {canvas.width}"
            assert bottom <= canvas.height + 0.5, f"{label.text!r} at {canvas.width}"
        for shape in canvas.shapes:
            for x, y in [] if isinstance(shape, Label) else points(shape):
                assert -0.5 <= x <= canvas.width + 0.5, (shape, canvas.width)
                assert -0.5 <= y <= canvas.height + 0.5, (shape, canvas.width)


@pytest.mark.parametrize("name", [name for name in PICTURES if "heat map" not in name and "bars" not in name])
def test_neighbouring_ticks_have_different_labels(name):
    for canvas in canvases(name):
        rows: dict[float, dict[float, str]] = {}
        for label in labels(canvas):
            if re.fullmatch(r"[\d.,: -]+", label.text):
                rows.setdefault(label.y, {})[label.left] = label.text
        for row in rows.values():
            ticks = [row[left] for left in sorted(row)]
            assert all(a != b for a, b in pairwise(ticks)) or name == "one epoch", "its two panels have one tick each"


def test_texts_have_11_pixels_or_more_at_each_width():
    breaks = {
        name: int(width)
        for width, name in re.findall(r"min-width: (\d+)px\) .*?\.picture\.(\w+) { display: block", SHEET)
    }
    for width, name in SHOWN.items():
        shown = [each for each in ("narrow", "medium", "wide") if width >= breaks.get(each, 0)][-1]
        assert shown == name
        assert 12 * min(1.3, width / WIDTHS[name]) >= 11
        smallest = min(label.size for picture in PICTURES.values() for label in labels(picture.on(WIDTHS[name])))
        assert smallest * width / WIDTHS[name] >= 11
    for name, least in breaks.items():
        assert 12 * least / WIDTHS[name] >= 11, "at the least width at which the page shows it"


def contrast(one, other):
    def luminance(colour):
        channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted(map(luminance, (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_colours_stand_out_from_their_paper_in_light_and_dark(scheme):
    colours = {name: pair[scheme] for name, pair in PALETTE.items()}
    for name in ("ink", "faint", "orange"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, f"text in {name}"
    for name in ("blue", "green", "purple"):
        assert contrast(colours[name], colours["paper"]) >= 3, f"lines in {name}"
    channels = [[int(colours[name][at : at + 2], 16) for at in (1, 3, 5)] for name in ("blue", "paper")]
    cell = "".join(f"{round(_DEEPEST * a + (1 - _DEEPEST) * b):02x}" for a, b in zip(*channels, strict=True))
    assert contrast(colours["ink"], f"#{cell}") >= 4.5, "the figure in the deepest cell of a heat map"


def test_the_style_sheet_has_the_same_colours():
    light, _, dark = SHEET.partition("prefers-color-scheme: dark")
    for name, pair in PALETTE.items():
        for part, colour in zip((light, dark), pair, strict=True):
            assert f"--{name}: {colour};" in part, name


@pytest.mark.parametrize(
    "text", ["158.9 TFLOP/s, µs", "0.123456789", "MATMUL WWWW mmmm", "a name, with (signs)", "…–×"]
)
def test_texts_are_no_wider_than_they_are_taken_for(text):
    assert text_width(text, 12) >= 0.97 * font(120).getlength(text) / 10
    assert all(text_width(line) <= 100 for line in wrapped(text * 3, 100))


@pytest.mark.parametrize("name", PICTURES)
def test_each_picture_is_a_file_in_both_formats(name):
    picture = PICTURES[name]
    root = ElementTree.fromstring(picture.svg())
    assert (root.tag, root.attrib["role"]) == (f"{SVG}svg", "img")
    assert root.findtext(f"{SVG}title")
    assert "var(" not in picture.svg(), "editors of SVG know no CSS variables"
    image = Image.open(io.BytesIO(picture.png())).convert("RGB")
    assert image.width == 2 * FILE_WIDTH
    assert len(image.getcolors(1 << 20)) > 2


def test_a_page_has_each_width_with_the_colours_of_the_page():
    shown = PICTURES["runs"].__html__()
    assert re.findall(r'class="picture (\w+)"', shown) == ["narrow", "medium", "wide"]
    assert 'fill="var(--blue)"' in shown
    assert "#" not in shown
    assert shown.count("<title>run 1: ") == 2, "a narrow screen has no pointer"


def test_foreign_text_can_do_nothing():
    name = "<script>\x00\x1b[31m & \" ' ]]> " + "x" * 500
    picture = bars_of(RATES, RATES, device={"id": "cpu:0", "host": "h", "model": name})
    for written in (picture.svg(), picture.__html__()):
        assert "<script" not in written
        assert "\x00" not in written
    root = ElementTree.fromstring(picture.svg())
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "text", "path", "circle"),
    }


def test_every_run_has_a_dot_and_every_interval_a_line():
    picture = PICTURES["runs"]
    shown = titles(picture)
    assert [title for title in shown if title.startswith("run ")] == [
        f"run {n}: {v:.4g} FLOP/s" for n, v in enumerate(RATES, 1)
    ]
    assert "next result: 98 FLOP/s to 102 FLOP/s" in shown
    assert sum(title.startswith("95 % interval: ") for title in shown) == 1
    assert sum(title.startswith("an earlier result") for title in shown) == 2
    assert ARROWS not in texts(picture)
    assert result_charts.runs(with_repeat(1, 2, [1.0])) is None


def test_a_prediction_that_says_nothing_sets_no_axis_and_has_arrows():
    picture = result_charts.runs(with_repeat(-4e9, 3.9e13, [3.477e11, 3.49e11, 3.496e11]))
    canvas = picture.on(FILE_WIDTH)
    dots = [x for shape in canvas.shapes if isinstance(shape, Dots) for x, _ in shape.centres]
    assert max(dots) - min(dots) > 0.2 * FILE_WIDTH, "the runs aren't pressed together"
    [*arrows] = [s for s in canvas.shapes if isinstance(s, Area) and s.title.startswith("next result: ")]
    assert len(arrows) == 2
    assert ARROWS in texts(picture)


def test_dots_of_equal_runs_do_not_hide_each_other():
    picture = result_charts.runs(with_repeat(99, 101, [100.0, 100.0, 100.0]))
    centres = {point for shape in picture.on(320).shapes if isinstance(shape, Dots) for point in shape.centres}
    assert len(centres) == 3


def test_samples_have_the_clock_of_each_run_only_where_all_have_room():
    picture = PICTURES["samples"]
    written = [label.text for label in labels(picture.on(1120))]
    assert written.count("3.55 GHz, 61 °C") == 5
    narrow = [label.text for label in labels(picture.on(320))]
    assert not any("GHz" in text for text in narrow)
    assert "run 1" in narrow


def test_a_histogram_has_a_row_for_each_run_and_one_for_many():
    shown = titles(result_charts.histogram(samples_of(3)))
    assert {title.partition(":")[0] for title in shown} == {"run 1", "run 2", "run 3"}
    assert {title.partition(":")[0] for title in titles(result_charts.histogram(samples_of(40)))} == {"40 runs"}
    assert result_charts.histogram(samples_of(2, 4)) is None, "eight samples are too few"


def test_each_phase_has_its_name_and_duration():
    shown = texts(PICTURES["phases"])
    for text in ("import", "2.1 s", "build", "4 ms", "steady", "61 s", "time since the process was requested, s"):
        assert text in shown


def test_a_legend_names_the_lines_that_a_training_has():
    assert "held-out data" in texts(PICTURES["training"])
    assert "held-out data" not in texts(PICTURES["a long training"])
    for text in ("loss", "accuracy", "epoch"):
        assert text in texts(PICTURES["training"])


def bars(picture):
    """The widths of the bars on a canvas."""
    areas = [s for s in picture.on(FILE_WIDTH).shapes if isinstance(s, Area) and s.opacity == 0.45]
    return [max(x for x, _ in area.corners) - min(x for x, _ in area.corners) for area in areas]


def test_bars_are_as_long_as_their_figures_and_say_so_where_they_cannot_be():
    first, double, half = bars(bars_of(RATES, times(2), times(0.5)))
    assert (double / first, half / first) == (pytest.approx(2, rel=0.01), pytest.approx(0.5, rel=0.01))
    near, far = bars(apart := bars_of(times(2), times(2000)))
    assert 2 < far / near < 20
    assert "log scale" in texts(apart)
    assert "log scale" not in texts(bars_of(RATES, times(2)))


def test_bars_have_their_words_their_runs_and_their_whiskers():
    picture = bars_of(RATES, [101.5, 102.1, 100.8, 101.7, 101.1])
    told = texts(picture)
    assert "FASTER" in told
    assert "(1.00" in told, "an interval that leaves 1 out by little isn't rounded to 1"
    assert ", base, " in told
    shown = titles(picture)
    assert sum(title.startswith("run ") for title in shown) == 2 * len(RATES)
    assert sum(title.startswith("interval: ") for title in shown) == 2
    described = ElementTree.fromstring(picture.svg()).findtext(f"{SVG}desc")
    assert "times as fast" in described
    assert "FASTER" in described


def test_a_ladder_marks_the_caches_at_the_size_of_all_arrays():
    """A triad has three arrays, so its points are at 12 KiB, 24 KiB and so on; 64 KiB are between 48 and 96 KiB."""
    canvas = PICTURES["ladder"].on(FILE_WIDTH)
    titled = [shape for shape in canvas.shapes if not isinstance(shape, Label) and shape.title]
    rules = {shape.title: shape.lines[0][0][0] for shape in titled if isinstance(shape, Stroke)}
    assert [title.split(":")[0] for title in rules] == ["L1d", "L2", "L3"]
    first, second, *_ = [shape.centres[0][0] for shape in titled if shape.title.startswith("triad")]
    octaves = (next(iter(rules.values())) - first) / (second - first)
    assert octaves == pytest.approx(math.log2(64 / 12), abs=0.01)


def test_only_a_job_of_several_sizes_has_a_ladder():
    assert ladder(a_ladder({}, rungs=1)) is None
    assert ladder(a_ladder({}).model_copy(update={"workload": "matmul"})) is None


def test_the_rate_that_was_found_lies_where_p99_meets_the_limit():
    titled = [shape for shape in PICTURES["load"].on(FILE_WIDTH).shapes if not isinstance(shape, Label) and shape.title]
    [limit] = [shape.lines[0] for shape in titled if shape.title == "limit: 100 ms"]
    median, p99 = [shape.centres[0] for shape in titled if isinstance(shape, Dots)]
    assert median[0] == p99[0]
    assert p99[1] < limit[0][1] < median[1], "above the limit is up"
    assert load(a_ladder({})) is None


def test_work_at_its_limit_lies_on_the_roof_and_other_work_below_it():
    """Under 50 GB/s and 200 GFLOP/s, 0.5 FLOP/byte allow 25 GFLOP/s. Half of the peak is a tenth of a decade below."""
    canvas = PICTURES["roofline"].on(FILE_WIDTH)
    [roof] = [
        shape
        for shape in canvas.shapes
        if isinstance(shape, Stroke) and shape.title.startswith("50 GB/s and 200 GFLOP/s")
    ]
    (rise, top, end) = roof.lines[0]
    decode, computed = (mark_of(canvas, text) for text in ("decode: memory, 100 %", "product: compute, 50 %"))
    slope = (top[1] - rise[1]) / (top[0] - rise[0])
    assert decode[1] == pytest.approx(rise[1] + slope * (decode[0] - rise[0]), abs=0.1)
    decade = (decode[1] - top[1]) / math.log10(200 / 25)  # in pixels
    assert computed[1] - top[1] == pytest.approx(decade * math.log10(2), abs=0.1)
    assert top[0] < computed[0] < end[0]
    assert "Not drawn: addition: memory, 93 %." in texts(PICTURES["roofline"])
    assert "caches held the data" in texts(PICTURES["roofline of many like works"])
    assert "caches held the data" not in texts(PICTURES["roofline"])


def mark_of(canvas, title):
    """The centre of the mark."""
    [shape] = [shape for shape in canvas.shapes if not isinstance(shape, Label) and shape.title == title]
    placed = points(shape)
    return tuple(sum(values) / len(placed) for values in zip(*placed, strict=True))


def test_each_different_roof_has_a_line_with_its_precision():
    roofs = {shape.title for shape in PICTURES["rooflines"].on(FILE_WIDTH).shapes if isinstance(shape, Stroke)}
    assert {title for title in roofs if title} == {
        "50 GB/s and 200 GFLOP/s in float32",
        "50 GB/s and 800 GFLOP/s in bfloat16",
        "6.25 GB/s and 25 GFLOP/s in float32",
    }
    assert "Not drawn: int8: compute, 50 %." in texts(PICTURES["rooflines"])


def test_work_without_flop_or_without_a_limit_has_no_roofline():
    assert roofline("nothing", [ADDITION, RooflineWork("unknown", Roof(reason="not measured"))]) is None


def test_ratios_have_a_band_and_round_ticks_around_1():
    picture = PICTURES["ratios"]
    assert "within 2 %: the same" in titles(picture)
    assert {"1", "1.5", "2"} <= {label.text for label in labels(picture.on(FILE_WIDTH))}
    assert several.ratios([("a", a_ratio(None))], 0.02, "") is None


def test_a_history_shows_changes_new_software_baselines_and_verdicts():
    picture = PICTURES["history"]
    shown, written = titles(picture), texts(picture)
    for text in ("0.93 times as good from here", "baseline main", "new software"):
        assert text in shown
    for text in ("× 0.93", "trusted", "indicative", "untrusted", "baseline main", "throughput", "finished at (UTC)"):
        assert text in written
    assert several.history(a_series([1.0]), {}) is None


@pytest.mark.parametrize(
    ("values", "bounds", "low", "high", "log"),
    [
        ([0.0], [], 0.0, 0.2, False),
        ([3.0, 7.0], [], 0.0, 8.0, False),
        ([0.97, 0.99], [], 0.0, 1.0, False),
        ([1.0, 19.0], [], 0.0, 20.0, False),
        ([3.0, 700.0], [], 1.0, 1000.0, True),
        ([0.0, 700.0], [], 0.0, 800.0, False),
        ([5.0, 700.0], [0.0], 1.0, 1000.0, True),  # an interval cut off at zero
        ([-2.0, 100.0], [], -50.0, 100.0, False),
        ([90.0, 100.0], [95.0, 119.0], 0.0, 150.0, False),  # a near bound
        ([90.0, 100.0], [1e9], 0.0, 150.0, False),  # a useless one
    ],
)
def test_an_axis_of_bars_holds_all_values_and_begins_at_zero_unless_logarithmic(values, bounds, low, high, log):
    axis = axis_of(values, 0, 300, "throughput", bounds=bounds, from_zero=True)
    assert (axis.low, axis.high) == pytest.approx((low, high))
    assert axis.log is log
    assert 2 <= len(axis.ticks) <= 11


@pytest.mark.parametrize(
    ("values", "unit", "title", "some"),
    [
        ([1.584e14, 1.591e14], "FLOP/s", "rate, TFLOP/s", "158.6"),
        ([0.0012, 0.0014], "s", "rate, ms", "1.30"),
        ([1234.5678, 1234.5679], "1", "rate", "1,234.56780"),
        ([1e9, 1e12], "FLOP/s", "rate", "10 GFLOP/s"),  # each label has its unit
        ([10.0, 99_000.0], "samples/s", "rate, samples/s", "10,000"),
    ],
)
def test_ticks_are_round_and_an_axis_has_its_unit_once(values, unit, title, some):
    axis = axis_of(values, 0, 600, "rate", unit)
    assert axis.title == title
    shown = [tick.label for tick in axis.ticks]
    assert some in shown
    assert len({*shown}) == len(shown)


def test_axes_over_params_have_powers_of_two_decades_or_whole_numbers():
    shown = [tick.label for tick in axis_of_numbers([64, 128, 256, 512], 0, 600, "n").ticks]
    assert shown == ["64", "128", "256", "512"]
    assert axis_of_numbers([64.0 * 2**k for k in range(14)], 0, 200, "n").ticks[0].label == "64"
    assert {"10", "100", "1,000"} <= {tick.label for tick in axis_of_numbers([5.0, 10.0, 1500.0], 0, 600, "n").ticks}
    assert [tick.label for tick in axis_of_numbers([1.0, 2.0, 3.0], 0, 100, "n").ticks] == ["1", "2", "3"]


def test_ratios_and_times_have_their_own_ticks():
    assert {"0.5", "0.8", "1", "1.5", "2"} <= {tick.label for tick in axis_of_ratios([0.5, 2.0], 0, 300, "").ticks}
    short = axis_of_times([NOW, NOW.replace(second=40)], 0, 600)
    assert short.title.endswith("2026-11-28")
    assert "10:15:20" in [tick.label for tick in short.ticks]
    long = axis_of_times([NOW, NOW.replace(year=2027)], 0, 600)
    assert all(re.fullmatch(r"202[67]-\d\d-\d\d", tick.label) for tick in long.ticks)


def test_a_canvas_moves_what_another_has():
    inner, outer = Canvas(100), Canvas(200)
    inner.add(Dots([(1, 2)], 3, "blue"))
    inner.write(0, 5, "text")
    outer.place(inner, 100, 10)
    assert outer.shapes[0].centres == [(101, 12)]
    assert (outer.shapes[1].x, outer.shapes[1].y) == (100, 15)
