"""docs/results/reproduction.md: each article's figure beside ours, on what, and what was reduced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.kept import MISSING, Answer
from benchmarks.reproduce.experiments import Experiment
from benchmarks.results import (
    data,
    detail,
    epochs,
    figure,
    fired,
    framework,
    hardware,
    memory,
    named,
    quality,
    taken,
    verdict,
)
from dyno.models.result import Result
from dyno.workloads.references import Article


def lines(experiments: Mapping[str, Experiment], found: Mapping[str, Answer]) -> list[str]:
    """A section for each article, with a table of its experiments."""
    articles = dict.fromkeys(experiment.article for experiment in experiments.values())
    return [
        "The articles' figures are of 2018-19 and of machines lent by Colab; they are history and no pass mark.",
        "Ours were taken through Dyno's own API, with its defaults (Keras' for what an article leaves open), on",
        "the day that stands in the row. A time is the median of samples on full batches, warmed up, the first",
        "epoch apart; an article's is what Keras printed. In brackets after a baseline: how far the trained",
        "model's figure lies from it; `better_than`: by how much its errors are lower, over all signals or",
        "characters. Last in each cell the verdict on the times, with what speaks against them: NOISY_NEIGHBOUR",
        "says that the machine did other work as well, and then a time is not to be compared, nor agrees with the",
        "epochs beside it; NO_STEADY_STATE that the times still moved. An accuracy over several seeds has",
        "Student's interval over them, others have Wilson's over the test set.",
        *(line for article in articles for line in _section(article, experiments, found)),
    ]


def _section(article: Article, experiments: Mapping[str, Experiment], found: Mapping[str, Answer]) -> Iterable[str]:
    yield from (
        "",
        f"## {article.title} ({article.year})",
        "",
        "| experiment | the article | here | data (train + test) | reduced |",
    )
    yield "|---|---|---|---|---|"
    for name, experiment in experiments.items():
        if experiment.article == article:
            yield _row(experiment, found[name])


def _row(experiment: Experiment, answer: Answer) -> str:
    result = answer.result
    here = _not_run(answer) if result is None else "; ".join(_here(experiment, result, answer.took_s or 0.0))
    learnt_from = "–" if result is None else data(result.training)
    cells = (experiment.what, "; ".join(experiment.figures), here, learnt_from, experiment.reduced or "nothing")
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"


def _not_run(answer: Answer) -> str:
    if answer.reason == MISSING:
        return f"skipped, this machine hasn't the data: {answer.message}"
    return str(answer.message)


def _here(experiment: Experiment, result: Result, took_s: float) -> Iterable[str]:
    for name in experiment.shows:
        yield f"{name} {figure(named(result, name))}"
    if result.training is not None:
        yield epochs(result.training)
        yield quality(result.training)
        if told := fired(result.training):
            yield told
    for name in experiment.details:
        if name in result.details:
            yield f"{name} {detail(result.details[name])}"
    yield f"peak memory {memory(result)}"
    yield f"{taken(result)}, {hardware(result)}, {framework(result)}, {took_s:.0f} s in all; {verdict(result)}"
