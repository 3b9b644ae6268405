"""The calls that compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from pydantic import Field, JsonValue, RootModel

from dyno.client.call import call
from dyno.client.errors import ComparisonNotMade
from dyno.client.jobs import AnySpec, Progress, document, waited
from dyno.client.paths import in_path
from dyno.client.steps import Steps, asked, once, patiently, text_of
from dyno.comparison import Comparison, UnfinishedComparison
from dyno.spec import CONFIDENCE, MARGIN


class AnyComparison(RootModel[Annotated[Comparison | UnfinishedComparison, Field(discriminator="status")]]):
    """Made, or not yet, or not any more."""


class ComparisonCalls:
    """Of both clients."""

    @call
    def compare(
        self,
        job_ids: Sequence[str],
        *,
        metric: str | None = None,
        margin: float = MARGIN,
        confidence: float = CONFIDENCE,
    ) -> Steps[Comparison]:
        """The results of these jobs, each beside the first's. Raises Refused: `not-comparable` says what differs."""
        wanted = {"jobs": list(job_ids), "metric": metric, "margin": margin, "confidence": confidence}
        return asked(Comparison, "POST", "/v1/comparisons", json=wanted)

    @call
    def compare_specs(
        self, /, first: AnySpec, second: AnySpec, progress: Progress | None = None, **options: JsonValue
    ) -> Steps[Comparison]:
        """Run both in turns on one device, wait, and compare them; options as in `begin_comparison`.

        Raises Refused (`not-comparable` says what differs), and ComparisonNotMade where the job fails or is canceled.
        """
        begun = yield from begun_comparison(first, second, options)
        yield from waited(begun.job, progress)
        return (yield from patiently(partial(comparison_of, begun.id)))

    @call
    def begin_comparison(
        self, /, first: AnySpec, second: AnySpec, *, idempotency_key: str | None = None, **options: JsonValue
    ) -> Steps[UnfinishedComparison]:
        """Queue the job that runs both in turns. Options, as in the API: pairs, control, metric, margin, confidence."""
        return begun_comparison(first, second, options, idempotency_key)

    @call
    def comparison(self, comparison_id: str) -> Steps[Comparison]:
        """Raises ComparisonNotMade where its specs still run, or have failed."""
        return comparison_of(comparison_id)

    @call
    def bars(self, comparison_id: str) -> Steps[str]:
        """The comparison as a picture: SVG."""
        return text_of(f"/v1/comparisons/{in_path(comparison_id)}/bars.svg")


def begun_comparison(
    first: AnySpec, second: AnySpec, options: Mapping[str, JsonValue], key: str | None = None
) -> Steps[UnfinishedComparison]:
    specs: list[JsonValue] = [document(each, exclude_unset=True) for each in (first, second)]
    return once(UnfinishedComparison, "/v1/comparisons", {"specs": specs, **options}, key)


def comparison_of(comparison_id: str) -> Steps[Comparison]:
    found = (yield from asked(AnyComparison, "GET", f"/v1/comparisons/{in_path(comparison_id)}")).root
    if isinstance(found, UnfinishedComparison):
        raise ComparisonNotMade(found)
    return found
