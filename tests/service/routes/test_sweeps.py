"""Sweeps: all jobs or none, faults of every point, results as they come, and the cancel of all jobs."""

import pytest

from dyno import tables
from dyno.bench.measure.warnings import warning
from dyno.models.result import BasedOn, DataOrigin, Epoch, Repeat, Training, Trial, Verdict
from dyno.models.sweep import Stop, Sweep, presets
from dyno.store.leases import Leases
from dyno.store.redis import Keys, sync_client
from dyno.store.sweeps import Sweeps
from service.app import create_app
from service.sweeps import results as sweep_results
from tests.comparisons import a_metric, times
from tests.service.routes.conftest import SIZES, SPEC
from tests.service.workers import claim_of, publish
from tests.waiting import eventually

TRAINING = {"workload": "mnist_cnn", "params": {"train_samples": 300}, "device": "cpu", "expires_in_s": 3600}
TWO = {"params.n": [64, 128], "params.mode": ["chain", "dispatch"]}
DEVICES = {"device": ["cpu", "cpu:0-1"]}


@pytest.fixture
def fleet_of_all(client, settings, device):
    """A CPU, a GPU and a TPU with the frameworks that Dyno's workers have on each. Returns the CPU."""
    every = {"tensorflow": "2.21.0", "jax": "0.10.2", "torch": "2.13.0"}
    large = {"host": "large", "memory_bytes": 64 * 2**30, "frameworks": every}
    found = device(**large, id="cpu:0-7", cores=list(range(8)))
    others = [
        device(**large, id="gpu:0", kind="gpu", cores=[]),
        device(**large | {"frameworks": {"jax": "0.10.2"}}, id="tpu:0", kind="tpu", cores=[], units=8),
    ]
    records = [publish(client, settings, each) for each in (found, *others)]
    yield found
    for record in records:
        client.delete(Keys(settings.namespace).worker(record.id))


def test_a_grid_becomes_a_job_for_each_combination(http, begun):
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


def test_the_jobs_wait_in_a_random_order(begun, work):
    orders = set[tuple[int, ...]]()
    for _ in range(4):
        found = begun(grid={"params.n": [64, 65, 66, 67, 68, 69]})
        places = {point["job"]: place for place, point in enumerate(found["points"])}
        claims = work()
        assert {claim.job_id for claim in claims} == places.keys()
        orders.add(tuple(places[claim.job_id] for claim in claims))
    assert len(orders) > 1


def test_points_may_be_a_list(begun):
    points = [{"params.n": 64}, {"params.n": 128, "precision": "bfloat16"}]
    found = begun(grid=None, points=points, base={"params.n": 64})
    assert [point["values"] for point in found["points"]] == points
    assert found["axes"] == {"params.n": [64, 128], "precision": ["bfloat16"]}
    assert [point["base"] for point in found["points"]] == [None, 0]


