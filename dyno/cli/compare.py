"""`dyno compare`: results of the same work beside each other, or two specs run in turns."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dyno import render
from dyno.cli.app import AsJson, Url, app, console, errors, exit_codes, show
from dyno.cli.folders import expanded
from dyno.cli.waiting import patient, queued, waiting
from dyno.client import DEFAULT_URL, Client
from dyno.comparison import PAIRS, Comparative, Comparison
from dyno.exits import OfCommand
from dyno.spec import CONFIDENCE, MARGIN

_BARS = "A file to save the bars to, as SVG."
_JOB = re.compile("job_[0-9A-Z]{26}")


@app.command()
@exit_codes
def compare(
    first: Annotated[str, typer.Argument(help="What the others are compared with: a job, or a file with a spec.")],
    others: Annotated[list[str], typer.Argument(help="Jobs of the same work; or one file with a spec, to run both.")],
    metric: Annotated[str | None, typer.Option(help="A metric of them; the workload's first if not given.")] = None,
    margin: Annotated[float, typer.Option(help="What counts as the same: 0.02 is ±2 %.")] = MARGIN,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = CONFIDENCE,
    pairs: Annotated[int, typer.Option(help="Of specs: runs of each, in turns; an even number.")] = PAIRS,
    control: Annotated[bool, typer.Option(help="Of specs: run the first twice, to show the noise.")] = True,
    bars: Annotated[Path | None, typer.Option(dir_okay=False, callback=expanded, help=_BARS)] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Compare results with the first of them, or run two specs in turns. Exit code 5 where any is SLOWER.

    A spec is the body of POST /v1/jobs, as a JSON file. Ctrl-C cancels the job that runs them.
    """
    names = [first, *others]
    options: dict[str, Any] = {"metric": metric, "margin": margin, "confidence": confidence}
    with patient(url) as client:
        if any(_JOB.fullmatch(name) for name in names):
            found = client.compare(names, **options)
        else:
            found = _run(
                client, [_spec(name) for name in names], as_json, options | {"pairs": pairs, "control": control}
            )
        picture = None if bars is None else client.bars(found.id)
    if bars is not None and picture is not None:
        bars.write_text(picture, encoding="utf-8")
    show(found.model_dump(mode="json", by_alias=True), as_json, lambda: render.comparison(console, found))
    if any(each.ratio is not None and each.ratio.verdict is Comparative.SLOWER for each in found.results):
        raise typer.Exit(OfCommand.SLOWER)


def _spec(name: str) -> dict[str, Any]:
    try:
        document = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{name} is neither a job nor a file with a spec: {error}") from error
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{name} holds no JSON object")
    return document


def _run(client: Client, specs: list[dict[str, Any]], as_json: bool, options: dict[str, Any]) -> Comparison:
    if len(specs) != 2:
        raise typer.BadParameter("two specs can be run in turns, no more")
    begun = queued(client, partial(client.begin_comparison, *specs, **options), lambda begun: begun.job)
    with waiting(client, begun.job):
        with render.following(errors if as_json else console) as follow:
            client.wait(begun.job, follow)
        return client.comparison(begun.id)
