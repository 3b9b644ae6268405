"""Tables, plots and conclusions of sweeps, in the API and in the command."""

import csv
import io
from xml.etree import ElementTree

import pytest

from dyno.models.result import Verdict
from tests.comparisons import a_metric
from tests.pages import text_of
from tests.service.routes.conftest import SIZES
from tests.service.workers import publish

TWO = {"params.n": [64, 128], "params.mode": ["chain", "dispatch"]}


@pytest.fixture
def followed(dyno):
    """The exit code and the outputs of `dyno sweep ID`."""

    def one(sweep):
        told = dyno("sweep", sweep["id"])
        return told.exit_code, told.stdout, told.stderr

    return one


@pytest.mark.parametrize(("rounds", "what"), [(1, "runs of each"), (3, "rounds")])
def test_an_inconclusive_ratio_says_what_would_decide(http, begun, work, rounds, what, followed):
    values = iter([80.0, 120.0, 95.0, 105.0, 100.0, 90.0])

    def measured(_):
        value = next(values)
        return [a_metric(by_run=[0.6 * value, value, 1.4 * value])]

    found = begun(base={"params.n": 64}, grid={"params.n": [64, 128]}, rounds=rounds)
    work(metrics=measured)
    ratio = http.get(found["urls"]["self"]).json()["points"][1]["ratio"]
    assert ratio["verdict"] == "INCONCLUSIVE"
    assert f"n 128: about {ratio['more_runs']} more {what} would decide" in followed(found)[1]


def test_several_ratios_have_a_note_on_multiple_comparisons(http, begun, work, followed):
    found = begun(base={"params.n": 64}, grid={"params.n": [64, 128, 256]})
    assert http.get(found["urls"]["self"]).json()["notes"] == []
    work()
    [note] = http.get(found["urls"]["self"]).json()["notes"]
    several = "The intervals of these 2 ratios aren't corrected for multiple comparisons"
    assert note == f"{several}: at 95 %, one of 20 misses on average."
    assert note in followed(found)[1]
    assert note in text_of(http.get(f"/sweeps/{found['id']}"))


def test_results_of_some_rounds_alone_are_told_apart_from_none(http, begun, work, followed):
    partial, canceled = begun(rounds=2), begun(rounds=2)
    work(3, failing=(256,))
    work(3, failing=(128, 256))
    code, table, errors = followed(partial)
    lacks = "1 of 3 points have no result, and 1 of 3 points have no result in some rounds"
    assert (code, f"{partial['id']}: {lacks}" in errors) == (1, True), errors
    assert "indicative, a round: nonfinite_loss" in table
    work(3)
    http.post(canceled["urls"]["cancel"])
    code, table, errors = followed(canceled)
    assert (code, "3 of 3 points have no result in some rounds" in errors) == (1, True), errors
    assert table.count("indicative, a round: canceled") == 3


def test_the_table_has_a_row_for_each_point(http, begun, work):
    found = begun(base={"params.n": 64})
    work(failing=(256,))
    table = found["urls"]["table"]
    rows = http.get(table).json()
    assert [(row["params.n"], row["status"], row["ratio_verdict"]) for row in rows] == [
        (64, "succeeded", None),
        (128, "succeeded", "FASTER"),
        (256, "failed", None),
    ]
    assert [row["value"] for row in rows] == [pytest.approx(64), pytest.approx(128), None]
    text = http.get(table, params={"format": "csv"})
    assert text.headers["content-type"].startswith("text/csv")
    lines = list(csv.DictReader(io.StringIO(text.text)))
    assert [line["params.n"] for line in lines] == ["64", "128", "256"]
    assert float(lines[1]["ratio"]) == pytest.approx(2)
    assert lines[2]["value"] == ""
    markdown = http.get(table, params={"format": "md"}).text.splitlines()
    assert markdown[0] == "| n | throughput | 95 % interval | next result | times as good | verdict | job |"
    assert len(markdown) == 5
    assert "| 128 | 128 FLOP/s |" in markdown[3]
    assert "FASTER" in markdown[3]
    other = http.get(table, params={"metric": "execution_time"}).json()
    assert [row["value"] for row in other] == [None, None, None]


def test_a_metric_that_the_sweep_cannot_have_is_refused(http, begun, work):
    found = begun()
    work(1)
    for url in (found["urls"][name] for name in ("self", "table", "plot")):
        answer = http.get(url, params={"metric": "speed"})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
        [fault] = answer.json()["errors"]
        assert (fault["pointer"], fault["code"]) == ("/query/metric", "unknown-metric")
        assert fault["detail"].endswith("choose one of: throughput, execution_time")
        assert http.get(url, params={"metric": "cold_throughput"}).status_code == 200


