"""Checks of class A and C: is the number wrong, and what must a reader know?

Each check returns a warning or None and uses only its arguments. `dyno.bench.measure.assemble` calls checks of the
whole result. A workload's `verify` and `lint` call checks of its operands and params.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.bench.measure.warnings import warning
from dyno.models.result import DataOrigin, Epoch, Peak, Precision, ResultWarning, Roof, Training

# Slack for measured peaks: the burst that measures a peak may run at a lower clock than a later run.
PEAK_SLACK = {"datasheet": 1.0, "measured clock": 1.05, "measured here": 1.05}
EPOCHS_LIMIT = 0.05
_LEAST_EPOCH_S, _LEAST_TRAINED_S = 0.5, 1.0
DIVERGED = 1e9  # a loss this high means divergence, whatever the loss was before
# A loss that reaches this many times the loss before the first step has diverged. In `shakespeare_lstm`, RMSprop at
# 1e-2 reached 1.2 times that loss at first.
DOUBLED = 2.0
START_SLACK = 1.05  # the first batch's loss isn't the mean over all batches
LEAST_STARTING = 32  # minimum number of samples in a batch whose loss stands for a training's start
# Below this share of the peak, most of the time goes to starting the work.
OVERHEAD_FRACTION = 0.02
# The maximum share of a training's time for waiting for batches, or for making them on the device's own cores. Without
# a wait of 10 %, a training would be 11 % faster; METRIC_OUT_OF_BAND allows 10 % between equal devices. TensorFlow's
# profiler calls a step moderately input-bound from 5 %, and highly input-bound from 20 %.
INPUT_LIMIT = 0.10
_EXAMINED, _LEAST_EXAMINED = 65536, 256
LEAST_TELLING = 16  # values; fewer values, such as labels of two classes or 8-bit values, may agree by chance
_BATCH_MULTIPLE = 8  # values that vector registers and matrix units take at a time
_WIDTH_MULTIPLE = 128  # the side of a TPU's matrix unit


def output_nonfinite(nonfinite: int, elements: int) -> ResultWarning | None:
    """Raised if any output value is NaN or infinite."""
    if nonfinite == 0:
        return None
    return warning("OUTPUT_NONFINITE", nonfinite=nonfinite, elements=elements)


def result_incorrect(rel_error: float, tolerance: float) -> ResultWarning | None:
    """Raised if `rel_error` against float64 (`dyno.bench.measure.correctness`) is above `tolerance` or NaN."""
    if rel_error <= tolerance:
        return None
    shown = rel_error if math.isfinite(rel_error) else None
    return warning("RESULT_INCORRECT", rel_error=shown, tolerance=tolerance)


def degenerate_data(operand: NDArray[np.generic], shares: int = 1) -> ResultWarning | None:
    """Raised if over half of a generated operand's values are equal. Not for real data: images are mostly background.

    It examines up to 65,536 / `shares` values at random places, but at least 256. `shares`: the number of operands.
    Constant operands draw less power, so the clock is higher: He, "Strangely, Matrix Multiplications on GPUs Run
    Faster When Given 'Predictable' Data!" (2024).
    """
    flat, limit = operand.reshape(-1), max(_LEAST_EXAMINED, _EXAMINED // shares)
    examined = flat if flat.size <= limit else flat[np.random.default_rng(0).integers(0, flat.size, limit)]
    _, counts = np.unique(examined, return_counts=True)
    share = int(counts.max()) / examined.size
    if share <= 0.5 or examined.size == 1:
        return None
    return warning("DEGENERATE_DATA", most_common_share=share, distinct=len(counts), examined=int(examined.size))


def zero_product(is_known: bool) -> ResultWarning | None:
    """Raised if the product is also zero in float64 (`is_known` is false), because then no error can be detected."""
    return None if is_known else warning("DEGENERATE_DATA", "The product of the operands is zero.")


def constant_data(parts: Mapping[str, NDArray[np.generic]]) -> ResultWarning | None:
    """Raised if a named part of the training data has at least 16 values and all are equal.

    Unlike `degenerate_data`, it also applies to real data, which may be mostly background, so it compares all values.
    For valid data it stops after the first block.
    """
    constant: list[JsonValue] = [name for name, values in parts.items() if _constant(values.reshape(-1))]
    return warning("DEGENERATE_DATA", "The training data is constant.", constant=constant) if constant else None


def _constant(flat: NDArray[np.generic]) -> bool:
    blocks = (flat[start : start + _EXAMINED] for start in range(0, flat.size, _EXAMINED))
    return flat.size >= LEAST_TELLING and all(bool((block == flat[0]).all()) for block in blocks)


def above_peak(peak: Peak) -> ResultWarning | None:
    """Raised if the fraction of peak is above 1, with slack for a measured peak."""
    limit = PEAK_SLACK.get(peak.provenance or "", 1.0)
    if peak.fraction is None or peak.fraction <= limit:
        return None
    return warning("ABOVE_PEAK", fraction=peak.fraction, limit=limit, peak=peak.value, provenance=peak.provenance)


def above_ceiling(bytes_per_s: float, ceiling: float) -> ResultWarning | None:
    """Raised if `bytes_per_s` is above `ceiling`, which no cache of the device exceeds."""
    return warning("ABOVE_PEAK", bytes_per_s=bytes_per_s, limit=ceiling) if bytes_per_s > ceiling else None


def emulated_device(emulated: bool) -> ResultWarning | None:
    return warning("EMULATED_DEVICE") if emulated else None


def clock_skew(monotonic_s: float, epoch_s: float) -> ResultWarning | None:
    """Raised if the two clocks differ by more than 1 % of the window and 50 ms.

    A step of the wall clock leaves the samples correct. But a paused or migrated machine stops the monotonic clock, and
    this process can't tell these two cases apart. The limits allow for NTP, which may slew the clock by 0.05 %, and for
    preemption between the two readings, which adds milliseconds.
    """
    skew_s = epoch_s - monotonic_s
    if abs(skew_s) <= max(0.05, 0.01 * monotonic_s):
        return None
    return warning("CLOCK_SKEW", skew_s=skew_s, monotonic_s=monotonic_s, wall_clock_s=epoch_s)


def loss_nonfinite(loss: float) -> ResultWarning | None:
    """Raised if the loss of timed steps is NaN or infinite. In the full training, such a loss fails the job."""
    if math.isfinite(loss):
        return None
    return warning("LOSS_NONFINITE", "The loss became NaN or infinite in timed steps.", loss=str(loss))


def loss_rising(training: Training) -> ResultWarning | None:
    """Raised if a trial's loss rose or diverged, or if a validation loss wasn't finite.

    The first trial's loss rose if the last epoch's loss is above the first epoch's loss, or if the second
    half's mean loss is above the first half's. `loss_diverged` is applied to every trial.
    """
    losses = [epoch.loss for epoch in training.epochs]
    last = losses[-1] if len(losses) > 1 else None
    diverged = loss_diverged(training.start_loss, max(losses, default=0.0), last)
    if diverged is not None:
        return diverged
    unknown = [
        epoch.index for epoch in training.epochs if epoch.validation_s is not None and epoch.validation_loss is None
    ]
    if unknown:
        return warning("LOSS_RISING", "A validation loss was NaN or infinite.", epochs=list[JsonValue](unknown))
    for trial in training.trials:
        last = trial.loss if trial.epochs > 1 else None
        if trial.highest_loss is not None and (rising := loss_diverged(trial.start_loss, trial.highest_loss, last)):
            return rising.model_copy(update={"evidence": {**rising.evidence, "seed": trial.seed}})
    if len(losses) < 2:
        return None
    half = len(losses) // 2
    before, after = sum(losses[:half]) / half, sum(losses[-half:]) / half
    if losses[-1] <= losses[0] and after <= before:
        return None
    return warning("LOSS_RISING", first=losses[0], last=losses[-1], first_half_mean=before, second_half_mean=after)


def epochs_disagree(
    sampled_s: float, epochs: Sequence[Epoch], sampled_cores: float | None = None, next_run: float = 0.0
) -> ResultWarning | None:
    """Raised if an epoch of sampled steps and the mean trained epoch, without the first epoch, differ by more than 5 %.

    `sampled_s`: the metric `epoch_time`. `sampled_cores`: the number of cores that the process kept busy during the
    samples. `next_run`: the relative half-width of the interval for a further run. The training is such a run, so a
    difference within this interval is no contradiction. Not raised for a single epoch, which includes compilation, or
    for short epochs, in which shuffling and reading metrics take a large share.

    Steps need about the same processor time on the same cores. If the processor time differs as much as the epochs'
    times, the cores were slower (a lower clock, work on their sibling hyperthreads), or threads spun while they waited.
    If the processor time hardly differs, threads slept while they waited for cores or for each other.
    """
    trained = [epoch.time_s for epoch in epochs[1:]]
    if not trained or math.fsum(trained) < _LEAST_TRAINED_S or (mean_s := statistics.fmean(trained)) < _LEAST_EPOCH_S:
        return None
    limit = max(EPOCHS_LIMIT, next_run)
    if max(sampled_s / mean_s, mean_s / sampled_s) <= 1 + limit:
        return None
    cpu_s = [epoch.cpu_s for epoch in epochs[1:] if epoch.cpu_s is not None]
    trained_cores = math.fsum(cpu_s) / math.fsum(trained) if len(cpu_s) == len(trained) else None
    return warning(
        "EPOCHS_DISAGREE",
        f"An epoch of sampled steps takes {sampled_s:.4g} s, but the trained epochs took {mean_s:.4g} s on average.",
        sampled_epoch_s=sampled_s,
        trained_epoch_s=mean_s,
        ratio=sampled_s / mean_s,
        epochs=len(trained),
        median_epoch_s=statistics.median(trained),
        fastest_epoch_s=min(trained),
        slowest_epoch_s=max(trained),
        sampled_cores_busy=sampled_cores,
        trained_cores_busy=trained_cores,
        cpu_ratio=sampled_s * sampled_cores / (mean_s * trained_cores) if sampled_cores and trained_cores else None,
        limit=limit,
    )


def loss_diverged(start: float | None, highest: float, last: float | None = None) -> ResultWarning | None:
    """Raised if a loss reached DIVERGED or twice `start`, or if the last loss is above `start`.

    `highest` and `last` are means over an epoch or over the timed steps. `start` is the mean over the first batch
    before the first step, or None if unknown.
    """
    doubled = start is not None and 0 < start <= highest / DOUBLED
    ended_above = start is not None and last is not None and 0 < start < last / START_SLACK
    if not doubled and not ended_above and highest < DIVERGED:
        return None
    return warning("LOSS_RISING", "The training diverged.", start=start, highest=highest, last=last, limit=DIVERGED)


def precision_mismatch(precision: Precision) -> ResultWarning | None:
    """Raised if the observed precision differs from the requested one, unless the framework uses it by default.

    Not raised if no precision was observed.
    """
    alike = {frozenset({"tf32", "float16"})}  # both keep 11 significant bits, so their errors are the same
    pair = frozenset({precision.requested, precision.observed})
    if precision.observed is None or precision.by_default or len(pair) == 1 or pair in alike:
        return None
    return warning(
        "PRECISION_MISMATCH",
        f"{precision.requested} was requested, but the error is that of {precision.observed}.",
        requested=precision.requested,
        observed=precision.observed,
        rel_error=precision.rel_error,
    )


def pow2_only(sizes: Sequence[int]) -> ResultWarning | None:
    """Raised if every size above 1 is a power of two."""
    counted = [size for size in sizes if size > 1]
    if not counted or any(size & (size - 1) for size in counted):
        return None
    return warning("POW2_ONLY", sizes=list(counted))


def cache_resident(working_set_bytes: int, last_cache_bytes: int | None) -> ResultWarning | None:
    """Raised if all data of one execution fits in the last level of cache, unless the cache is unknown."""
    if last_cache_bytes is None or working_set_bytes > last_cache_bytes:
        return None
    return warning("CACHE_RESIDENT", working_set_bytes=working_set_bytes, last_cache_bytes=last_cache_bytes)


def batch_uneven(batch_size: int, replicas: int) -> ResultWarning | None:
    """Raised if a replica's share of a batch is not a multiple of 8."""
    share = batch_size // replicas
    if share % _BATCH_MULTIPLE == 0:
        return None
    return warning("BATCH_UNEVEN", batch_size_per_replica=share, multiple=_BATCH_MULTIPLE)


