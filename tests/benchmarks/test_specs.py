"""The long benchmarks ask for nothing that a Dyno would refuse."""

from __future__ import annotations

import pytest

from benchmarks import workloads
from benchmarks.experiments import EXPERIMENTS
from dyno.models.spec import Spec
from dyno.workloads import registry, resolve

SPECS = {name: experiment.spec for name, experiment in EXPERIMENTS.items()}
SPECS |= workloads.specs(workloads.PARAMS, ["tensorflow", "jax"])


@pytest.mark.parametrize("name", SPECS)
def test_each_spec_is_one_that_its_workload_takes(name: str) -> None:
    assert resolve(Spec.model_validate(SPECS[name], strict=True)).spec.workload in registry()


def test_every_workload_of_an_article_has_an_experiment() -> None:
    of_articles = {name for name, workload in registry().items() if workload.references}
    assert of_articles <= {experiment.spec["workload"] for experiment in EXPERIMENTS.values()}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_shows_metrics_that_its_workload_has(name: str) -> None:
    experiment = EXPERIMENTS[name]
    has = {metric.name for metric in registry()[str(experiment.spec["workload"])].metrics}
    has |= {f"cold_{name}" for name in has}
    further_cases = tuple(f"{name}_" for name in has)
    assert [shown for shown in experiment.shows if shown not in has and not shown.startswith(further_cases)] == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_on_a_data_set_takes_no_other_than_the_real_one(name: str) -> None:
    params = EXPERIMENTS[name].spec["params"]
    assert isinstance(params, dict)
    takes_data = "data" in registry()[str(EXPERIMENTS[name].spec["workload"])].params.model_fields
    assert params.get("data") == ("real" if takes_data else None)
