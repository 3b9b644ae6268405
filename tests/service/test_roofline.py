"""The roofline on the page of a job, on the page of a device, and as a file of `dyno result`."""

import re

import pytest

from dyno.models.result import Roof
from tests.pages import text_of
from tests.service.workers import publish

DEVICE = "/fleet/cpu%3A0-1%40here"
MEMORY = Roof(intensity=0.5, dtype="float32", ridge=2.0, binds="memory", value=5e10, unit="bytes/s", fraction=0.25)
COMPUTE = Roof(intensity=50.0, dtype="float32", ridge=2.0, binds="compute", value=1e11, unit="FLOP/s", fraction=0.75)
COPY = Roof(intensity=0.0, binds="memory", value=5e10, unit="bytes/s", fraction=0.5)


@pytest.fixture
def measured(finished):
    """Make a succeeded job with these roofs."""
    return lambda *roofs, **params: finished(spec={"params": {"n": 81, **params}}, roofs=list(roofs), params=params)


def test_a_job_shows_its_work_under_the_roof(http, measured):
    job = measured(MEMORY)
    page = http.get(f"/jobs/{job}")
    assert "matmul: memory, 25 %" in page.text
    [link] = re.findall(r'href="([^"]*picture=roofline)"', page.text)
    assert "Roof: 50 GB/s and 100 GFLOP/s in float32." in http.get(link).text


def test_a_device_shows_the_newest_result_of_each_kind_of_work(http, measured):
    older, newer = measured(MEMORY, mode="dispatch"), measured(COMPUTE, mode="dispatch")
    other = measured(COPY, repeats=3)
    page = http.get(DEVICE)
    assert "matmul n = 81, mode = dispatch, framework = tensorflow: compute, 75 %" in page.text
    assert "matmul n = 81, repeats = 3, framework = tensorflow: memory, 50 %" in text_of(page)
    assert (f"/jobs/{newer}" in page.text, f"/jobs/{other}" in page.text, f"/jobs/{older}" in page.text) == (
        True,
        True,
        False,
    )
    assert f'href="{DEVICE}"' in http.get("/fleet").text


def test_a_device_without_results_says_what_to_run(http, client, settings, device):
    idle = device(id="cpu:2-3", cores=[2, 3])
    publish(client, settings, idle, id="worker-2")
    assert "dyno sweep --preset roofline" in text_of(http.get("/fleet/cpu%3A2-3%40here"))
    assert http.get("/fleet/gpu%3A9").status_code == 404


def test_the_command_saves_the_roofline(dyno, measured, tmp_path):
    job, svg, png = measured(COMPUTE), tmp_path / "roof.svg", tmp_path / "roof.png"
    told = dyno("result", job, "--plot", svg)
    assert (told.exit_code, "matmul: compute, 75 %" in svg.read_text()) == (0, True), told.output
    assert dyno("result", job, "--plot", png).exit_code == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "must end in .svg or .png" in dyno("result", job, "--plot", "roof.pdf").output


def test_a_result_without_a_place_in_the_picture_says_why(dyno, measured, tmp_path):
    told = dyno("result", measured(Roof(reason="the bandwidth was not measured")), "--plot", tmp_path / "roof.svg")
    assert (told.exit_code, "no roofline: the bandwidth was not measured" in told.stderr) == (1, True)
    assert "does no FLOP" in dyno("result", measured(COPY), "--plot", tmp_path / "roof.svg").stderr
