"""Comparisons of two specs, over HTTP and by the command; a worker without a device ends their job."""

import json
from collections.abc import Callable

import pytest

from dyno.client import Client, ComparisonNotMade
from dyno.models.comparison import Comparative, UnfinishedComparison
from dyno.models.job import Job
from dyno.models.result import Precision
from dyno.models.spec import InterleavedSpec
from dyno.store.leases import Leases
from dyno.store.redis import sync_client
from service.problems import MEDIA_TYPE
from tests.comparisons import a_metric, of_metrics, times
from tests.service.workers import claim_of

ONE = {"workload": "matmul", "params": {"n": 64, "repeats": 10}, "device": "cpu"}
TWO = {"workload": "matmul", "params": {"n": 64, "repeats": 20}}
RATES = [100.0, 101.0, 99.0, 100.5]
LIKE = [100.5, 100.5, 99.5, 100.0]

End = Callable[..., None]


@pytest.fixture
def post(http, offered):
    """Submit a comparison of ONE and TWO; a job still queued at the end is canceled."""
    jobs = []

    def one(headers=None, **body):
        answer = http.post("/v1/comparisons", json={"specs": [ONE, TWO], "pairs": 4} | body, headers=headers)
        jobs.extend([answer.json()["job"]] if answer.status_code == 202 else [])
        return answer

    yield one
    for job in jobs:
        http.post(f"/v1/jobs/{job}/cancel")


@pytest.fixture
def end(settings, offered):
    """End the oldest job as a worker would: it succeeds, with the second spec `factor` times as fast as the first."""
    with sync_client(settings) as client:
        leases = Leases(client, settings)

        def one(factor=1.0, **second):
            claim = claim_of(leases, offered)

            def arm(by_run, **result):
                return of_metrics([a_metric(by_run=by_run)], **result).model_copy(update={"job": claim.job_id})

            arms = [arm(times(factor, LIKE), **second), arm(LIKE)]
            assert leases.finish(claim, "succeed", result=arm(RATES).model_copy(update={"arms": arms}))

        yield one


def refused(answer):
    assert answer.headers["content-type"] == MEDIA_TYPE
    problem = answer.json()
    return answer.status_code, problem["code"], [error["pointer"] for error in problem.get("errors") or []]


def test_two_specs_are_queued_as_one_job_and_compared_when_it_is_done(http, post, end):
    answer = post()
    begun = answer.json()
    assert (answer.status_code, begun["kind"], begun["status"]) == (202, "interleaved", "running")
    assert answer.headers["location"] == begun["urls"]["self"] == f"/v1/comparisons/{begun['id']}"
    assert http.get(begun["urls"]["self"]).json() == begun
    bars = http.get(begun["urls"]["bars"])
    assert (bars.status_code, bars.json()["code"]) == (409, "result-not-ready")
    end(1.5)
    made = http.get(begun["urls"]["self"]).json()
    assert (made["id"], made["kind"], made["status"], made["job"]) == (begun["id"], "interleaved", "done", begun["job"])
    assert made["results"][1]["ratio"]["verdict"] == "FASTER"
    assert made["control"]["value"] == pytest.approx(1, abs=0.01)
    assert "second" in http.get(begun["urls"]["bars"]).text


def test_a_canceled_comparison_cannot_be_drawn(http, post):
    begun = post().json()
    http.post(f"/v1/jobs/{begun['job']}/cancel").raise_for_status()
    assert http.get(begun["urls"]["self"]).json()["status"] == "canceled"
    bars = http.get(begun["urls"]["bars"])
    assert (bars.status_code, bars.json()["code"]) == (409, "no-result")


def test_the_job_has_both_specs(http, post):
    job = Job.model_validate(http.get(f"/v1/jobs/{post(margin=0.1).json()['job']}").json())
    assert isinstance(job.spec, InterleavedSpec)
    assert (job.spec.pairs, job.spec.control, job.spec.margin, job.spec.metric) == (4, True, 0.1, "throughput")
    assert job.spec.against.params["repeats"] == 20
    assert job.spec.against.device == job.spec.device
    assert {arm.measure.processes.max for arm in job.spec.arms} == {4}
    assert job.spec.most_runs == 12
    assert job.id in [row["id"] for row in http.get("/v1/jobs").json()["data"]]


