"""Long benchmarks resume: one real Dyno, tiny jobs."""

from __future__ import annotations

import json

import pytest

from benchmarks import files, jobs
from benchmarks.experiments import Experiment
from benchmarks.files import Spec
from benchmarks.jobs import MISSING, Answer, KeptJobs, made_here, metric_named
from benchmarks.reproduce import lines as reproduction
from benchmarks.results import figure, framework, memory
from dyno.bench.references import Article
from dyno.models.device import Device
from tests.numpy_runners import ON_NUMPY

TINY: Spec = {"workload": "matmul", "params": {"n": 64}, "measure": {"processes": 1, "min_samples": 1, "min_s": 0}}
REFUSED: Spec = {"workload": "matmul", "params": {"n": 0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("build") / "state"


@pytest.fixture(scope="module")
def found(folder, tmp_path_factory):
    """The answers of two jobs, before Ctrl-C."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_RUN_DIR", str(tmp_path_factory.mktemp("run")))  # no other Dyno here holds these jobs up
        for name, value in ON_NUMPY.items():
            patch.setenv(name, value)
        going = KeptJobs(folder).answers({"refused": REFUSED, "first": TINY, "second": TINY}, "cpu:0-0")
        found = dict([next(going), next(going)])
        going.close()
    return found


@pytest.fixture
def nothing_starts(monkeypatch):
    def start(device):
        raise AssertionError("a Dyno was started")

    monkeypatch.setattr(jobs, "own_dyno", start)


def test_a_finished_job_is_kept_and_a_refused_one_says_why(found, folder):
    assert found["first"].result is not None
    assert [path.name for path in folder.iterdir()] == ["first.json"]
    assert (found["refused"].result, found["refused"].reason) == (None, "invalid-spec")
    assert "/params/n" in str(found["refused"].message)


@pytest.mark.usefixtures("nothing_starts")
def test_the_next_call_runs_only_what_is_missing(found, folder):
    going = KeptJobs(folder).answers({"first": TINY, "second": TINY})
    assert next(going) == ("first", found["first"])
    with pytest.raises(AssertionError, match="was started"):
        next(going)


@pytest.mark.usefixtures("nothing_starts")
def test_a_result_that_is_no_longer_valid_is_measured_again_and_on_no_page(found, folder):
    kept = KeptJobs(folder, lambda result: False)
    assert kept.so_far({"first": TINY}, {})["first"].message == "not run yet"
    assert kept.so_far({"first": TINY}, found)["first"] == found["first"]
    with pytest.raises(AssertionError, match="was started"):
        next(kept.answers({"first": TINY}))


def test_a_result_is_of_this_machine_by_its_device_and_its_method_not_by_its_hardware_id(found, monkeypatch):
    result = found["first"].result
    assert result is not None
    monkeypatch.setattr(files, "discover", lambda kind, settings: Device.model_validate(result.device))
    assert made_here(result.model_copy(update={"hardware_id": "hw_old"}))
    assert not made_here(result.model_copy(update={"device": result.device | {"model": "another"}}))
    assert not made_here(result.model_copy(update={"method_version": "0"}))


@pytest.mark.usefixtures("found")
def test_a_kept_answer_is_of_no_other_spec(folder):
    assert KeptJobs(folder).get("first", {**TINY, "seed": 1}) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"spec": {}}', json.dumps({"spec": TINY, "result": {}, "took_s": 1})])
def test_an_unreadable_file_is_ignored(tmp_path, text):
    (tmp_path / "first.json").write_text(text)
    assert KeptJobs(tmp_path).get("first", TINY) is None


def test_a_row_has_the_article_s_figures_beside_ours(found):
    of = Article("An article", "2019")
    article = Experiment(of, "products", ("GPU 15.70",), dict(TINY), ("throughput",), "64 instead of 4096")
    missing = Answer(reason=MISSING, message="no CIFAR-10 in |\nanywhere")
    text = "\n".join(reproduction({"first": article, "second": article}, found | {"second": missing}))
    result = found["first"].result
    assert result is not None
    assert "## An article (2019)" in text
    ours = f"throughput {figure(metric_named(result, 'throughput'))}; peak memory {memory(result)}; "
    assert f"| products | GPU 15.70 | {ours}" in text
    assert framework(result).startswith("tensorflow 2.")
    assert text.count("| 64 instead of 4096 |") == 2
    assert "skipped, this machine hasn't the data: no CIFAR-10 in / anywhere" in text