def test_a_point_without_a_base_is_not_called_one(http, begun, work):
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
        ({"grid": SIZES, "stop_hopeless": True}, {("/stop_hopeless", "needs-rounds")}),
        ({"grid": {"params.batch_size": ["auto"]}}, {("/grid/params.batch_size/0", "extra-forbidden")}),
        (
            {"spec": TRAINING | {"params": {"train_samples": 20}}, "grid": {"params.batch_size": ["auto"]}},
            {("/grid/params.batch_size/0", "batch-too-large"), ("/grid/params.batch_size/0", "less-than-equal")},
        ),
        ({"grid": SIZES, "rounds": 0}, {("/rounds", "greater-than-equal")}),
        ({"grid": SIZES, "base": {"params.n": 65}}, {("/base", "no-base")}),
        ({"grid": SIZES, "metric": "speed"}, {("/metric", "unknown-metric")}),
        ({"grid": SIZES, "metric": "test_accuracy"}, {("/metric", "unknown-metric")}),
        (
            {"spec": TRAINING, "grid": {"params.epochs": [1, 2]}, "metric": "time_to_accuracy_0.98"},
            {("/metric", "unknown-metric")},
        ),
        ({"preset": "none"}, {("/preset", "unknown-preset")}),
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
def test_every_fault_of_every_point_is_reported_and_no_job_is_queued(http, post, body, faults):
    before = http.get("/v1/jobs").json()["data"]
    answer = post(**{"spec": SPEC} | body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-sweep"), answer.text
    assert {(each["pointer"], each["code"]) for each in answer.json()["errors"]} == faults
    assert http.get("/v1/jobs").json()["data"] == before


def test_a_fault_names_its_points(post):
    answer = post(spec=SPEC, grid={"params.n": [0, 64], "params.mode": ["chain", "dispatch"]})
    [fault] = answer.json()["errors"]
    assert fault["detail"].endswith("(at n 0, mode chain; n 0, mode dispatch)")


def test_a_repeated_request_finds_its_sweep_after_its_device_has_gone(post, offered, settings):
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


def test_all_jobs_are_queued_or_none(settings, offered, serve, http):
    """`http` keeps the first service, and with it the device, alive."""
    with serve(create_app(settings.model_copy(update={"max_queued": 3}))) as limited:
        fits = limited.post("/v1/sweeps", json={"spec": SPEC, "grid": {"params.n": [64, 65]}})
        assert fits.status_code == 202
        refused = limited.post("/v1/sweeps", json={"spec": SPEC, "grid": SIZES})
        assert (refused.status_code, refused.json()["code"]) == (429, "queue-full")
        assert "the sweep has 3 jobs" in refused.json()["detail"]
        assert len(limited.get("/v1/jobs", params={"status": "queued"}).json()["data"]) == 2
        limited.post(fits.json()["urls"]["cancel"])


def test_a_sweep_that_never_fits_the_queue_is_refused_for_good(settings, offered, serve, http):
    """`http` keeps the first service, and with it the device, alive."""
    with serve(create_app(settings.model_copy(update={"max_queued": 3, "key_queue_share": 1.0}))) as limited:
        refused = limited.post("/v1/sweeps", json={"spec": SPEC, "grid": {"params.n": [64, 65]}, "rounds": 2})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-sweep")
    [fault] = refused.json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/grid", "too-many-jobs")
    assert fault["detail"] == "the sweep has 4 jobs; the limit of the queue is 3 jobs"


def test_results_come_in_one_by_one(http, begun, work):
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


def test_all_points_have_a_job_in_each_round(http, begun, work):
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


def test_jobs_of_a_sweep_keep_the_baseline_that_their_spec_names(http, begun, post, offered, settings):
    http.put("/v1/baselines/floor", json={"metric": "throughput", "at_least": 1}).raise_for_status()
    begun(spec=SPEC | {"baseline": "floor"}, grid={"params.n": [64]})
    with sync_client(settings) as client:
        leases = Leases(client, settings)
        claim = claim_of(leases, offered)
        kept = leases.baseline(claim)
        leases.finish(claim, "stop")
    assert kept is not None
    assert (kept.name, kept.at_least) == ("floor", 1)
    [fault] = post(spec=SPEC | {"baseline": "none"}, grid={"params.n": [64]}).json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/spec/baseline", "unknown-baseline")


def test_a_sweep_with_a_failed_job_is_partial(http, begun, work):
    found = begun(base={"params.n": 64})
    work(failing=(128,))
    now = http.get(found["urls"]["self"]).json()
    assert now["status"] == "partial"
    assert [point["status"] for point in now["points"]] == ["succeeded", "failed", "succeeded"]
    assert now["points"][1]["status_reason"] == "nonfinite_loss"
    assert now["points"][1]["ratio"] is None
    http.delete(f"/v1/jobs/{now['points'][1]['job']}")
    assert http.get(found["urls"]["self"]).json()["points"][1]["status"] == "gone"


ELSEWHERE = {"id": "cpu:0-1", "host": "here", "emulated": True}


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        ({"device": ELSEWHERE}, "one of the two devices is emulated"),
        (
            {"metrics": lambda _: [a_metric().model_copy(update={"unit": "samples/s"})]},
            "throughput has another unit or direction",
        ),
    ],
    ids=["emulated", "another unit"],
)
def test_unlike_results_are_not_compared(http, begun, work, ends, reason):
    found = begun(base={"device": "cpu"}, grid=DEVICES)
    work(1)
    work(**ends)
    [point] = [point for point in http.get(found["urls"]["self"]).json()["points"] if point["base"] is not None]
    assert (point["ratio"]["value"], point["ratio"]["reason"]) == (None, reason)


