"""Raise and merge warnings, list the checks that were not made, and derive the verdict."""

from collections.abc import Collection, Iterable, Sequence

from pydantic import JsonValue

from dyno.bench.measure.warning_codes import CODES
from dyno.models.result import Peak, Precision, Result, ResultSummary, ResultWarning, Verdict

# Codes that only workloads can raise, in checks of their own output.
OUTPUT_CODES = frozenset({"DEGENERATE_DATA", "OUTPUT_NONFINITE", "RESULT_INCORRECT"})
MIN_PROCESSES = 5
EFFECT = 0.01  # a disturbance that moved the figure by a smaller share raises no warning of class B
EXCUSED = 0.05  # a larger movement raises a warning even with a wide interval: it may shift all runs together


def warning(code: str, message: str | None = None, **evidence: JsonValue) -> ResultWarning:
    """A warning of a known code; `message` defaults to the table's sentence. `evidence`: the numbers that raised it.

    Raises KeyError for a code that is not in the table.
    """
    row = CODES[code]
    return ResultWarning(code=code, severity=row.severity, message=message or row.sentence, evidence=evidence)


def grave_codes(result: Result | ResultSummary) -> str:
    """The codes of the class A warnings, separated by commas."""
    return ", ".join(raised.code for raised in result.warnings if raised.severity == "A")


def least_effect(rel_half_width: float | None) -> float:
    """The share by which a disturbance may move a figure without a warning: `rel_half_width`, because the interval
    covers such movements, but at least EFFECT and at most EXCUSED. None means that there is no interval.
    """
    return max(EFFECT, min(rel_half_width or 0.0, EXCUSED))


def unchecked_codes(
    precisions: Collection[Precision | None],
    peak: Peak,
    verified: Collection[str],
    further: Collection[str] = frozenset(),
    *,
    by_bytes: bool = False,
) -> list[str]:
    """The codes that were not checked in this result, in the table's order.

    `precisions`: one per run. `verified`: the codes of OUTPUT_CODES that the workload checked. `further`: codes without
    sensor readings (see `dyno.bench.measure.stability`), and codes that a run couldn't check. `by_bytes`: work without
    FLOP that states its traffic, which has a ceiling instead of a peak.
    """
    missing = {*further, *OUTPUT_CODES.difference(verified)}
    if any(precision is None or precision.observed is None for precision in precisions):
        missing.add("PRECISION_MISMATCH")
    if peak.value is None and not by_bytes:
        missing.add("ABOVE_PEAK")
    return [code for code in CODES if code in missing]


def verdict(warnings: Iterable[ResultWarning], missing: Collection[str], runs: int) -> Verdict:
    """Untrusted with any class A warning. Trusted without class A or B warnings, with five runs and all checks made.

    `missing`: the checks that this kind of device allows but that weren't made. The interval's width doesn't matter.
    Forked and spawned runs are treated alike, because they scatter alike (docs/dev/decisions/0007).
    """
    severities = {warning_raised.severity for warning_raised in warnings}
    if "A" in severities:
        return Verdict.UNTRUSTED
    if "B" in severities or missing or runs < MIN_PROCESSES:
        return Verdict.INDICATIVE
    return Verdict.TRUSTED


def merged_warnings(by_run: Sequence[Sequence[ResultWarning]]) -> list[ResultWarning]:
    """One warning per code over all runs, in the table's order; `evidence.runs` lists the runs that raised it.

    The message and other evidence come from the first run that raised the code.
    """
    first: dict[str, ResultWarning] = {}
    runs: dict[str, list[JsonValue]] = {}
    for run, warnings in enumerate(by_run):
        for raised in warnings:
            first.setdefault(raised.code, raised)
            if run not in runs.setdefault(raised.code, []):
                runs[raised.code].append(run)
    return sorted_warnings(
        raised.model_copy(update={"evidence": {**raised.evidence, "runs": runs[code]}})
        for code, raised in first.items()
    )


def sorted_warnings(warnings: Iterable[ResultWarning]) -> list[ResultWarning]:
    """The warnings in the table's order, gravest first. Codes unknown to this version come last."""
    ranks = {code: rank for rank, code in enumerate(CODES)}
    return sorted(warnings, key=lambda raised: ranks.get(raised.code, len(ranks)))
