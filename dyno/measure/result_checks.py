"""Checks of class A and C: is the number wrong, and what must a reader know?

Each check returns a warning or None and looks only at its arguments. `dyno.measure.assemble` calls those that need
the whole result, a workload's `verify` and `lint` call those that need its operands and params.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import JsonValue

from dyno.measure.warnings import warning
from dyno.models.result import DataOrigin, Peak, Precision, ResultWarning

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A measured peak is itself a measurement: a burst may catch a lower clock than a later run has.
PEAK_SLACK = {"datasheet": 1.0, "measured clock": 1.05, "measured here": 1.05}
# Below this share of the peak, starting the work outweighs the work.
OVERHEAD_FRACTION = 0.02
# Of a training's time, waiting for batches or making them on the device's own cores. A tenth is what equal devices
# differ by (METRIC_OUT_OF_BAND's floor), and without it the training would be a ninth faster at most. TensorFlow's
# profiler calls a step moderately input-bound from 5 % of waiting on, highly from 20 %.
INPUT_LIMIT = 0.10
_EXAMINED, _LEAST_EXAMINED = 65536, 256
LEAST_TELLING = 16  # values: most of fewer may be alike by chance, as of two classes, or where 8 bits are kept
_BATCH_MULTIPLE = 8  # what vector registers and matrix units take at a time
_WIDTH_MULTIPLE = 128  # the side of a TPU's matrix unit


def output_nonfinite(nonfinite: int, elements: int) -> ResultWarning | None:
    """`nonfinite` of `elements` output values are NaN or infinite."""
    if nonfinite == 0:
        return None
    return warning("OUTPUT_NONFINITE", nonfinite=nonfinite, elements=elements)


def result_incorrect(rel_error: float, tolerance: float) -> ResultWarning | None:
    """`rel_error` against float64 (`dyno.measure.correctness`) is above `tolerance`; NaN counts as above."""
    if rel_error <= tolerance:
        return None
    shown = rel_error if math.isfinite(rel_error) else None
    return warning("RESULT_INCORRECT", rel_error=shown, tolerance=tolerance)


def degenerate_data(operand: NDArray[np.generic], shares: int = 1) -> ResultWarning | None:
    """More than half of a generated operand's values are one value. Not for real data: an image is mostly background.

    Up to 65,536 values at random places are looked at; of one of several operands, its part of `shares` of them, 256 at
    least. Constant operands draw less power, so the clock is higher: He, "Strangely, Matrix Multiplications on GPUs Run
    Faster When Given 'Predictable' Data!" (2024).
    """
    import numpy as np

    flat, most = operand.reshape(-1), max(_LEAST_EXAMINED, _EXAMINED // shares)
    examined = flat if flat.size <= most else flat[np.random.default_rng(0).integers(0, flat.size, most)]
    _, counts = np.unique(examined, return_counts=True)
    share = int(counts.max()) / examined.size
    if share <= 0.5 or examined.size == 1:
        return None
    return warning("DEGENERATE_DATA", most_common_share=share, distinct=len(counts), examined=int(examined.size))


def zero_product(told: bool) -> ResultWarning | None:
    """A product that is zero in float64 too, so that nothing can be `told` from it: any kernel gets it right."""
    return None if told else warning("DEGENERATE_DATA", "The product of the operands is zero.")


def constant_data(parts: Mapping[str, NDArray[np.generic]]) -> ResultWarning | None:
    """Data to learn from, by the names of its parts: one of 16 values or more, all of which are the same.

    Unlike `degenerate_data` it is for real data too: most of it may be background, so every value counts. The first
    few tell of sound data that it isn't constant.
    """
    constant: list[JsonValue] = [name for name, values in parts.items() if _constant(values.reshape(-1))]
    return warning("DEGENERATE_DATA", "The data to learn from are constant.", constant=constant) if constant else None


def _constant(flat: NDArray[np.generic]) -> bool:
    blocks = (flat[start : start + _EXAMINED] for start in range(0, flat.size, _EXAMINED))
    return flat.size >= LEAST_TELLING and all(bool((block == flat[0]).all()) for block in blocks)


def above_peak(peak: Peak) -> ResultWarning | None:
    """The fraction of peak is above 1, with slack for a peak that was measured."""
    limit = PEAK_SLACK.get(peak.provenance or "", 1.0)
    if peak.fraction is None or peak.fraction <= limit:
        return None
    return warning("ABOVE_PEAK", fraction=peak.fraction, limit=limit, peak=peak.value, provenance=peak.provenance)


def emulated_device(emulated: bool) -> ResultWarning | None:
    return warning("EMULATED_DEVICE") if emulated else None


def clock_skew(monotonic_s: float, epoch_s: float) -> ResultWarning | None:
    """The two clocks differ by more than 1 % of the window and 50 ms.

    A step of the wall clock alone leaves the samples right, but so does a paused or migrated machine look, whose
    monotonic clock stood still; they can't be told apart from inside. NTP may slew by 0.05 %; a reader that is
    preempted between both clocks sees milliseconds.
    """
    skew_s = epoch_s - monotonic_s
    if abs(skew_s) <= max(0.05, 0.01 * monotonic_s):
        return None
    return warning("CLOCK_SKEW", skew_s=skew_s, monotonic_s=monotonic_s, wall_clock_s=epoch_s)


def loss_nonfinite(loss: float) -> ResultWarning | None:
    """The loss of steps that were only timed is NaN or infinite; in the training itself it fails the job."""
    if math.isfinite(loss):
        return None
    return warning("LOSS_NONFINITE", "The loss became NaN or infinite while steps were only timed.", loss=str(loss))


def loss_rising(losses: Sequence[float]) -> ResultWarning | None:
    """Training loss per epoch: the last is above the first, or the second half lies above the first half on average."""
    if len(losses) < 2:
        return None
    half = len(losses) // 2
    before, after = sum(losses[:half]) / half, sum(losses[-half:]) / half
    if losses[-1] <= losses[0] and after <= before:
        return None
    return warning("LOSS_RISING", first=losses[0], last=losses[-1], first_half_mean=before, second_half_mean=after)


def precision_mismatch(precision: Precision) -> ResultWarning | None:
    """Another precision was observed than requested. Nothing observed says nothing."""
    alike = {frozenset({"tf32", "float16"})}  # both keep 11 significant bits: their errors can't be told apart
    pair = frozenset({precision.requested, precision.observed})
    if precision.observed is None or len(pair) == 1 or pair in alike:
        return None
    return warning(
        "PRECISION_MISMATCH",
        f"{precision.requested} was asked for; the error is that of {precision.observed}.",
        requested=precision.requested,
        observed=precision.observed,
        rel_error=precision.rel_error,
    )


def pow2_only(sizes: Sequence[int]) -> ResultWarning | None:
    """Every size above 1 is a power of two."""
    counted = [size for size in sizes if size > 1]
    if not counted or any(size & (size - 1) for size in counted):
        return None
    return warning("POW2_ONLY", sizes=list(counted))


def cache_resident(working_set_bytes: int, last_cache_bytes: int | None) -> ResultWarning | None:
    """All data that one execution touches fits in the last level of cache. Silent where the cache isn't known."""
    if last_cache_bytes is None or working_set_bytes > last_cache_bytes:
        return None
    return warning("CACHE_RESIDENT", working_set_bytes=working_set_bytes, last_cache_bytes=last_cache_bytes)


