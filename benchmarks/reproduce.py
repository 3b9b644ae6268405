"""`python -m benchmarks.reproduce [NAME …]` runs the reference articles' experiments. It takes hours, and resumes.

The answers are kept beside the page, so that it can be written from them again. The page shows answers of other
machines until this one has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks import results
from benchmarks.experiments import EXPERIMENTS, Experiment
from benchmarks.jobs import MISSING, Answer, KeptJobs, metric_named, run_all
from benchmarks.report import RESULTS, prose, requested, table, write
from dyno.bench.devices.discovery import discover
from dyno.models.result import Result
from dyno.settings import Settings

STATE = RESULTS / "recorded" / "reproduction"
TITLE = "What the reference articles measured, measured here"


def main(names: Iterable[str], folder: Path = STATE) -> None:
    specs = {name: experiment.spec for name, experiment in EXPERIMENTS.items()}

    def publish(found: Mapping[str, Answer]) -> None:
        answers = KeptJobs(folder).so_far(specs, found)
        write("reproduction", TITLE, lines(EXPERIMENTS, answers), "Where this page was written")

    run_all({name: specs[name] for name in names}, KeptJobs(folder, of_this_machine), publish)


def of_this_machine(result: Result) -> bool:
    device = discover("cpu", Settings())
    return (result.device["model"], len(result.device["cores"])) == (device.model, len(device.cores))


def lines(experiments: Mapping[str, Experiment], found: Mapping[str, Answer]) -> list[str]:
    """A table for each article."""
    text = """The articles' figures are from 2018-19 and from Colab's machines; they are history, not a standard to
        reach. Ours were measured through Dyno's own API on the day in the row, with Dyno's defaults, or with Keras'
        defaults if an article leaves a setting open. Our times are medians of samples on full batches after warm-up,
        with the first epoch apart; an article's times are those that Keras printed. The brackets after a reference
        predictor say how far the trained model's figure is from it. `better_than` says by how much the model's errors
        are lower than those of the reference predictor, over all signals or characters. Each cell ends with the verdict
        on the times and their warnings: don't compare a time with NOISY_NEIGHBOUR or NO_STEADY_STATE. Verdicts and
        warnings are those of the version that ran: NOISY (an interval wider than 1 %) no longer exists, and POW2_ONLY
        and BATCH_SMALL appear at submit only. An accuracy over several seeds has Student's interval over the seeds,
        other accuracies have Wilson's over the test set."""
    page, head = prose(text), ("experiment", "the article", "here", "data (train + test)", "reduced")
    for article in dict.fromkeys(experiment.article for experiment in experiments.values()):
        rows = [_row(each, found[name]) for name, each in experiments.items() if each.article == article]
        page += [f"## {article.title} ({article.year})", "", *table(head, rows)]
    return page


def _row(experiment: Experiment, answer: Answer) -> tuple[object, ...]:
    result = answer.result
    if result is not None:
        here = "; ".join(_here(experiment, result, answer.took_s or 0.0))
    elif answer.reason == MISSING:
        here = f"skipped, this machine hasn't the data: {answer.message}"
    else:
        here = str(answer.message)
    origin = "–" if result is None else results.data(result.training)
    return experiment.what, "; ".join(experiment.figures), here, origin, experiment.reduced or "nothing"


def _here(experiment: Experiment, result: Result, took_s: float) -> Iterator[str]:
    for name in experiment.shows:
        yield f"{name} {results.figure(metric_named(result, name))}"
    if result.training is not None:
        yield from filter(
            None,
            (results.epochs(result.training), results.quality(result.training), results.callbacks(result.training)),
        )
    for name in experiment.details:
        if name in result.details:
            yield f"{name} {results.detail(result.details[name])}"
    yield f"peak memory {results.memory(result)}"
    origin = ", ".join(describe(result) for describe in (results.date, results.hardware, results.framework))
    yield f"{origin}, {took_s:.0f} s in all; {results.verdict(result)}"


if __name__ == "__main__":
    main(requested(EXPERIMENTS))