def test_tables_and_plots_name_the_points_of_emulated_devices(http, begun, work):
    found = begun(base={"params.n": 64}, grid={"params.n": [64, 128]})
    places = {each["job"]: place for place, each in enumerate(found["points"])}
    [first] = work(1)
    work(device=ELSEWHERE, verdict=Verdict.UNTRUSTED, warnings=[warning("EMULATED_DEVICE")])
    n = (128, 64)[places[first.job_id]]
    rows = http.get(found["urls"]["table"], params={"format": "md"}).text.splitlines()[2:]
    assert ["untrusted, emulated" in row for row in rows] == [n == 64, n == 128]
    for kind in ("bars", "curve"):
        text = http.get(found["urls"]["plot"], params={"kind": kind}).text
        assert f"emulated: n {n}" in text
        assert ("no ratio: one of the two devices is emulated" in text) == (kind == "bars")


def test_totals_are_compared_for_the_same_work_alone(http, begun, work):
    found = begun(base={"params.n": 64}, grid={"params.n": [64, 128]})
    alike = begun(base={"device": "cpu"}, grid=DEVICES)
    work(metrics=lambda _: [a_metric(), a_metric("execution_time", better="lower")])

    def compared(sweep, metric):
        point = http.get(sweep["urls"]["self"], params={"metric": metric}).json()["points"][1]
        return point["ratio"]["value"], point["same_work"], point["ratio"]["reason"]

    assert compared(found, "throughput") == (pytest.approx(1), False, None)
    reason = "execution_time depends on the amount of work, which differs"
    assert compared(found, "execution_time") == (None, False, reason)
    assert compared(alike, "execution_time") == (pytest.approx(1), True, None)


@pytest.mark.parametrize("rounds", [1, 3])
def test_points_keep_their_clocks(http, begun, work, rounds):
    """The second point is 6 % slower, at a clock that is 6 % lower: that is a part of what the axis does."""

    def measured(claim):
        share = 0.94 if claim.spec.device.id else 1.0
        repeat = Repeat(low=90, high=110, based_on=BasedOn(runs=3), clock_hz=4e9 * share, elasticity=1.0)
        return [a_metric(by_run=times(share)).model_copy(update={"repeat": repeat})]

    found = begun(base={"device": "cpu"}, grid=DEVICES, rounds=rounds)
    work(metrics=measured)
    _, point = http.get(found["urls"]["self"]).json()["points"]
    assert point["ratio"]["value"] == point["ratio"]["as_measured"] == pytest.approx(0.94)


def test_hopeless_points_have_no_further_rounds(http, begun, work):
    """64 is surely less than half of 256; 128 may be half of it."""
    found = begun(rounds=3, stop_hopeless=True)
    assert [point["stopped"] for point in found["points"]] == [None] * 3
    work(3)
    url = found["urls"]["self"]
    now = eventually(lambda: (now := http.get(url).json())["counts"].get("canceled") and now, 30, "a stopped point")
    assert [point["stopped"] and point["stopped"]["reason"] for point in now["points"]] == ["hopeless", None, None]
    hopeless, metrics = now["points"][0]["stopped"], [point["metrics"][0] for point in now["points"]]
    assert (hopeless["by"], hopeless["bound"], hopeless["best_bound"]) == (2, metrics[0]["high"], metrics[2]["low"])
    work()
    now = http.get(url).json()
    assert (now["status"], now["counts"]) == ("succeeded", {"total": 9, "succeeded": 7, "canceled": 2})
    assert [point["status"] for point in now["points"]] == ["succeeded"] * 3
    rows = http.get(found["urls"]["table"]).json()
    assert [row["stopped"] for row in rows] == ["hopeless", None, None]
    assert "stopped: hopeless" in http.get(found["urls"]["table"], params={"format": "md"}).text


def test_a_point_that_is_stopped_while_its_sweep_is_read_says_why(http, begun, monkeypatch):
    read_measured, why = sweep_results.read_measured, Stop(reason="hopeless", by=2)

    async def stopping(state, stored):
        await Sweeps(state.client, state.settings, state.jobs).stop(stored, 0, why)
        return await read_measured(state, stored)

    found = begun(rounds=2)
    monkeypatch.setattr(sweep_results, "read_measured", stopping)
    now = http.get(found["urls"]["self"]).json()
    assert now["counts"] == {"total": 6, "queued": 4, "canceled": 2}
    assert [point["stopped"] and point["stopped"]["reason"] for point in now["points"]] == ["hopeless", None, None]