def width_uneven(widths: Mapping[str, int]) -> ResultWarning | None:
    """Raised if a size of a layer or matrix on a TPU is not a multiple of 128. `widths`: sizes by name of param."""
    uneven: dict[str, JsonValue] = {name: width for name, width in widths.items() if width % _WIDTH_MULTIPLE}
    return warning("WIDTH_UNEVEN", widths=uneven, multiple=_WIDTH_MULTIPLE) if uneven else None


def batch_small(products_s: float, own_s: float) -> ResultWarning | None:
    """Raised if the estimated time of a batch's matrix products is below half of `own_s`, a step's fixed cost."""
    if products_s >= own_s / 2:
        return None
    return warning("BATCH_SMALL", products_s=products_s, step_overhead_s=own_s)


def input_bound(wait_share: float, core_share: float | None, pipeline: Mapping[str, JsonValue]) -> ResultWarning | None:
    """Raised if waiting for batches took over a tenth of the time, or making them took over a tenth of the cores' time.
    `core_share`: given if the device itself is the processor that makes the batches. `pipeline` describes the input
    pipeline.
    """
    if max(wait_share, core_share or 0.0) <= INPUT_LIMIT:
        return None
    message = f"The device waited for its input for {wait_share:.0%} of the time."
    if wait_share <= INPUT_LIMIT:
        message = f"The device's cores spent {core_share:.0%} of their time making its input."
    return warning("INPUT_BOUND", message, wait_share=wait_share, core_share=core_share, limit=INPUT_LIMIT, **pipeline)


def overhead_bound(peak: Peak, roof: Roof) -> ResultWarning | None:
    """Raised if the fraction of the limit that binds is below 2 %; of the peak, if the limit isn't known."""
    fraction = roof.fraction if roof.binds else peak.fraction
    if fraction is None or fraction >= OVERHEAD_FRACTION:
        return None
    return warning("OVERHEAD_BOUND", fraction=fraction, limit=OVERHEAD_FRACTION)


def synthetic_data(
    data: DataOrigin | None, so: str = "so accuracy is not a reference accuracy"
) -> ResultWarning | None:
    """Raised if the data are a sample or synthetic; `so` is the consequence for the figures."""
    if data is None or data.kind == "real":
        return None
    message = f"{data.name} is a {data.kind} here, {so}."
    return warning("SYNTHETIC_DATA", message, kind=data.kind, train_samples=data.train_samples)