@pytest.mark.parametrize(
    ("grid", "base", "kind", "words"),
    [
        (SIZES, None, None, {"n", "64", "128", "256"}),
        (TWO, None, "curve", {"mode chain", "mode dispatch"}),
        (TWO, None, "heatmap", {"n", "mode", "chain", "dispatch"}),
        ({"params.n": [64, 128], "params.repeats": [10, 20]}, None, None, {"n", "repeats"}),
        ({"params.n": [64, 128]}, {"params.n": 64}, "bars", {"n 64", "n 128"}),
        ({"params.mode": ["chain", "dispatch"], "params.n": [64]}, None, None, {"mode chain", "mode dispatch"}),
    ],
)
def test_a_plot_names_its_axes_and_its_figures(http, begun, work, grid, base, kind, words):
    found = begun(grid=grid, base=base)
    url, asked = found["urls"]["plot"], {"kind": kind} if kind else {}
    empty = http.get(url, params=asked)
    assert empty.status_code == 200, empty.text
    work()
    image = http.get(url, params=asked)
    assert image.headers["content-type"] == "image/svg+xml"
    assert "sandbox" in image.headers["content-security-policy"]
    texts = {"".join(each.itertext()).strip() for each in ElementTree.fromstring(image.text).iter()}
    assert words <= texts
    png = http.get(url, params={**asked, "format": "png"})
    assert png.content.startswith(b"\x89PNG")


def test_a_plot_that_the_axes_do_not_allow_is_refused(http, begun):
    found = begun(grid={"params.mode": ["chain", "dispatch"]})
    for kind in ("heatmap", "curve"):
        answer = http.get(found["urls"]["plot"], params={"kind": kind})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/query/kind")


def test_no_efficiency_of_other_work_or_of_an_untrusted_result(http, begun, work, client, settings, offered):
    publish(client, settings, offered.model_copy(update={"units": 4}), id="worker-1")
    spec = {"workload": "mnist_cnn", "params": {"train_samples": 512}, "device": "cpu", "expires_in_s": 3600}
    points = [{"replicas": 1, "params.batch_size": 64}, {"replicas": 4, "params.batch_size": 64}]
    figures = [a_metric("time_per_sample", better="lower"), a_metric("test_accuracy")]
    other = {**points[1], "params.learning_rate": 0.5}
    differing = begun(spec=spec, grid=None, points=[points[0], other], base=points[0])
    work(metrics=lambda claim: figures)
    assert http.get(differing["urls"]["self"]).json()["points"][1]["scaling"] is None
    wrong = begun(spec=spec, grid=None, points=points, base=points[0])
    work(metrics=lambda claim: figures, verdict=Verdict.UNTRUSTED)
    [_, point] = http.get(wrong["urls"]["self"]).json()["points"]
    assert (point["ratio"]["value"] is not None, point["scaling"]) == (True, None)


@pytest.mark.parametrize(
    ("batches", "kind"),
    [([64, 64], "strong"), ([64, 256], "weak"), ([64, 128], None)],
    ids=["strong", "weak", "neither"],
)
def test_efficiency_over_replicas(http, begun, work, followed, client, settings, offered, batches, kind):
    """Four replicas are three times as fast as one: 75 %."""
    publish(client, settings, offered.model_copy(update={"units": 4}), id="worker-1")
    spec = {"workload": "mnist_cnn", "params": {"train_samples": 512}, "device": "cpu", "expires_in_s": 3600}
    points = [{"replicas": replicas, "params.batch_size": size} for replicas, size in zip((1, 4), batches, strict=True)]
    times = {1: [297.0, 300.0, 303.0], 4: [99.0, 100.0, 101.0]}
    found = begun(spec=spec, grid=None, points=points, base=points[0])
    work(metrics=lambda claim: [a_metric("time_per_sample", better="lower", by_run=times[claim.spec.replicas])])
    [of_base, point] = http.get(found["urls"]["self"]).json()["points"]
    assert of_base["scaling"] is None
    table = http.get(found["urls"]["table"]).json()
    if kind is None:
        assert (point["scaling"], table[1]["scaling_efficiency"]) == (None, None)
        return
    assert point["ratio"]["value"] == pytest.approx(3)
    scaling = point["scaling"]
    assert (scaling["kind"], scaling["efficiency"]) == (kind, pytest.approx(0.75))
    assert scaling["low"] == pytest.approx(point["ratio"]["low"] / 4)
    assert table[1]["scaling_efficiency"] == pytest.approx(0.75)
    assert f"75.0%, {kind}" in followed(found)[1]