def test_auto_finds_the_largest_batch_that_fits_and_the_fastest(http, begun, work):
    found = begun(spec=TRAINING, grid={"params.batch_size": ["auto"]})
    assert found["axes"] == {"params.batch_size": [32, 64, 128, 256]}
    limit = "a batch of 512 is larger than the training set; at most 300"
    assert found["batch_sizes"] == [{"values": {}, "largest_that_fits": None, "fastest": None, "limit": limit}]
    times_s = {32: 2.0, 64: 3.0}

    def measured(claim):
        time_s = times_s[claim.spec.params["batch_size"]]
        return [a_metric("time_per_sample", by_run=[time_s, 1.01 * time_s], better="lower")]

    claims = work(3, failing=(128,), reason="out_of_memory", metrics=measured)
    assert [claim.spec.params["batch_size"] for claim in claims] == [32, 64, 128]
    url = found["urls"]["self"]
    now = eventually(lambda: (now := http.get(url).json())["status"] != "running" and now, 30, "a done sweep")
    assert (now["status"], work()) == ("succeeded", [])
    assert now["batch_sizes"] == [
        {"values": {}, "largest_that_fits": 64, "fastest": 32, "limit": "128 ran out of memory"}
    ]
    assert [point["status"] for point in now["points"]] == ["succeeded", "succeeded", "failed", "canceled"]
    assert [point["stopped"] and point["stopped"]["by"] for point in now["points"]] == [None, None, 2, 2]


def test_an_untrusted_batch_size_fits_but_is_never_the_fastest(http, begun, work):
    found = begun(spec=TRAINING, grid={"params.batch_size": ["auto"]})
    times_s = iter([1.0, 4.0, 3.0, 2.0])  # 32, which is untrusted; 64, 128 and 256

    def measured(claim):
        time_s = next(times_s)
        return [a_metric("time_per_sample", by_run=[time_s, 1.01 * time_s], better="lower")]

    def answered():
        [answer] = http.get(found["urls"]["self"]).json()["batch_sizes"]
        return answer["largest_that_fits"], answer["fastest"]

    work(1, metrics=measured, verdict=Verdict.UNTRUSTED)
    assert answered() == (32, None)
    conclusions = tables.sweep_conclusions(Sweep.model_validate(http.get(found["urls"]["self"]).json()))
    assert any("largest that fits 32, fastest unknown" in line for line in conclusions)
    work(metrics=measured)
    assert answered() == (256, 256)


def test_auto_leaves_out_batches_that_do_not_fit_by_the_estimate(http, begun):
    found = begun(spec={"workload": "resnet50", "device": "cpu"}, grid={"params.batch_size": ["auto"]})
    [answer] = found["batch_sizes"]
    assert answer["limit"].startswith("the job needs about ")
    assert found["axes"]["params.batch_size"][0] == 32


def _trained(seconds):
    """Trials with accuracies of 0.97, 0.98, 0.99 and so on, and these times to an accuracy of 0.98."""
    trials = [
        Trial(
            seed=seed,
            epochs=5,
            loss=0.1,
            highest_loss=0.1,
            accuracy=0.97 + 0.01 * seed,
            time_to_accuracy_s=each,
            epochs_to_accuracy=None if each is None else 3,
        )
        for seed, each in enumerate(seconds)
    ]
    data = DataOrigin(name="mnist", kind="real", train_samples=60000, test_samples=10000)
    epochs = [Epoch(index=0, time_s=1.0, loss=0.1)]
    return Training(epochs=epochs, seed=0, data=data, accuracy=0.98, trials=trials, target_accuracy=0.98)