def test_the_same_key_makes_one_job(post):
    first, again = (post({"Idempotency-Key": "k-1"}) for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert refused(post({"Idempotency-Key": "k-1"}, pairs=6))[1] == "idempotency-key-reused"


def test_variants_of_different_precision_are_different_work(http, post, end):
    begun = post().json()
    end(precision=Precision(requested="float32", observed="tf32", rel_error=3e-4))
    found = http.get(begun["urls"]["self"]).json()
    assert (found["status"], found["same_work"]) == ("done", False)
    assert {"field": "/precision/observed", "values": ["float32", "tf32"]} in found["differences"]


@pytest.mark.parametrize("name", ["cmp_1", f"cmp_{'0' * 26}"])
def test_the_job_of_a_single_spec_is_not_a_comparison(http, submitted, name):
    own = f"cmp_{submitted().removeprefix('job_')}"
    assert [http.get(f"/v1/comparisons/{each}").status_code for each in (name, own)] == [404, 404]


def test_specs_of_different_work_are_compared_by_what_both_sample_in_one_unit(http, post):
    answer = post(specs=[ONE, TWO | {"params": {"n": 65, "dtype": "bfloat16"}}])
    assert (answer.status_code, answer.json()["metric"]) == (202, "throughput")
    for alike in (ONE | {"params": {**ONE["params"], "dtype": "bfloat16"}}, ONE | {"seed": 1}):
        assert post(specs=[ONE, alike], metric="execution_time").status_code == 202


def test_specs_without_a_shared_metric_are_refused_before_queueing(http, post):
    before = http.get("/v1/jobs").json()["data"][:1]
    answer = post(specs=[ONE, {"workload": "mnist_cnn"}])
    assert (answer.status_code, answer.json()["code"]) == (409, "not-comparable")
    fields = {each["field"]: each["values"] for each in answer.json()["differing"]}
    assert fields["/workload"] == ["matmul", "mnist_cnn"]
    assert fields["/metrics"][0] == ["throughput in FLOP/s", "execution_time in s"]
    assert http.get("/v1/jobs").json()["data"][:1] == before


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"specs": []}, ["/specs"]),
        ({"specs": [ONE, 1]}, ["/specs/1"]),
        ({"specs": [ONE, TWO, TWO]}, ["/specs"]),
        ({"specs": [ONE | {"seed": -1}, TWO | {"params": {}, "x": 1}]}, ["/specs/0/seed", "/specs/1/x"]),
        ({"specs": [ONE, TWO | {"params": {"n": 0}}]}, ["/specs/1/params/n"]),
        ({"specs": [ONE | {"device": "abacus"}, TWO]}, ["/specs/0/device"]),
        ({"specs": [ONE, TWO | {"device": "gpu", "priority": "high"}]}, ["/specs/1/device", "/specs/1/priority"]),
        ({"specs": [ONE | {"measure": {"processes": 3}}, TWO]}, ["/specs/0/measure/processes"]),
        ({"pairs": 3, "control": 1, "margin": 0}, ["/control", "/margin", "/pairs"]),
        ({"metric": "beauty"}, ["/metric"]),
        ({"metric": "execution_time"}, ["/metric"]),
    ],
)
def test_every_wrong_field_of_both_specs_is_named(post, body, pointers):
    status, code, found = refused(post(**body))
    assert (status, code, sorted(found)) == (422, "invalid-comparison", pointers)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("throughput_8x8x8", None),
        ("throughput_9x9x9", "isn't a metric that the runs of both specs sample"),
        ("cold_throughput", "isn't a metric that the runs of both specs sample"),
    ],
)
def test_a_case_is_compared_by_its_own_metric(post, metric, said):
    sizes = [each | {"params": each["params"] | {"sizes": [64, 8], "n": 4096}} for each in (ONE, TWO)]
    answer = post(specs=sizes, metric=metric)
    if said is None:
        assert answer.status_code == 202
    else:
        assert said in answer.json()["errors"][0]["detail"]


def test_a_problem_of_one_spec_points_at_that_spec(post):
    asked = [ONE, TWO | {"params": {"n": 1 << 20}}]
    assert refused(post(specs=[{**each, "params": {"n": 1 << 20}} for each in asked]))[1:] == (
        "does-not-fit",
        ["/specs/0/params/n"],
    )
    assert refused(post(specs=[ONE, TWO | {"framework": "jax"}]))[1:] == ("unsupported", ["/specs/1/framework"])


def test_all_runs_together_must_fit_the_timeout(post):
    asked = [ONE | {"timeout_s": 30}, TWO]
    assert post(specs=asked).status_code == 202
    status, code, pointers = refused(post(specs=asked, pairs=100))
    assert (status, code) == (422, "exceeds-timeout")
    assert pointers[0].startswith("/specs/0/")


def test_the_client_waits_for_its_comparison(http, offered, end):
    with Client(str(http.base_url)) as client:
        begun = client.begin_comparison(ONE, TWO, pairs=4)
        with pytest.raises(ComparisonNotMade, match=begun.job) as unfinished:
            client.comparison(begun.id)
        assert isinstance(unfinished.value.comparison, UnfinishedComparison)
        seen = []

        def ended(job):
            seen.append(job)
            if len(seen) == 1:  # of the second job, which is queued behind the first
                end()
                end(0.5)

        made = client.compare_specs(ONE, TWO, ended, pairs=4)
    assert made.results[1].ratio is not None
    assert made.results[1].ratio.verdict is Comparative.SLOWER
    assert seen[-1].done


def test_the_command_takes_files_with_specs(dyno, offered, end, tmp_path, monkeypatch):
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file, spec in zip(files, (ONE, TWO), strict=True):
        file.write_text(json.dumps(spec))
    began = Client.begin_comparison

    def begin(*asked, **options):
        begun = began(*asked, **options)
        end(0.5)
        return begun

    monkeypatch.setattr(Client, "begin_comparison", begin)
    asked = ["compare", *map(str, files), "--pairs", "4"]
    told = dyno(*asked)
    assert told.exit_code == 5, told.output
    for words in ("first", "second", "SLOWER", "control, the first against itself"):
        assert words in told.output
    backwards = dyno(*asked, "--base", str(files[1]))
    assert backwards.exit_code == 2
    assert "name the base's file first" in backwards.output
    wrong = dyno("compare", str(files[0]), str(tmp_path / "none.json"))
    assert wrong.exit_code == 2
    assert "is neither a job id nor a readable" in wrong.output
