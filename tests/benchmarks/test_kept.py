"""Long benchmarks go on where they were ended: one real Dyno, tiny jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import files
from benchmarks import kept as module
from benchmarks.files import Spec
from benchmarks.kept import MISSING, Answer, Kept, answers, made_here, so_far
from benchmarks.reproduce.experiments import Experiment
from benchmarks.reproduce.page import lines as reproduction
from benchmarks.results import figure, framework, memory, named
from dyno.devices.device import Device
from dyno.models.result import Result
from dyno.workloads.references import Article
from tests.numpy_runners import ON_NUMPY

TINY: Spec = {"workload": "matmul", "params": {"n": 64}, "measure": {"processes": 1, "min_samples": 1, "min_s": 0}}
REFUSED: Spec = {"workload": "matmul", "params": {"n": 0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("build") / "state"


@pytest.fixture(scope="module")
def found(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """What two jobs answered, before somebody pressed Ctrl-C."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DYNO_RUN_DIR", str(tmp_path_factory.mktemp("run")))  # no other Dyno here holds these jobs up
        for name, value in ON_NUMPY.items():
            patch.setenv(name, value)
        going = answers({"refused": REFUSED, "first": TINY, "second": TINY}, Kept(folder), "cpu:0-0")
        found = dict([next(going), next(going)])
        going.close()
    return found


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(device: str) -> None:
        raise AssertionError("a Dyno is started for what is there already")

    monkeypatch.setattr(module, "fleet", start)


def test_a_job_that_is_done_is_kept_and_nothing_else(found: dict[str, Answer], folder: Path) -> None:
    assert found["first"].result is not None
    assert [path.name for path in folder.iterdir()] == ["first.json"]


def test_a_refusal_says_why_and_stops_nothing(found: dict[str, Answer]) -> None:
    assert (found["refused"].result, found["refused"].reason) == (None, "invalid-spec")
    assert "/params/n" in str(found["refused"].message)


@pytest.mark.usefixtures("nothing_starts")
def test_the_next_call_takes_what_was_kept(found: dict[str, Answer], folder: Path) -> None:
    assert dict(answers({"first": TINY}, Kept(folder))) == {"first": found["first"]}


@pytest.mark.usefixtures("nothing_starts")
def test_the_next_call_does_what_is_missing(found: dict[str, Answer], folder: Path) -> None:
    going = answers({"first": TINY, "second": TINY}, Kept(folder))
    assert next(going)[0] == "first"
    with pytest.raises(AssertionError, match="is started"):
        next(going)


@pytest.mark.usefixtures("nothing_starts", "found")
def test_what_no_longer_stands_is_done_again(folder: Path) -> None:
    def stands(result: Result) -> bool:
        return result.workload != "matmul"

    with pytest.raises(AssertionError, match="is started"):
        next(answers({"first": TINY}, Kept(folder), stands=stands))


def test_a_result_is_of_this_machine_by_its_device_and_its_method_not_by_how_an_id_was_made(
    found: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = found["first"].result
    assert result is not None
    monkeypatch.setattr(files, "discover", lambda kind, settings: Device.model_validate(result.device))
    assert made_here(result.model_copy(update={"hardware_id": "hw_old"}))
    assert not made_here(result.model_copy(update={"device": result.device | {"model": "another"}}))
    assert not made_here(result.model_copy(update={"method_version": "0"}))


@pytest.mark.usefixtures("nothing_starts")
def test_the_page_has_nothing_of_another_machine(found: dict[str, Answer], folder: Path) -> None:
    specs = {"first": TINY}
    assert so_far(specs, {}, Kept(folder), lambda result: False)["first"].message == "not run yet"
    assert so_far(specs, found, Kept(folder), lambda result: False)["first"] == found["first"]


def test_what_was_kept_answers_no_other_spec(found: dict[str, Answer], folder: Path) -> None:
    assert Kept(folder).get("first", {**TINY, "seed": 1}) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"spec": {}}', json.dumps({"spec": TINY, "result": {}, "took_s": 1})])
def test_what_cannot_be_read_is_done_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "first.json").write_text(text)
    assert Kept(tmp_path).get("first", TINY) is None


def test_the_page_is_made_of_what_there_is(found: dict[str, Answer], folder: Path) -> None:
    specs = {"first": TINY, "second": TINY}
    shown = so_far(specs, {}, Kept(folder))
    assert shown["first"] == found["first"]
    assert (shown["second"].result, shown["second"].message) == (None, "not run yet")


def test_a_row_lays_the_article_s_figures_beside_ours(found: dict[str, Answer]) -> None:
    of = Article("An article", "2019")
    article = Experiment(of, "products", ("GPU 15.70",), dict(TINY), ("throughput",), "64 instead of 4096")
    text = "\n".join(reproduction({"first": article, "second": article}, found | {"second": _without_data()}))
    result = found["first"].result
    assert result is not None
    assert "## An article (2019)" in text
    ours = f"throughput {figure(named(result, 'throughput'))}; peak memory {memory(result)}; "
    assert f"| products | GPU 15.70 | {ours}" in text
    assert framework(result).startswith("tensorflow 2.")
    assert text.count("| 64 instead of 4096 |") == 2
    assert "skipped, this machine hasn't the data: no CIFAR-10 in / anywhere" in text


def _without_data() -> Answer:
    return Answer(reason=MISSING, message="no CIFAR-10 in |\nanywhere")