def test_accuracies_and_the_times_to_one_are_compared_over_the_seeds(http, begun, work):
    """Both rounds have the same seeds, so they don't narrow the interval."""
    spec = TRAINING | {"params": {"train_samples": 300, "trials": 3, "target_accuracy": 0.98}}
    more = {"base": {"params.batch_size": 32}, "metric": "time_to_accuracy_0.98", "rounds": 2}
    found = begun(spec=spec, grid={"params.batch_size": [32, 64]}, **more)
    work(training=_trained([10.0, 11.0, 12.0]))
    base, point = http.get(found["urls"]["self"]).json()["points"]
    [metric] = [each for each in base["metrics"] if each["name"] == "time_to_accuracy_0.98"]
    assert (metric["value"], metric["unit"], metric["better"]) == (pytest.approx(11), "s", "lower")
    assert (metric["low"], metric["high"]) == (pytest.approx(11 - 2.484, abs=0.01), pytest.approx(13.484, abs=0.01))
    assert (point["ratio"]["value"], point["ratio"]["degrees_of_freedom"]) == (pytest.approx(1), pytest.approx(4))
    rows = http.get(found["urls"]["table"], params={"metric": "test_accuracy"}).json()
    assert [row["value"] for row in rows] == [pytest.approx(0.98)] * 2
    assert http.get(found["urls"]["plot"], params={"metric": "epochs_to_accuracy_0.98"}).status_code == 200


def test_an_accuracy_that_a_trial_did_not_reach_is_said(http, begun, work):
    spec = TRAINING | {"params": {"train_samples": 300, "trials": 2, "target_accuracy": 0.98}}
    more = {"base": {"params.batch_size": 32}, "metric": "time_to_accuracy_0.98"}
    found = begun(spec=spec, grid={"params.batch_size": [32, 64]}, **more)
    work(training=_trained([10.0, None]))
    base, point = http.get(found["urls"]["self"]).json()["points"]
    [metric] = [each for each in base["metrics"] if each["name"] == "time_to_accuracy_0.98"]
    reason = "1 of 2 trials didn't reach an accuracy of 0.98; a mean would leave them out"
    assert (metric["value"], metric["reason"]) == (None, reason)
    assert point["ratio"]["reason"] == f"there is no figure to compare: {reason}"
    assert http.get(found["urls"]["table"], params={"format": "md"}).text.count(reason) == 3


def test_a_sweep_is_canceled_as_a_whole(http, begun, work):
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


def test_sweeps_are_listed_newest_first(http, begun):
    ids = [begun()["id"] for _ in range(3)]
    first = http.get("/v1/sweeps", params={"limit": 2}).json()
    assert [each["id"] for each in first["data"]] == [ids[2], ids[1]]
    assert "points" not in first["data"][0]
    assert first["data"][0]["counts"] == {"total": 3, "queued": 3}
    following = http.get("/v1/sweeps", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert [each["id"] for each in following["data"]] == [ids[0]]


def test_a_rerun_of_a_job_is_not_in_its_sweep(http, begun):
    found = begun(spec=SPEC | {"labels": {"team": "x"}})
    again = http.post(f"/v1/jobs/{found['points'][0]['job']}/rerun").json()
    assert again["spec"]["labels"] == {"team": "x"}
    listed = http.get(found["urls"]["jobs"]).json()["data"]
    assert {job["id"] for job in listed} == {point["job"] for point in found["points"]}
    http.post(again["urls"]["cancel"])


def test_a_preset_may_be_changed(begun):
    spec = {"device": "cpu", "framework": "tensorflow", "params": {"epochs": 1}, "measure": {"processes": 1}}
    found = begun(spec=spec, grid=None, preset="mnist-batches")
    assert (found["preset"], found["workload"]) == ("mnist-batches", "mnist_cnn")
    assert found["axes"] == {"params.batch_size": [256, 512, 1024]}
    assert found["base"] is None
    again = begun(
        spec=spec, grid={"params.batch_size": [64, 128]}, preset="mnist-batches", base={"params.batch_size": 64}
    )
    assert [point["values"]["params.batch_size"] for point in again["points"]] == [64, 128]


def test_a_preset_of_one_axis_may_be_one_point(begun):
    found = begun(spec={"device": "cpu", "framework": "tensorflow"}, grid=None, preset="mnist-devices")
    assert ([point["values"] for point in found["points"]], found["base"]) == ([{"device": "cpu"}], None)


@pytest.mark.parametrize("name", presets())
def test_every_preset_runs_on_a_fleet_that_has_its_devices(name, http, post, fleet_of_all):
    answer = post(preset=name)
    assert answer.status_code == 202, answer.text
    found = answer.json()
    assert found["base"] == presets()[name].base
    assert len(found["points"]) > 1
    alone = post(preset=name, spec={"device": fleet_of_all.id})
    assert alone.status_code == 202, alone.text
