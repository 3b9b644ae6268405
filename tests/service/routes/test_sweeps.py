"""Sweeps: all jobs or none, faults of every point, results as they come, tables, plots, and the cancel of all jobs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from dyno.devices.device import Device
from dyno.models.job import Failure, FailureClass, WorkerRef
from dyno.settings import Settings
from dyno.store.leases import Claim, Leases
from dyno.store.placement import queues_served
from dyno.store.redis import Keys, sync_client
from dyno.store.sweeps import CHECK_EVERY_S, drop_empty
from dyno.sweep_presets import presets
from dyno.workloads import registry
from service import sweep_requests
from service.app import create_app
from tests.comparisons import a_metric, of_metrics

SPEC = {"workload": "matmul", "params": {"repeats": 10}, "device": "cpu", "expires_in_s": 3600}
SIZES = {"params.n": [64, 128, 256]}
TWO = {"params.n": [64, 128], "params.mode": ["chain", "dispatch"]}
Post = Callable[..., httpx.Response]


@pytest.fixture
def post(http: httpx.Client, offered: Device) -> Iterator[Post]:
    """Submit a sweep. Jobs still queued at the end are canceled, so that no other test claims them."""
    made: list[str] = []

    def one(headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        answer = http.post("/v1/sweeps", json=body, headers=headers)
        if answer.is_success:
            made.append(answer.json()["urls"]["cancel"])
        return answer

    yield one
    for url in made:
        http.post(url)


@pytest.fixture
def begun(post: Post) -> Callable[..., dict[str, Any]]:
    def one(**body: Any) -> dict[str, Any]:
        answer = post(**{"spec": SPEC, "grid": SIZES} | body)
        assert answer.status_code == 202, answer.text
        found: dict[str, Any] = answer.json()
        return found

    return one


Work = Callable[..., list[Claim]]


@pytest.fixture
def work(offered: Device, settings: Settings) -> Iterator[Work]:
    """Claim up to `most` jobs, and finish each: with rates of `faster` times its n, or, for `failing` ones, without."""
    with sync_client(settings) as client:
        leases = Leases(client, settings)

        def all_of_it(
            most: int = 100, failing: tuple[int, ...] = (), faster: float = 1.0, **result: Any
        ) -> list[Claim]:
            claims: list[Claim] = []
            worker = WorkerRef(id="w", device=offered.id, host=offered.host)
            while len(claims) < most and (claim := leases.claim(offered.full_id, queues_served(offered), worker)):
                claims.append(claim)
                n = claim.spec.params["n"]
                if n in failing:
                    failure = Failure(failure_class=FailureClass.BENCHMARK, reason="nonfinite_loss", message="no")
                    leases.finish(claim, "fail", status_reason="nonfinite_loss", failure=failure)
                    continue
                found = of_metrics([a_metric(by_run=[n * faster * share for share in (0.99, 1.0, 1.01)])], **result)
                assert leases.finish(claim, "succeed", result=found.model_copy(update={"job": claim.job_id}))
            return claims

        yield all_of_it


def test_a_grid_becomes_a_job_for_each_combination(http: httpx.Client, begun: Callable[..., dict[str, Any]]) -> None:
    found = begun(grid=TWO, base={"params.n": 64})
    assert (found["status"], found["workload"], found["metric"]) == ("running", "matmul", "throughput")
    assert [point["values"] for point in found["points"]] == [
        {"params.n": n, "params.mode": mode} for n in (64, 128) for mode in ("chain", "dispatch")
    ]
    assert [point["base"] for point in found["points"]] == [None, None, 0, 1]
    assert found["counts"] == {"total": 4, "queued": 4}
    for point in found["points"]:
        job = http.get(f"/v1/jobs/{point['job']}").json()
        assert job["spec"]["params"] == job["spec"]["params"] | {
            "n": point["values"]["params.n"],
            "mode": point["values"]["params.mode"],
            "repeats": 10,
        }
        assert job["spec"]["labels"] == {"sweep": found["id"]}
    of_sweep = http.get(found["urls"]["jobs"]).json()["data"]
    assert {job["id"] for job in of_sweep} == {point["job"] for point in found["points"]}
    assert http.get(found["urls"]["self"]).json()["points"] == found["points"]


def test_the_jobs_wait_in_a_random_order(begun: Callable[..., dict[str, Any]], work: Work) -> None:
    orders = set[tuple[int, ...]]()
    for _ in range(4):
        found = begun(grid={"params.n": [64, 65, 66, 67, 68, 69]})
        places = {point["job"]: place for place, point in enumerate(found["points"])}
        claims = work()
        assert {claim.job_id for claim in claims} == places.keys()
        orders.add(tuple(places[claim.job_id] for claim in claims))
    assert len(orders) > 1


def test_points_may_be_a_list(begun: Callable[..., dict[str, Any]]) -> None:
    points = [{"params.n": 64}, {"params.n": 128, "precision": "bfloat16"}]
    found = begun(grid=None, points=points, base={"params.n": 64})
    assert [point["values"] for point in found["points"]] == points
    assert found["axes"] == {"params.n": [64, 128], "precision": ["bfloat16"]}
    assert [point["base"] for point in found["points"]] == [None, 0]


def test_a_point_without_a_base_is_not_called_one(
    http: httpx.Client, begun: Callable[..., dict[str, Any]], work: Work
) -> None:
    pairs = [{"params.n": n, "params.mode": mode} for n in (64, 128) for mode in ("chain", "dispatch")]
    found = begun(grid=None, points=[*pairs, {"params.n": 256}], base={"params.mode": "chain"})
    assert [point["base"] for point in found["points"]] == [None, 0, None, 2, None]
    work()
    table = http.get(found["urls"]["table"], params={"format": "md"}).text.splitlines()[2:]
    assert ["1, the base" in row for row in table] == [True, False, True, False, False]
    bars = http.get(found["urls"]["plot"], params={"kind": "bars"}).text
    assert bars.count("1, the base") == 2


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({}, {("", "value-error")}),
        ({"grid": SIZES, "points": [{"params.n": 1}]}, {("", "value-error")}),
        ({"grid": {"params.n": []}}, {("/grid/params.n", "too-short")}),
        ({"grid": {"seed": [1, 2]}}, {("/grid/seed", "string-pattern-mismatch")}),
        ({"grid": {"params.n": [64, 64]}}, {("/grid/params.n/1", "repeated")}),
        ({"points": [{"params.n": 64}, {"params.n": 64}]}, {("/points/1", "repeated")}),
        ({"grid": {"params.n": list(range(1, 202))}}, {("/grid", "too-many-jobs")}),
        ({"grid": {"params.n": list(range(1, 102))}, "rounds": 2}, {("/grid", "too-many-jobs")}),
        ({"grid": SIZES, "rounds": 0}, {("/rounds", "greater-than-equal")}),
        ({"grid": SIZES, "base": {"params.n": 65}}, {("/base", "no-base")}),
        ({"grid": SIZES, "metric": "speed"}, {("/metric", "unknown-metric")}),
        ({"preset": "none"}, {("/preset", "unknown-preset")}),
        ({"preset": "quantized-models", "spec": {"params": {"model": "mnist_cnn"}}}, {("/grid", "nothing-varies")}),
        ({"grid": SIZES, "more": 1}, {("/more", "extra-forbidden")}),
        ({"spec": SPEC | {"workload": "matmull"}, "grid": SIZES}, {("/spec/workload", "unknown-workload")}),
        ({"spec": SPEC | {"labels": {"sweep": "x"}}, "grid": SIZES}, {("/spec/labels/sweep", "reserved")}),
        ({"spec": SPEC | {"labels": 1}, "grid": SIZES}, {("/spec/labels", "dict-type")}),
        ({"spec": SPEC | {"params": []}, "grid": SIZES}, {("/spec/params", "dict-type")}),
        ({"spec": {"workload": "mnist_cnn"}, "grid": {"precision": ["a"]}}, {("/grid/precision/0", "unknown-axis")}),
        ({"preset": "quantized-models", "spec": {"params": []}}, {("/spec/params", "dict-type")}),
        (
            {"grid": {"precision": ["float32"], "params.dtype": ["float32"]}},
            {("/grid/precision/0", "repeated")},
        ),
        (
            {"grid": {"params.n": [0, 64, "x"], "framework": ["tensorflow", "caffe"], "device": ["cpu", "tpu"]}},
            {
                ("/grid/params.n/0", "greater-than-equal"),
                ("/grid/params.n/2", "int-type"),
                ("/grid/framework/1", "literal-error"),
                ("/grid/device/1", "no-device-fits"),
            },
        ),
        ({"points": [{"params.n": 64}, {"params.n": 0}]}, {("/points/1/params.n", "greater-than-equal")}),
        ({"grid": {"device": ["cpu", "tpu", "gpu:7"]}}, {(f"/grid/device/{i}", "no-device-fits") for i in (1, 2)}),
        ({"grid": {"params.n": [64, 90_000]}}, {("/grid/params.n/1", "does-not-fit")}),
    ],
)
def test_every_fault_of_every_point_is_reported_and_no_job_is_queued(
    http: httpx.Client, post: Post, body: dict[str, Any], faults: set[tuple[str, str]]
) -> None:
    before = http.get("/v1/jobs").json()["data"]
    answer = post(**{"spec": SPEC} | body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-sweep"), answer.text
    assert {(each["pointer"], each["code"]) for each in answer.json()["errors"]} == faults
    assert http.get("/v1/jobs").json()["data"] == before


def test_a_fault_names_its_points(post: Post) -> None:
    answer = post(spec=SPEC, grid={"params.n": [0, 64], "params.mode": ["chain", "dispatch"]})
    [fault] = answer.json()["errors"]
    assert fault["detail"].endswith("(at n 0, mode chain; n 0, mode dispatch)")


def test_a_repeated_request_finds_its_sweep(http: httpx.Client, post: Post) -> None:
    key = {"Idempotency-Key": "twice"}
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: post(key, spec=SPEC, grid=SIZES), range(10)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotent-Replayed" in answer.headers for answer in answers) == 9
    assert len(http.get("/v1/jobs", params={"label": "sweep", "status": "queued"}).json()["data"]) == 3
    other = post(key, spec=SPEC, grid={"params.n": [64]})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
    as_job = http.post("/v1/jobs", json=SPEC, headers=key)
    assert (as_job.status_code, as_job.json()["code"]) == (422, "idempotency-key-reused")


def test_a_repeated_request_finds_its_sweep_after_its_device_has_gone(
    post: Post, offered: Device, settings: Settings
) -> None:
    key = {"Idempotency-Key": "gone"}
    first = post(key, spec=SPEC, grid={"device": [offered.id]})
    with sync_client(settings) as client:
        name = Keys(settings.namespace).worker("worker-1")
        kept = client.get(name)
        client.delete(name)
        try:
            again = post(key, spec=SPEC, grid={"device": [offered.id]})
        finally:
            client.set(name, str(kept))
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])


def test_all_jobs_are_queued_or_none(
    settings: Settings, offered: Device, serve: Callable[..., Any], http: httpx.Client
) -> None:
    """`http` keeps the first service, and with it the device, alive."""
    with serve(create_app(settings.model_copy(update={"max_queued": 2}))) as limited:
        refused = limited.post("/v1/sweeps", json={"spec": SPEC, "grid": SIZES})
        assert (refused.status_code, refused.json()["code"]) == (429, "queue-full")
        assert "the sweep has 3 jobs" in refused.json()["detail"]
        assert limited.get("/v1/jobs", params={"status": "queued"}).json()["data"] == []
        fits = limited.post("/v1/sweeps", json={"spec": SPEC, "grid": {"params.n": [64, 65]}})
        assert fits.status_code == 202
        limited.post(fits.json()["urls"]["cancel"])


def test_results_come_in_one_by_one(http: httpx.Client, begun: Callable[..., dict[str, Any]], work: Work) -> None:
    found = begun(base={"params.n": 64})
    work(1)
    now = http.get(found["urls"]["self"]).json()
    assert (now["status"], now["counts"]) == ("running", {"total": 3, "queued": 2, "succeeded": 1})
    assert sum(point["metrics"] is not None for point in now["points"]) == 1
    work()
    done = http.get(found["urls"]["self"])
    now = done.json()
    assert "Retry-After" not in done.headers
    assert (now["status"], now["eta_s"], now["counts"]) == ("succeeded", 0, {"total": 3, "succeeded": 3})
    metrics = [point["metrics"][0] for point in now["points"]]
    assert [metric["value"] for metric in metrics] == pytest.approx([64, 128, 256])
    assert all(metric["low"] < metric["value"] < metric["high"] for metric in metrics)
    ratios = [point["ratio"] for point in now["points"]]
    assert ratios[0] is None
    assert [ratio["value"] for ratio in ratios[1:]] == pytest.approx([2, 4])
    assert all(ratio["low"] < ratio["value"] < ratio["high"] for ratio in ratios[1:])
    assert [ratio["verdict"] for ratio in ratios[1:]] == ["FASTER", "FASTER"]


def test_all_points_have_a_job_in_each_round(
    http: httpx.Client, begun: Callable[..., dict[str, Any]], work: Work
) -> None:
    found = begun(base={"params.n": 64}, rounds=3)
    assert found["counts"] == {"total": 9, "queued": 9}
    by_round = [{point["jobs"][place] for point in found["points"]} for place in range(3)]
    assert [point["job"] for point in found["points"]] == [point["jobs"][0] for point in found["points"]]
    of_rounds = [{claim.job_id for claim in work(3)}]
    now = http.get(found["urls"]["self"]).json()
    assert [point["status"] for point in now["points"]] == ["running"] * 3
    assert [point["ratio"]["reason"] for point in now["points"][1:]] == ["an interval needs at least two rounds"] * 2
    of_rounds += [{claim.job_id for claim in work(3, faster=share)} for share in (2.0, 3.0)]
    assert of_rounds == by_round
    now = http.get(found["urls"]["self"]).json()
    assert now["status"] == "succeeded"
    metrics = [point["metrics"][0] for point in now["points"]]
    assert [metric["value"] for metric in metrics] == pytest.approx([128, 256, 512])  # the mean of 1, 2 and 3 times
    assert all(metric["high"] > 2 * metric["value"] for metric in metrics)  # the rounds differ so much
    ratios = [point["ratio"] for point in now["points"]]
    assert [ratio["value"] for ratio in ratios[1:]] == pytest.approx([2, 4])
    assert [ratio["low"] for ratio in ratios[1:]] == pytest.approx([2, 4])  # but each round has the same ratios
    assert [ratio["degrees_of_freedom"] for ratio in ratios[1:]] == [2, 2]
    [row, *_] = http.get(found["urls"]["table"]).json()
    assert row["job"].split() == now["points"][0]["jobs"]


def test_jobs_of_a_sweep_keep_the_baseline_that_their_spec_names(
    http: httpx.Client, begun: Callable[..., dict[str, Any]], post: Post, offered: Device, settings: Settings
) -> None:
    http.put("/v1/baselines/floor", json={"metric": "throughput", "at_least": 1}).raise_for_status()
    begun(spec=SPEC | {"baseline": "floor"}, grid={"params.n": [64]})
    with sync_client(settings) as client:
        leases = Leases(client, settings)
        worker = WorkerRef(id="w", device=offered.id, host=offered.host)
        claim = leases.claim(offered.full_id, queues_served(offered), worker)
        assert claim is not None
        kept = leases.baseline(claim)
        leases.finish(claim, "stop")
    assert kept is not None
    assert (kept.name, kept.at_least) == ("floor", 1)
    [fault] = post(spec=SPEC | {"baseline": "none"}, grid={"params.n": [64]}).json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/spec/baseline", "unknown-baseline")


def test_a_sweep_with_a_failed_job_is_partial(
    http: httpx.Client, begun: Callable[..., dict[str, Any]], work: Work
) -> None:
    found = begun(base={"params.n": 64})
    work(failing=(128,))
    now = http.get(found["urls"]["self"]).json()
    assert now["status"] == "partial"
    assert [point["status"] for point in now["points"]] == ["succeeded", "failed", "succeeded"]
    assert now["points"][1]["status_reason"] == "nonfinite_loss"
    assert now["points"][1]["ratio"] is None
    http.delete(f"/v1/jobs/{now['points'][1]['job']}")
    assert http.get(found["urls"]["self"]).json()["points"][1]["status"] == "gone"


def test_an_emulated_device_is_not_compared_with_a_real_one(
    http: httpx.Client, begun: Callable[..., dict[str, Any]], work: Work
) -> None:
    found = begun(base={"params.n": 64}, grid={"params.n": [64, 128]})
    work(1)
    work(device={"id": "cpu:0-1", "host": "here", "emulated": True})
    [point] = [point for point in http.get(found["urls"]["self"]).json()["points"] if point["base"] is not None]
    assert (point["ratio"]["value"], point["ratio"]["reason"]) == (None, "one of the two devices is emulated")


def test_the_table_has_a_row_for_each_point(
    http: httpx.Client, begun: Callable[..., dict[str, Any]], work: Work
) -> None:
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
def test_a_plot_names_its_axes_and_its_figures(
    http: httpx.Client,
    begun: Callable[..., dict[str, Any]],
    work: Work,
    grid: dict[str, Any],
    base: dict[str, Any] | None,
    kind: str | None,
    words: set[str],
) -> None:
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


def test_a_plot_that_the_axes_do_not_allow_is_refused(http: httpx.Client, begun: Callable[..., dict[str, Any]]) -> None:
    found = begun(grid={"params.mode": ["chain", "dispatch"]})
    for kind in ("heatmap", "curve"):
        answer = http.get(found["urls"]["plot"], params={"kind": kind})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/query/kind")


def test_a_sweep_is_canceled_as_a_whole(http: httpx.Client, begun: Callable[..., dict[str, Any]], work: Work) -> None:
    found = begun()
    [first] = work(1)
    canceled = http.post(found["urls"]["cancel"])
    now = canceled.json()
    assert (canceled.status_code, now["status"], now["counts"]) == (
        200,
        "canceled",
        {"total": 3, "succeeded": 1, "canceled": 2},
    )
    assert now["cancel_requested_at"]
    assert work() == []
    assert http.post(found["urls"]["cancel"]).json() == now
    assert [point["metrics"] is not None for point in now["points"]].count(True) == 1
    assert first.job_id in {point["job"] for point in now["points"] if point["metrics"]}


def test_a_running_job_of_a_canceled_sweep_is_asked_to_stop(
    http: httpx.Client, begun: Callable[..., dict[str, Any]], offered: Device, settings: Settings
) -> None:
    found = begun()
    with sync_client(settings) as client:
        leases = Leases(client, settings)
        worker = WorkerRef(id="w", device=offered.id, host=offered.host)
        claim = leases.claim(offered.full_id, queues_served(offered), worker)
        assert claim is not None
        canceled = http.post(found["urls"]["cancel"])
        assert (canceled.status_code, canceled.json()["status"]) == (202, "running")
        assert leases.heartbeat(claim, None).cancel_requested
        assert leases.finish(claim, "stop")
    assert http.get(found["urls"]["self"]).json()["status"] == "canceled"


def test_a_done_sweep_cannot_be_canceled(http: httpx.Client, begun: Callable[..., dict[str, Any]], work: Work) -> None:
    found = begun()
    work()
    answer = http.post(found["urls"]["cancel"])
    assert (answer.status_code, answer.json()["code"]) == (409, "sweep-finished")


@pytest.mark.parametrize("sweep_id", ["swp_01M80PT6VM78YWA14Q3XXHDWDJ", "job_1", "swp_:x"])
def test_an_unknown_sweep_is_not_found(http: httpx.Client, sweep_id: str) -> None:
    for answer in (http.get(f"/v1/sweeps/{sweep_id}"), http.post(f"/v1/sweeps/{sweep_id}/cancel")):
        assert (answer.status_code, answer.json()["code"]) == (404, "sweep-not-found")


def test_sweeps_are_listed_newest_first(http: httpx.Client, begun: Callable[..., dict[str, Any]]) -> None:
    ids = [begun()["id"] for _ in range(3)]
    first = http.get("/v1/sweeps", params={"limit": 2}).json()
    assert [each["id"] for each in first["data"]] == [ids[2], ids[1]]
    assert "points" not in first["data"][0]
    assert first["data"][0]["counts"] == {"total": 3, "queued": 3}
    following = http.get("/v1/sweeps", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert [each["id"] for each in following["data"]] == [ids[0]]


def test_a_sweep_is_dropped_when_a_check_finds_none_of_its_jobs(
    http: httpx.Client, begun: Callable[..., dict[str, Any]], work: Work, settings: Settings
) -> None:
    kept, emptied = begun(), begun()
    work()
    for point in emptied["points"]:
        assert http.delete(f"/v1/jobs/{point['job']}").status_code == 204
    keys = Keys(settings.namespace)
    with sync_client(settings) as client:
        assert drop_empty(client, settings) == []
        for each in (kept, emptied):
            assert client.zscore(keys.sweeps_due, each["id"]) > 1000 * CHECK_EVERY_S
            client.zadd(keys.sweeps_due, {each["id"]: 1})
        assert drop_empty(client, settings) == [emptied["id"]]
        assert client.zscore(keys.sweeps_due, kept["id"]) > 1000 * CHECK_EVERY_S
        assert client.zscore(keys.sweeps, emptied["id"]) is None
    assert http.get(emptied["urls"]["self"]).status_code == 404
    assert http.get(kept["urls"]["self"]).status_code == 200


def test_a_preset_may_be_changed(begun: Callable[..., dict[str, Any]]) -> None:
    spec = {"device": "cpu", "params": {"epochs": 1}, "measure": {"processes": 1}}
    found = begun(spec=spec, grid=None, preset="mnist-batches")
    assert (found["preset"], found["workload"]) == ("mnist-batches", "mnist_cnn")
    assert found["axes"] == {"params.batch_size": [256, 512, 1024]}
    assert found["base"] is None
    again = begun(
        spec=spec, grid={"params.batch_size": [64, 128]}, preset="mnist-batches", base={"params.batch_size": 64}
    )
    assert [point["values"]["params.batch_size"] for point in again["points"]] == [64, 128]


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_valid(name: str) -> None:
    planned = sweep_requests.plan({"preset": name}, [], 200)
    faults = sweep_requests.Faults(planned)
    requests = sweep_requests.validate(planned, "swp_01M80PT6VM78YWA14Q3XXHDWDJ", registry(), faults)
    faults.check()
    assert len(requests) == len(planned.points) > 1
    assert planned.asked.base == presets()[name].base
