"""The table of warning codes, and the verdict that follows from raised warnings.

Classes: A, the number is wrong; B, it may not repeat; C, read it with care.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from pydantic import JsonValue

from dyno.models.result import Peak, Precision, ResultWarning, Verdict

Severity = Literal["A", "B", "C"]

CODES: dict[str, tuple[Severity, str]] = {
    "ASYNC_TIMING": ("A", "The clock stopped before the device had finished."),
    "WORK_ELIMINATED": ("A", "The compiler removed work whose result was never read."),
    "DEGENERATE_DATA": ("A", "The operands are constant or nearly constant; hardware is faster on such data."),
    "OUTPUT_NONFINITE": ("A", "The output holds NaN or infinity."),
    "RESULT_INCORRECT": ("A", "The output differs too much from the same work in float64."),
    "ABOVE_PEAK": ("A", "The figure is above what the device can do."),
    "COMPILE_IN_TIMING": ("A", "Code was traced or compiled while samples were taken."),
    "WARM_CACHE": ("A", "A cold start found caches from an earlier run."),
    "CLOCK_SKEW": ("A", "The wall clock and the monotonic clock disagree about the length of the sampling."),
    "LOSS_NONFINITE": ("A", "The loss became NaN or infinite."),
    "UNIT_MISMATCH": ("A", "The figure's unit does not fit its size."),
    "EMULATED_DEVICE": ("A", "The device is emulated on a CPU."),
    "PRECISION_MISMATCH": ("B", "The arithmetic ran in a different precision than requested."),
    "THROTTLED": ("B", "The device lowered its clock for heat or power."),
    "CLOCK_DRIFT": ("B", "The device's clock frequency changed over the runs."),
    "NOISY_NEIGHBOUR": ("B", "Other processes or another machine used the device's cores."),
    "DEVICE_SHARED": ("B", "Another process holds the device."),
    "CPU_QUOTA": ("B", "The container may not use all the processor time that the work may take."),
    "NOISY": ("B", "The figure's interval is wider than the target, or than 2 %."),
    "MULTIMODAL": ("B", "The runs fall into separate groups, so the interval of their mean means little."),
    "INSUFFICIENT_SAMPLES": ("B", "The figure rests on fewer or shorter samples than the method's floor."),
    "NO_STEADY_STATE": ("B", "The times still drifted, or there were too few samples to decide."),
    "RETRACED": ("B", "A compiled function was traced again."),
    "SLOW_PATH": ("B", "The work ran on a slower kernel than the device supports."),
    "LOSS_RISING": ("B", "The training loss rose."),
    "METRIC_OUT_OF_BAND": ("B", "The figure is far from other results on devices of this model."),
    "POW2_ONLY": ("C", "All sizes are powers of two, which may be better or worse than their neighbours."),
    "CACHE_RESIDENT": ("C", "The data fits in the last level of cache, so memory was not measured."),
    "INPUT_BOUND": ("C", "The device waited for its input."),
    "OVERHEAD_BOUND": ("C", "The device was almost idle: starting the work took longer than the work."),
    "WEAK_BASELINE": ("C", "The baseline of the comparison does not use its device well."),
    "CHERRY_PICK_RISK": ("C", "A compared result is the best of several."),
    "ARTIFACTS_NOT_STORED": ("C", "Some files of the job could not be stored and are lost."),
    "BATCH_UNEVEN": ("C", "A replica's batch is not a multiple of 8, so units for 8 values stay partly empty."),
    "BATCH_SMALL": ("C", "The batch is small for the device: a step's fixed cost outweighs its work."),
    "WIDTH_UNEVEN": ("C", "A size is not a multiple of 128, a TPU matrix unit's side, so the unit stays partly empty."),
    "SYNTHETIC_DATA": ("C", "The data is not the full real set, so accuracy is not a reference accuracy."),
}

# Codes that only workloads can raise, in checks of their own output.
OUTPUT_CODES = frozenset({"DEGENERATE_DATA", "OUTPUT_NONFINITE", "RESULT_INCORRECT"})
MIN_PROCESSES = 5


def warning(code: str, message: str | None = None, **evidence: JsonValue) -> ResultWarning:
    """A warning of a known code; `message` defaults to the table's sentence. `evidence`: the numbers that raised it.

    Raises KeyError for a code that is not in the table.
    """
    severity, sentence = CODES[code]
    return ResultWarning(code=code, severity=severity, message=message or sentence, evidence=evidence)


def unchecked_codes(
    precisions: Collection[Precision | None],
    peak: Peak,
    verified: Collection[str],
    further: Collection[str] = frozenset(),
) -> list[str]:
    """The codes that were not checked in this result, in the table's order.

    `precisions`: one per run. `verified`: the codes of OUTPUT_CODES that the workload checked. `further`: codes without
    sensor readings (see `dyno.measure.stability`), and codes that a run couldn't check.
    """
    missing = {*further, *OUTPUT_CODES.difference(verified)}
    if any(each is None or each.observed is None for each in precisions):
        missing.add("PRECISION_MISMATCH")
    if peak.value is None:
        missing.add("ABOVE_PEAK")
    return [code for code in CODES if code in missing]


def verdict(warnings: Iterable[ResultWarning], missing: Collection[str], runs: int, target_reached: bool) -> Verdict:
    """Untrusted with any class A warning. Trusted without class A or B warnings, with five runs and the target reached.

    A result with a `missing` check (see `unchecked_codes`) is never trusted. Forked and spawned runs count the same,
    because they scatter alike (docs/decisions/0007).
    """
    severities = {raised.severity for raised in warnings}
    if "A" in severities:
        return Verdict.UNTRUSTED
    if "B" in severities or missing or runs < MIN_PROCESSES or not target_reached:
        return Verdict.INDICATIVE
    return Verdict.TRUSTED


def merged_warnings(by_run: Sequence[Sequence[ResultWarning]]) -> list[ResultWarning]:
    """One warning per code over all runs, in the table's order; `evidence.runs` lists the runs that raised it.

    The message and other evidence come from the first run that raised it.
    """
    first: dict[str, ResultWarning] = {}
    runs: dict[str, list[JsonValue]] = {}
    for run, raised in enumerate(by_run):
        for each in raised:
            first.setdefault(each.code, each)
            if run not in runs.setdefault(each.code, []):
                runs[each.code].append(run)
    return sorted_warnings(
        each.model_copy(update={"evidence": {**each.evidence, "runs": runs[code]}}) for code, each in first.items()
    )


def sorted_warnings(warnings: Iterable[ResultWarning]) -> list[ResultWarning]:
    """The warnings in the table's order, gravest first; codes unknown to this version come last."""
    places = {code: place for place, code in enumerate(CODES)}
    return sorted(warnings, key=lambda raised: places.get(raised.code, len(places)))
