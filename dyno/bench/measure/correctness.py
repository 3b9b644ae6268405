"""Check products and training steps against float64 and float32 references.

Products. Freivalds (1979) checks A B = Y by A (B r) = Y r for random r, in O(n^2) instead of O(n^3). In floating point
the two sides differ by E r, where E = Y - A B is the error of the product. For r of independent random signs, the
expectation of |E r|^2 is the squared Frobenius norm of E (Girard 1989, Hutchinson 1990). So the same test measures the
relative error |E| / |A B| without computing A B in float64. All arithmetic here is float64.

Tolerance. A value rounded to unit roundoff u errs by 0.42 u (relative root mean square over a log-uniform significand).
A chain of k products rounds its output k times. For each product, float32 sums over K terms add a random error of at
most sqrt(K) u32 (u32 is float32's u). The steps' errors add like a random walk, so a correct chain has an error of
about sqrt(k) sqrt((0.42 u)^2 + K u32^2). The tolerance is four times this error, but at most a half, because an output
of zeros errs by 1. A wrong operand, an omitted column, or a missing step gives errors from 1/sqrt(n) to 1.

Eigen, and so TensorFlow on a processor without AVX-512, truncates bfloat16 instead of rounding it. Each product then
errs by 0.85 u, always downwards, and k products err k times as much. A sum of few elements may cancel to almost zero
while its rounding error remains. So if Y is smaller than usual for operands of this size, the error of a single product
is relative to the usual size of Y. The powers of a matrix smaller than 16 x 16 return to earlier values and round alike
each time, so the errors of k steps add up linearly, not as sqrt(k).

Precision. The observed precision comes only from the error of a single product. A chain's error depends on both the
precision and the length, so a wrong chain would look like a coarse precision. Float32 sums over very many terms err
more, especially if a library keeps few partial sums. A GPU thread that adds all terms to a single sum errs most. Its
partial sums grow as sqrt(j) over j terms, and each partial sum has a rounding error of 0.42 u32. So the sum errs by 0.3
u32 sqrt(K), plus or minus a fifth (simulated for K from a thousand to a million). TensorFlow and JAX on a CPU err by
1e-6 over a million terms. So float32 may err by up to 0.36 u32 sqrt(K), even if this is above its border to bf16x3.

Training steps. Dyno compares a timed step with a plain float32 step from the same weights, optimiser and seeds, on the
same batch. The error of a correct step depends on the model as much as on the precision: some gradients only pass
rounding errors on, others amplify them. So Dyno makes the plain step twice, the second time in the requested precision
and with a random rounding error added to each weight. The plain steps then change a weight array differently, and this
difference is the effect of rounding. A step may err by four times this effect, or by 2 % if that is more, because one
draw of rounding errors doesn't have every effect. If a value near zero changes its sign at a ReLU, or if two nearly
equal inputs of a max-pooling swap their order, a small array changes by up to 0.3 % (`cifar10_cnn` compiled with XLA, 2
of 6 seeds). Wrong steps err by 10 % and more (docs/dev/decisions/0018-a-step-against-a-plain-step.md).

The random rounding error has the size of the precision's unit roundoff. For float32 it is the error of a sum of 65,536
terms, sqrt(65536) u = 2^-16, because steps sum over batches and images, and libraries add terms in different orders.

An array isn't compared if rounding alone could alter its change by half. Examples are biases in front of a batch
normalisation, whose gradients are zero except for rounding, and arrays of deep networks in bfloat16.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.bench.measure.warnings import warning
from dyno.models.result import ResultWarning

Float64 = NDArray[np.float64]

UNIT_ROUNDOFF = {"float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}
_RMS_ROUNDING = 0.42
_SAFETY = 4.0
MAX_TOLERANCE = 0.5
# Smallest side of matrices whose errors add like a random walk. For sides of 2 to 8, the error of 20,000 products is up
# to 100 times the error of a random walk. For sides of 16 to 64, the error is that of a random walk.
_MIXING = 16
_CUT_OFF = (0.6, 1.2)  # times u. Truncation errs by 0.85; 0.6 is halfway to rounding's 0.42, and 1.2 is as far above
_ROWS_COMPARED = 8
_ROWS = 512  # rows converted to float64 at once, which bounds the extra memory

# Root-mean-square relative error of a product of N(0, 1) matrices with operands rounded to the precision.
FINGERPRINTS = {
    "float32": 3e-7,
    "bf16x3": 4e-6,
    "tf32": 2.9e-4,  # also float16: both keep 11 significant bits
    "bfloat16": 2.3e-3,
    "fp8": 3.8e-2,
}
_SUMMING = 0.36 * UNIT_ROUNDOFF["float32"]  # times sqrt(K): maximum error of a float32 sum of K terms
_LEAST_BF16X3 = 0.6 * FINGERPRINTS["bf16x3"]  # minimum error of bf16x3 products, for any number of terms


@dataclass(frozen=True)
class ProductCheck:
    """`rel_error`: estimated |Y - product| / |product| (Frobenius); infinite if the output is not finite.

    For a single product, the denominator is at least |A| |B| / sqrt(K), the norm that random operands give.

    `rel_error` is NaN if both product and Y are zero: then neither correctness nor precision is known (`is_known`).
    """

    rel_error: float
    tolerance: float
    nonfinite: int
    elements: int

    @property
    def correct(self) -> bool:
        return self.rel_error <= self.tolerance

    @property
    def is_known(self) -> bool:
        return not math.isnan(self.rel_error)


def freivalds(a: Any, b: Any, y: Any, *, dtype: str, repeats: int = 8, seed: int = 0) -> ProductCheck:
    """Check y = a b for arrays of shapes (m, k), (k, n), (m, n), as passed to the device.

    `dtype` is the requested precision; `repeats` is the number of random vectors.
    """
    signs, inner = _signs(np.shape(b)[1], repeats, seed), np.shape(b)[0]
    between = _times(b, signs)
    usual = _norm(a) * float(np.linalg.norm(between)) / math.sqrt(inner)
    return _check(_times(a, between), _times(y, signs), y, tolerance(dtype, inner=inner, products=1), usual)


def freivalds_chain(
    x: Any, apply_q: Callable[[Float64], Float64], y: Any, products: int, *, dtype: str, repeats: int = 8, seed: int = 0
) -> ProductCheck:
    """Check y = x q q ... q (`products` times) for square matrices of one shape (n, n).

    `apply_q(v)` gives q v in float64 for v of shape (n, repeats); q must be the matrix as the device multiplied it.
    """
    signs = _signs(np.shape(x)[1], repeats, seed)
    image = signs
    for _ in range(products):
        image = apply_q(image)
    limit = min(chain_tolerance(dtype, inner=np.shape(x)[1], products=products), MAX_TOLERANCE)
    return _check(_times(x, image), _times(y, signs), y, limit)


def tolerance(dtype: str, *, inner: int, products: int) -> float:
    """The maximum relative error after `products` correct matrix products with sums over `inner` terms. Not capped."""
    rounding = _RMS_ROUNDING * UNIT_ROUNDOFF[dtype]
    summing = math.sqrt(inner) * UNIT_ROUNDOFF["float32"]
    return _SAFETY * math.sqrt(products) * math.hypot(rounding, summing)


def chain_tolerance(dtype: str, *, inner: int, products: int) -> float:
    """Like `tolerance`, for a chain of products of square matrices: errors of small matrices add up linearly."""
    in_step = math.sqrt(products) if inner < _MIXING else 1.0
    return in_step * tolerance(dtype, inner=inner, products=products)


def is_checkable(dtype: str, *, inner: int, products: int) -> bool:
    """Whether the check can separate correct from wrong chains; False for long chains whose errors add up linearly."""
    return inner >= _MIXING or chain_tolerance(dtype, inner=inner, products=products) <= MAX_TOLERANCE


def precision_fingerprint(rel_error: float, *, requested: str | None = None, inner: int = 1) -> str | None:
    """The precision that gives this error in one product: the nearest of FINGERPRINTS on a logarithmic scale, or None.

    Borders are geometric means of neighbours. The range of fp8 extends as far above its error as below. float32 has no
    lower border: small integers are exact, and float64 errs less. tf32 and float16 err alike: the answer is "tf32"
    unless float16 was `requested`. Sums over `inner` terms raise float32's upper border. None if float32 and bf16x3 may
    both have this error.
    """
    if not math.isfinite(rel_error) or precision_unchecked(rel_error, inner=inner):
        return None
    if rel_error < min(_summing(inner), _LEAST_BF16X3):
        return "float32"
    names, errors = list(FINGERPRINTS), list(FINGERPRINTS.values())
    for name, error, following in zip(names, errors, errors[1:], strict=False):
        if rel_error < math.sqrt(error * following):
            return "float16" if (name, requested) == ("tf32", "float16") else name
    upper = errors[-1] * math.sqrt(errors[-1] / errors[-2])
    return names[-1] if rel_error < upper else None


def precision_unchecked(rel_error: float, *, inner: int) -> dict[str, str]:
    """PRECISION_MISMATCH with a reason, if float32 over `inner` terms and bf16x3 may both err so much; else empty."""
    if not _LEAST_BF16X3 <= rel_error < _summing(inner):
        return {}
    why = f"float32 sums over {inner} terms may err as much as bf16x3, so the precision is unknown"
    return {"PRECISION_MISMATCH": why}


def _summing(inner: int) -> float:
    return _SUMMING * math.sqrt(inner)


def allowed_error(
    check: ProductCheck, single: ProductCheck, observed: str | None, *, inner: int, products: int
) -> float:
    """Maximum error of `check`, a chain of `products` products, if a `single` product ran in the `observed` precision.

    It is the tolerance of `check`. If the single product is as exact as the observed precision, a larger
    tolerance of that precision counts, up to MAX_TOLERANCE: TF32 instead of float32 isn't a wrong result.
    """
    if observed not in UNIT_ROUNDOFF or single.rel_error > tolerance(observed, inner=inner, products=1):
        return check.tolerance
    in_step = products * single.rel_error if is_truncated(single, observed) else 0.0
    honest = max(chain_tolerance(observed, inner=inner, products=products), in_step)
    return min(max(check.tolerance, honest), MAX_TOLERANCE)


def is_truncated(single: ProductCheck, precision: str) -> bool:
    """Whether truncation (elements are too small), not rounding, explains the error of the `single` product."""
    low, high = (times * UNIT_ROUNDOFF.get(precision, 0.0) for times in _CUT_OFF)
    return precision in ("bfloat16", "float16") and low < single.rel_error < high


@dataclass(frozen=True)
class ExactCheck:
    """`rel_error`: estimated |Y - A B| / |A B|; 0.0 if both tests found no difference."""

    exact: bool
    rel_error: float
    rows_compared: int


def exact_product(a: Any, b: Any, y: Any, *, repeats: int = 8, seed: int = 0) -> ExactCheck:
    """Whether y = a b exactly, for int8 operands: Freivalds' test checks all rows, and int64 products check eight rows.

    float64 holds the test's sums exactly while K N 127² stays below 2**53: up to 740,000 x 740,000. The
    test always finds a row with one wrong element, and any other wrong row with a probability of 1 - 2**-repeats.
    """
    signs = _signs(np.shape(b)[1], repeats, seed)
    expected, actual = _times(a, _times(b, signs)), _times(y, signs)
    rows = np.random.default_rng(seed).choice(np.shape(a)[0], min(_ROWS_COMPARED, np.shape(a)[0]), replace=False)
    alike = np.asarray(a)[rows].astype(np.int64) @ np.asarray(b).astype(np.int64) == np.asarray(y)[rows]
    scale, error = float(np.linalg.norm(expected)), float(np.linalg.norm(actual - expected))
    exact = error == 0 and bool(alike.all())
    rel_error = 0.0 if exact else max(error / scale if scale else math.inf, float(np.finfo(np.float64).eps))
    return ExactCheck(exact, rel_error, len(rows))


def _signs(length: int, repeats: int, seed: int) -> Float64:
    return np.random.default_rng(seed).integers(0, 2, (length, repeats)).astype(np.float64) * 2 - 1


def _times(matrix: Any, vectors: Float64) -> Float64:
    """matrix @ vectors in float64, `_ROWS` rows at a time."""
    rows = range(0, np.shape(matrix)[0], _ROWS)
    with np.errstate(all="ignore"):
        return np.concatenate([np.asarray(matrix[row : row + _ROWS], np.float64) @ vectors for row in rows])


def _norm(matrix: Any) -> float:
    """The Frobenius norm in float64, computed `_ROWS` rows at a time."""
    rows = range(0, np.shape(matrix)[0], _ROWS)
    return math.hypot(*(float(np.linalg.norm(np.asarray(matrix[row : row + _ROWS], np.float64))) for row in rows))


def _check(expected: Float64, actual: Float64, y: Any, limit: float, usual: float = 0.0) -> ProductCheck:
    elements = int(np.size(y))
    if not np.isfinite(actual).all():
        nonfinite = elements - int(np.isfinite(np.asarray(y, np.float32)).sum())
        return ProductCheck(math.inf, limit, nonfinite, elements)
    scale = float(np.linalg.norm(expected))
    error = float(np.linalg.norm(actual - expected))
    if scale == 0:
        return ProductCheck(math.nan if error == 0 else math.inf, limit, 0, elements)
    return ProductCheck(error / max(scale, usual), limit, 0, elements)


ALLOWED_ROUNDINGS = 4.0  # times the effect of one rounding of each weight
MIN_BOUND, MAX_BOUND = 0.02, 0.5  # for the error, relative to the array's change; the error is 1 without gradients
MIN_COMPARED = 0.5  # the minimum share of weights that can be compared; else the step is unchecked
_LONG_SUM_ROUNDOFF = 2.0**-16

Arrays = Sequence[NDArray[np.generic]]


def rounding(precision: str) -> float:
    """The relative error of each weight in the second plain step."""
    return max(UNIT_ROUNDOFF[precision], _LONG_SUM_ROUNDOFF)


@dataclass(frozen=True)
class TrainingStep:
    """One step: its loss, if known, and the trainable weights after it."""

    loss: float | None
    weights: Arrays


@dataclass(frozen=True)
class Agreement:
    """The agreement of a timed step with the plain step.

    `compared`: the share of weights that can be compared. `array`: the index of the weight array whose error is the
    largest multiple of its bound. `rel_error` and `bound`: the error and the bound of this array, both divided by the
    size of its change. `agrees` is None if too few weights can be compared or the plain loss isn't finite.
    """

    compared: float
    rel_error: float
    bound: float
    array: int | None
    loss: float | None
    plain_loss: float
    loss_bound: float

    @property
    def agrees(self) -> bool | None:
        if not math.isfinite(self.plain_loss):
            return None
        if self.loss is not None and not abs(self.loss - self.plain_loss) <= self.loss_bound:
            return False
        if self.array is not None and not self.rel_error <= self.bound:
            return False
        return True if self.compared >= MIN_COMPARED else None

    def details(self) -> dict[str, JsonValue]:
        return {
            "compared_weights": self.compared,
            "rel_error": finite(self.rel_error),
            "bound": finite(self.bound),
            "loss": None if self.loss is None else finite(self.loss),
            "plain_loss": finite(self.plain_loss),
            "loss_bound": finite(self.loss_bound),
        }


def agreement(
    before: Arrays, timed: TrainingStep, plain: TrainingStep, rounded: TrainingStep, precision: str
) -> Agreement:
    """Compare three steps that began with the weights `before`; `rounded` is the second plain step."""
    errors = [
        _array_error(*arrays) for arrays in zip(before, timed.weights, plain.weights, rounded.weights, strict=True)
    ]
    sizes = [array.size for array in before]
    comparable = [number for number, (_, bound) in enumerate(errors) if bound <= MAX_BOUND]
    worst = max(comparable, key=lambda number: _nan_last(errors[number][0] / errors[number][1]), default=None)
    rel_error, bound = errors[worst] if worst is not None else (math.nan, math.nan)
    assert plain.loss is not None
    assert rounded.loss is not None
    return Agreement(
        compared=sum(sizes[number] for number in comparable) / sum(sizes),
        rel_error=rel_error,
        bound=bound,
        array=worst,
        loss=timed.loss,
        plain_loss=plain.loss,
        loss_bound=ALLOWED_ROUNDINGS
        * max(abs(rounded.loss - plain.loss), rounding(precision) * max(1.0, abs(plain.loss))),
    )


def step_incorrect(found: Agreement, array: str | None, looks: int) -> ResultWarning:
    """RESULT_INCORRECT for a training in which all compared steps (`looks`) disagreed. `found`: the last comparison."""
    return warning(
        "RESULT_INCORRECT",
        "A training step differs from a float32 step with the same weights and batch.",
        array=array,
        steps=looks,
        **found.details(),
    )


def _array_error(
    before: NDArray[np.generic], timed: NDArray[np.generic], plain: NDArray[np.generic], rounded: NDArray[np.generic]
) -> tuple[float, float]:
    """(error, bound), both relative to the change of the array in the plain step; infinite for an unchanged array."""
    start, timed_end, plain_end, rounded_end = (array.astype(np.float64) for array in (before, timed, plain, rounded))
    change = float(np.linalg.norm(plain_end - start))
    # Storing the weights rounds them to their dtype, before and after the step.
    roundoff = UNIT_ROUNDOFF.get(before.dtype.name, UNIT_ROUNDOFF["float32"])
    stored = roundoff * float(np.linalg.norm(start) + np.linalg.norm(plain_end))
    bound = ALLOWED_ROUNDINGS * (float(np.linalg.norm(rounded_end - plain_end)) + stored)
    if change == 0.0:
        return math.inf, math.inf
    return float(np.linalg.norm(timed_end - plain_end)) / change, max(MIN_BOUND, bound / change)


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value


def finite(value: float) -> float | None:
    """None for infinity and NaN, which JSON doesn't have."""
    return value if math.isfinite(value) else None
