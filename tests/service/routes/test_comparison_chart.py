"""The bar chart of a comparison, parsed as XML."""

from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from dyno.bench.measure.compare_results import compare
from dyno.models.comparison import CompareResults
from service.comparisons.routes import axis_for, bar_chart
from tests.comparisons import RATES, an_entry, times

SVG = "{http://www.w3.org/2000/svg}"


def picture(*entries):
    asked = CompareResults(jobs=[entry.job.id for entry in entries])
    return ElementTree.fromstring(bar_chart(compare(asked, entries, None, datetime.now(UTC))))


def widths(root):
    return [float(bar.attrib["width"]) for bar in root.iter(f"{SVG}rect")]


def texts(root):
    return "\n".join(each.text or "" for each in root.iter(f"{SVG}text"))


def test_bars_are_as_long_as_their_figures_and_differ_in_colour():
    root = picture(an_entry(), an_entry(times(2)), an_entry(times(0.5)))
    first, double, half = widths(root)
    assert double / first == pytest.approx(2, rel=0.01)
    assert half / first == pytest.approx(0.5, rel=0.01)
    assert len({bar.attrib["fill"] for bar in root.iter(f"{SVG}rect")}) == 3


def test_figures_far_apart_get_a_logarithmic_axis_that_says_so():
    first, far = widths(root := picture(an_entry(times(2)), an_entry(times(2000))))
    assert "log scale" in texts(root)
    assert 2 < far / first < 20
    assert "log scale" not in texts(picture(an_entry(), an_entry(times(2))))


def test_a_whisker_reaches_over_the_interval_and_one_run_has_none():
    root = picture(an_entry([90, 100, 110]), an_entry(RATES[:1]))
    whiskers = {path.attrib["d"] for path in root.iter(f"{SVG}path")}
    assert len(whiskers) == 1
    [bar, _] = root.iter(f"{SVG}rect")
    end = float(bar.attrib["x"]) + float(bar.attrib["width"])
    low, high = (float(part.split()[0]) for part in whiskers.pop().split("M")[1::2])
    assert low < end < high
    assert end - low == pytest.approx(high - end, abs=0.2)


def test_the_chart_has_a_text_description():
    root = picture(an_entry(), an_entry(times(2)))
    assert root.attrib["role"] == "img"
    named = {root.find(f"{SVG}{tag}").attrib["id"] for tag in ("title", "desc")}
    assert set(root.attrib["aria-labelledby"].split()) == named
    words = root.findtext(f"{SVG}desc") or ""
    assert "200 FLOP/s" in words
    assert "2 times as fast" in words
    assert "FASTER" in words


def test_an_interval_that_leaves_1_out_by_little_is_not_rounded_to_1():
    told = texts(picture(an_entry(), an_entry([101.5, 102.1, 100.8, 101.7, 101.1])))
    assert "FASTER" in told
    assert "(1.00" in told


def test_device_names_are_escaped():
    name = "<script>\x00\x1b[31m & \" ' ]]> " + "x" * 500
    root = picture(an_entry(device={"id": "cpu:0", "host": "h", "model": name}), an_entry())
    assert {each.tag.removeprefix(SVG) for each in root.iter()} == {
        "svg",
        "title",
        "desc",
        "line",
        "text",
        "rect",
        "path",
    }
    assert max(len(each.text or "") for each in root.iter(f"{SVG}text")) < 120


@pytest.mark.parametrize(
    ("values", "start", "end", "log"),
    [
        ([], 0.0, 1.0, False),
        ([0.0], 0.0, 0.2, False),
        ([3.0, 7.0], 0.0, 8.0, False),
        ([0.97, 0.99], 0.0, 1.0, False),
        ([1.0, 19.0], 0.0, 20.0, False),
        ([3.0, 700.0], 1.0, 1000.0, True),
        ([0.0, 700.0], 0.0, 800.0, False),
        ([0.0, 5.0, 700.0], 1.0, 1000.0, True),  # an interval cut off at zero
        ([-2.0, 100.0], -50.0, 100.0, False),
    ],
)
def test_the_axis_holds_all_values_and_begins_at_zero_unless_logarithmic(values, start, end, log):
    axis = axis_for(values)
    assert (axis.start, axis.end) == pytest.approx((start, end))
    assert axis.log is log
    assert len(axis.ticks) <= 10
