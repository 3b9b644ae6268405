"""What a job makes of two specs whose runs took turns, with figures whose ratios are known."""

from __future__ import annotations

from typing import Any

import pytest

from dyno.errors import NotComparable
from dyno.measure.comparable import check_specs
from dyno.measure.interleaved import compare_arms
from dyno.measure.warnings import warning
from dyno.models.comparison import Comparative, Comparison, comparison_of, job_of
from dyno.models.job import Job
from dyno.models.result import Precision, Result, Verdict
from dyno.models.spec import InterleavedSpec, Spec
from tests.comparisons import a_metric, an_entry, of_metrics, times

HOW = frozenset({"repeats"})
DRIFTING = [100.0, 99.0, 98.0, 97.0, 96.0, 95.0]
NOISE = [1.001, 0.999, 1.0005, 0.9995, 1.002, 0.998]


def rates(factor: float) -> list[float]:
    """Of runs on a machine that slows down, each beside its neighbour but for a little noise."""
    return [factor * level * noise for level, noise in zip(DRIFTING, NOISE, strict=True)]


def made(second: Result, control: Result | None = None, confidence: float = 0.95, **first: Any) -> Comparison:
    one = Spec(workload="matmul", params={"n": 64, "repeats": 1})
    two = one.model_copy(update={"params": {"n": 64, "repeats": 2}, "framework": "jax"})
    asked: dict[str, Any] = {"pairs": 6, "metric": "throughput", "confidence": confidence}
    spec = InterleavedSpec(**dict(one), against=two, control=control is not None, **asked)
    entry = an_entry(DRIFTING, **first)
    job: Job = entry.job.model_copy(update={"spec": spec})
    arms = [second] if control is None else [second, control]
    return compare_arms(job, spec, entry.result.model_copy(update={"arms": arms}), HOW)


def test_a_worker_that_knows_no_turns_has_compared_nothing() -> None:
    entry = an_entry(DRIFTING)
    spec = InterleavedSpec(
        workload="matmul", against=Spec(workload="matmul"), pairs=6, control=False, metric="throughput"
    )
    alone = entry.result.model_copy(update={"arms": []})
    with pytest.raises(NotComparable, match="knows no turns"):
        compare_arms(entry.job.model_copy(update={"spec": spec}), spec, alone, HOW)


def a_result(by_run: list[float], **result: Any) -> Result:
    return of_metrics([a_metric(by_run=by_run)], **result)


def test_the_ratio_is_that_of_neighbouring_runs_whatever_drifts() -> None:
    found = made(a_result(rates(1.03)), a_result(rates(1.0)))
    ratio = found.results[1].ratio
    assert ratio is not None
    assert ratio.verdict is Comparative.FASTER
    assert ratio.value == pytest.approx(1.03, rel=1e-3)
    assert ratio.degrees_of_freedom == 4
    assert (found.kind, found.status, found.id) == ("interleaved", "done", comparison_of(str(found.job)))
    assert job_of(found.id) == found.job
    assert [each.arm for each in found.results] == ["first", "second"]


def test_the_control_tells_the_noise_and_nothing_else_is_noted() -> None:
    found = made(a_result(rates(1.03)), a_result(rates(1.0)))
    assert found.control is not None
    assert found.control.verdict is Comparative.SAME
    assert found.notes == []
    assert made(a_result(rates(1.03))).control is None


def test_a_control_that_differs_from_itself_is_noted() -> None:
    found = made(a_result(rates(1.03)), a_result(rates(1.1)))
    assert found.control is not None
    assert found.control.verdict is Comparative.FASTER
    assert "no ratio for real" in found.notes[0]
    assert "at 95 %, one of 20 does" in found.notes[0]


def test_how_often_a_control_differs_by_chance_is_told_for_the_confidence_asked_for() -> None:
    found = made(a_result(rates(1.03)), a_result(rates(1.1)), confidence=0.5)
    assert "at 50 %, one of 2 does" in found.notes[0]


def test_an_untrusted_arm_is_named() -> None:
    found = made(a_result(rates(1.0), verdict=Verdict.UNTRUSTED, warnings=[warning("ABOVE_PEAK")]))
    assert found.verdict is Verdict.UNTRUSTED
    assert "the second spec is untrusted (ABOVE_PEAK)" in found.notes[0]


def test_what_was_to_differ_is_told() -> None:
    differences = {each.field: each.values for each in made(a_result(rates(1.0))).differences}
    assert differences == {"/params/repeats": [1, 2], "/framework": ["tensorflow", "jax"]}


def test_what_ran_in_another_precision_is_not_comparable() -> None:
    with pytest.raises(NotComparable, match="/precision/observed"):
        made(a_result(rates(1.0), precision=Precision(requested="float32", observed="tf32", rel_error=3e-4)))


def test_it_is_json_that_reads_back_as_it_was() -> None:
    found = made(a_result(times(1.0, DRIFTING)), a_result(rates(1.0)))
    assert Comparison.model_validate_json(found.model_dump_json(by_alias=True)) == found


def test_specs_of_other_work_are_refused_with_every_field() -> None:
    one = Spec(workload="matmul", params={"n": 64, "repeats": 1, "dtype": "float32"})
    check_specs(one, one.model_copy(update={"params": one.params | {"repeats": 2}, "framework": "jax", "seed": 1}), HOW)
    other = Spec(workload="mnist_cnn", params={"n": 65, "repeats": 2, "dtype": "float32"})
    with pytest.raises(NotComparable) as refused:
        check_specs(one, other, HOW)
    assert refused.value.fields == {"/workload": ["matmul", "mnist_cnn"], "/params/n": [64, 65]}