def batch_uneven(batch_size: int, replicas: int) -> ResultWarning | None:
    """A replica's share of a batch is no multiple of 8."""
    share = batch_size // replicas
    if share % _BATCH_MULTIPLE == 0:
        return None
    return warning("BATCH_UNEVEN", batch_size_per_replica=share, multiple=_BATCH_MULTIPLE)


def width_uneven(widths: Mapping[str, int]) -> ResultWarning | None:
    """Sizes of a layer or a matrix on a TPU, by the names of their params: some is no multiple of 128."""
    uneven: dict[str, JsonValue] = {name: width for name, width in widths.items() if width % _WIDTH_MULTIPLE}
    return warning("WIDTH_UNEVEN", widths=uneven, multiple=_WIDTH_MULTIPLE) if uneven else None


def batch_small(products_s: float, own_s: float) -> ResultWarning | None:
    """The products of a batch are expected to take less than half of what a step takes whatever the batch, `own_s`."""
    if products_s >= own_s / 2:
        return None
    return warning("BATCH_SMALL", products_s=products_s, step_overhead_s=own_s)


def input_bound(wait_share: float, core_share: float | None, pipeline: Mapping[str, JsonValue]) -> ResultWarning | None:
    """More than a tenth of the time passed until batches were there, or, of the cores' time, while they were made.

    `core_share`: where the device is the processor that makes them too. `pipeline`: what made them.
    """
    if max(wait_share, core_share or 0.0) <= INPUT_LIMIT:
        return None
    message = f"The device waited for its input for {wait_share:.0%} of the time."
    if wait_share <= INPUT_LIMIT:
        message = f"The device's cores made its input in {core_share:.0%} of their time."
    return warning("INPUT_BOUND", message, wait_share=wait_share, core_share=core_share, limit=INPUT_LIMIT, **pipeline)


def overhead_bound(peak: Peak) -> ResultWarning | None:
    """Less than 2 % of the peak was reached."""
    if peak.fraction is None or peak.fraction >= OVERHEAD_FRACTION:
        return None
    return warning("OVERHEAD_BOUND", fraction=peak.fraction, limit=OVERHEAD_FRACTION)


def synthetic_data(data: DataOrigin | None, so: str = "so accuracy is no reference accuracy") -> ResultWarning | None:
    """The data set is a sample of the real one or a synthetic twin; `so`: what that means for the figures."""
    if data is None or data.kind == "real":
        return None
    message = f"{data.name} is a {data.kind} here, {so}."
    return warning("SYNTHETIC_DATA", message, kind=data.kind, train_samples=data.train_samples)
