"""Time single layers at the shapes of a decoder and of ResNet-50: products, attention, normalisation, convolutions, …

Each operator is a separate case with its own time and bytes per second. An execution is one call of the compiled layer.

FLOP of products, multiply-add = 2 (for the other operators, no FLOP are counted):

- product of (m, k) and (k, n): 2·m·k·n
- attention: 4·heads·head_dim for each pair of a token and a token that it attends to. Causal attention needs
  T·(T + 1)/2 pairs; a framework without a fused kernel computes all T².
- convolution 3 x 3, C to C channels on a square of side S: 2·9·S²·C²

Bytes are the compulsory traffic, as in a roofline (Williams, Waterman & Patterson 2009): each input is read once, each
output written once. An embedding reads only the rows that it looks up. Cached inputs may be faster than memory allows.

Outputs are compared with float64: products with Freivalds' test, the others in some rows. On accelerators, frameworks
compute attention and convolutions of float32 with operands in TF32 (GPU) or bfloat16 (TPU), so these may err as much.
On a CPU without oneDNN, TensorFlow sums attention of bfloat16 in bfloat16, and results say RESULT_INCORRECT.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dyno.bench import contract, estimates
from dyno.bench.frameworks.interface import Framework
from dyno.bench.measure import correctness, result_checks
from dyno.bench.measure.warnings import OUTPUT_CODES, warning
from dyno.errors import FieldError
from dyno.models.device import Device
from dyno.models.result import Precision, ResultWarning
from dyno.models.spec import FrameworkName

Array = Any  # a NumPy array
Name = Literal[
    "product_square",
    "product_up",
    "product_down",
    "product_token",
    "attention",
    "attention_token",
    "rms_norm",
    "layer_norm",
    "softmax",
    "gelu",
    "embedding",
    "cross_entropy",
    "conv_56",
    "conv_28",
    "conv_14",
    "conv_7",
]
NAMES: tuple[Name, ...] = get_args(Name)
_EPSILON = 1e-6
_COMPARED = 32  # rows of an output that are compared with float64
_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class OperatorsParams(contract.Params):
    operators: list[Name] = Field(
        ["product_square", "product_up", "product_token", "attention", "rms_norm", "softmax", "embedding", "conv_28"],
        min_length=1,
        max_length=len(NAMES),
        description="In this order; the first has the headline figures",
    )
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    tokens: int = Field(512, ge=1, le=65536, description="Tokens of a sequence")
    context: int = Field(2048, ge=1, le=1 << 20, description="Tokens that a single further token attends to")
    width: int = Field(1024, ge=2, le=65536, description="Width of the model")
    feed_forward: int = Field(4096, ge=1, le=1 << 18)
    heads: int = Field(16, ge=1, le=1024)
    head_dim: int = Field(64, ge=1, le=1024)
    vocabulary: int = Field(8192, ge=2, le=1 << 20)
    images: int = Field(1, ge=1, le=4096, description="Images in the batch of a convolution")

    def conflicts(self) -> list[FieldError]:
        if len(set(self.operators)) == len(self.operators):
            return []
        return [FieldError("/operators", "not-unique", "name each operator once")]


@dataclass(frozen=True)
class Operator:
    """One layer. `make`: its inputs, as NumPy arrays. `apply`: the layer on the framework's tensors.

    `expected`: rows of the output in float64, from the inputs as rounded for the device. `inner`: terms in the longest
    sum. `executed`: FLOP that an implementation without fused kernels executes for one counted FLOP.
    """

    make: Callable[[np.random.Generator], Sequence[Array]]
    apply: Callable[..., Any]
    rows: int
    inner: int
    flops: float
    traffic: int  # elements, without indices
    expected: Callable[[Sequence[Array], NDArray[np.intp]], Array] | None = None  # None for products
    executed: float = 1.0
    idle: int = 0  # elements of inputs that an execution doesn't read
    scratch: int = 0  # float32 values between inputs and output


def _normal(random: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return random.standard_normal(shape, np.float32)


def _product(m: int, k: int, n: int) -> Operator:
    return Operator(
        make=lambda random: (_normal(random, m, k), _normal(random, k, n) / np.float32(math.sqrt(k))),
        apply=lambda framework, a, b: framework.matmul(a, b),
        rows=m,
        inner=k,
        flops=2.0 * m * k * n,
        traffic=m * k + k * n + m * n,
    )


def _attention(params: OperatorsParams, tokens: int, context: int) -> Operator:
    """Causal attention over a sequence, or one token's over the whole context. Shapes: (1, tokens, heads, head_dim)."""
    heads, size, causal = params.heads, params.head_dim, tokens > 1
    pairs = tokens * (tokens + 1) / 2 if causal else context

    def expected(inputs: Sequence[Array], rows: NDArray[np.intp]) -> Array:
        query, key, value = (array[0].transpose(1, 0, 2) for array in inputs)
        scores = query[:, rows] @ key.transpose(0, 2, 1) / math.sqrt(size)
        if causal:
            scores = np.where(np.arange(context) <= rows[:, np.newaxis], scores, -np.inf)
        return (_softmax(scores) @ value).transpose(1, 0, 2)

    return Operator(
        make=lambda random: [_normal(random, 1, count, heads, size) for count in (tokens, context, context)],
        apply=lambda framework, q, k, v: framework.keras.ops.dot_product_attention(q, k, v, is_causal=causal),
        expected=expected,
        rows=tokens,
        inner=max(size, context),
        flops=4.0 * heads * size * pairs,
        traffic=2 * heads * size * (tokens + context),
        executed=tokens * context / pairs,
        scratch=3 * heads * tokens * context,  # scores, masked scores, probabilities
    )


def _by_row(shape: tuple[int, int], apply: Callable[[Any, Any], Any], expected: Callable[[Array], Array]) -> Operator:
    """An operator that computes each row separately. Its output has the shape of its input."""
    return Operator(
        make=lambda random: [_normal(random, *shape)],
        apply=lambda framework, x: apply(framework.keras.ops, x),
        expected=lambda inputs, rows: expected(inputs[0][rows]),
        rows=shape[0],
        inner=shape[1],
        flops=0.0,
        traffic=2 * shape[0] * shape[1],
    )


def _rms_norm(x: Array) -> Array:
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + _EPSILON)


def _layer_norm(x: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + _EPSILON)


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _gelu(x: Array) -> Array:
    """The approximation by tanh: Hendrycks & Gimpel 2016, "Gaussian Error Linear Units"."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _indices(random: np.random.Generator, params: OperatorsParams) -> NDArray[np.int32]:
    return random.integers(0, params.vocabulary, params.tokens, np.int32)


def _embedding(params: OperatorsParams) -> Operator:
    return Operator(
        make=lambda random: (_normal(random, params.vocabulary, params.width), _indices(random, params)),
        apply=lambda framework, table, chosen: framework.keras.ops.take(table, chosen, axis=0),
        expected=lambda inputs, rows: inputs[0][inputs[1][rows]],
        rows=params.tokens,
        inner=1,
        flops=0.0,
        traffic=2 * params.tokens * params.width,
        idle=params.vocabulary * params.width,
    )


def _cross_entropy(params: OperatorsParams) -> Operator:
    def expected(inputs: Sequence[Array], rows: NDArray[np.intp]) -> Array:
        return -np.log(_softmax(inputs[0][rows])[np.arange(len(rows)), inputs[1][rows]])

    return Operator(
        make=lambda random: (_normal(random, params.tokens, params.vocabulary), _indices(random, params)),
        apply=lambda framework, logits, targets: framework.keras.ops.sparse_categorical_crossentropy(
            targets, logits, from_logits=True
        ),
        expected=expected,
        rows=params.tokens,
        inner=params.vocabulary,
        flops=0.0,
        traffic=params.tokens * (params.vocabulary + 1),
    )


def _convolution(images: int, side: int, channels: int) -> Operator:
    """A 3 x 3 convolution with a border of zeros. A row of the output is a row of an image."""
    inner = 9 * channels

    def expected(inputs: Sequence[Array], rows: NDArray[np.intp]) -> Array:
        padded = np.pad(inputs[0], ((0, 0), (1, 1), (1, 1), (0, 0)))
        outputs = np.zeros((len(rows), side, channels))
        for down in range(3):
            lines = padded[rows // side, rows % side + down]
            for right in range(3):
                outputs += lines[:, right : right + side] @ inputs[1][down, right]
        return outputs

    return Operator(
        make=lambda random: (
            _normal(random, images, side, side, channels),
            _normal(random, 3, 3, channels, channels) / np.float32(math.sqrt(inner)),
        ),
        apply=lambda framework, x, kernel: framework.keras.ops.conv(
            x, kernel, padding="same", data_format="channels_last"
        ),
        expected=expected,
        rows=images * side,
        inner=inner,
        flops=2.0 * images * side * side * inner * channels,
        traffic=2 * images * side * side * channels + inner * channels,
    )


_OPERATORS: dict[Name, Callable[[OperatorsParams], Operator]] = {
    "product_square": lambda p: _product(p.tokens, p.width, p.width),
    "product_up": lambda p: _product(p.tokens, p.width, p.feed_forward),
    "product_down": lambda p: _product(p.tokens, p.feed_forward, p.width),
    "product_token": lambda p: _product(1, p.width, p.feed_forward),
    "attention": lambda p: _attention(p, p.tokens, p.tokens),
    "attention_token": lambda p: _attention(p, 1, p.context),
    "rms_norm": lambda p: _by_row(
        (p.tokens, p.width), lambda ops, x: ops.rms_normalization(x, epsilon=_EPSILON), _rms_norm
    ),
    "layer_norm": lambda p: _by_row(
        (p.tokens, p.width), lambda ops, x: ops.layer_normalization(x, epsilon=_EPSILON), _layer_norm
    ),
    "softmax": lambda p: _by_row((p.tokens, p.vocabulary), lambda ops, x: ops.softmax(x), _softmax),
    "gelu": lambda p: _by_row((p.tokens, p.feed_forward), lambda ops, x: ops.gelu(x, approximate=True), _gelu),
    "embedding": _embedding,
    "cross_entropy": _cross_entropy,
    "conv_56": lambda p: _convolution(p.images, 56, 64),
    "conv_28": lambda p: _convolution(p.images, 28, 128),
    "conv_14": lambda p: _convolution(p.images, 14, 256),
    "conv_7": lambda p: _convolution(p.images, 7, 512),
}


SUBNORMAL_SHARE = 0.1
_LEAST_NORMAL = {"float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}
_ENOUGH_ELEMENTS = 1024  # as in matmul: fewer elements don't identify a precision
_BY_DEFAULT = {"gpu": "tf32", "tpu": "bfloat16"}  # for float32, in attention and convolutions


def subnormal_output(output: Array, dtype: str) -> ResultWarning | None:
    """Raised if more than SUBNORMAL_SHARE of the values are subnormal in `dtype`."""
    share = float(np.mean((output != 0) & (np.abs(output) < _LEAST_NORMAL[dtype])))
    return warning("SUBNORMAL_OUTPUT", share=share) if share > SUBNORMAL_SHARE else None


class _Layer:
    """A compiled operator and its inputs on the device."""

    def __init__(self, name: Name, params: OperatorsParams, context: contract.BuildContext) -> None:
        self.name, self._dtype = name, params.dtype
        self.operator = _OPERATORS[name](params)
        self._framework: Framework = context.framework
        self._kind = context.device.driven_as if context.device else "cpu"
        # TensorFlow keeps int32 in host memory, and JAX has no int64 by default.
        indices = "int64" if self._kind != "cpu" and self._framework.name == "tensorflow" else "int32"
        with context.phase("data"):
            arrays = self.operator.make(np.random.default_rng([context.seed, NAMES.index(name)]))
        with context.phase("build"):
            self._inputs = [
                self._framework.array(array, params.dtype if array.dtype == np.float32 else indices) for array in arrays
            ]
        self._output: Any = None

    def compile(self) -> None:
        self._compiled = self._framework.compile(partial(self.operator.apply, self._framework), *self._inputs)

    def execute(self, count: int) -> None:
        output = None
        for _ in range(count):
            output = self._compiled(*self._inputs)
        self._output = output
        if output is not None:
            self._framework.scalar(self._framework.total(output))

    def counted_flops(self) -> float | None:
        counted = self._framework.counted_flops(self._compiled)
        return None if counted is None else counted / self.operator.executed

    def counted_bytes(self) -> float:
        """The size of the framework's arrays. An embedding reads as much of its table as it writes."""
        arrays = [self._output] * 2 if self.operator.idle else [*self._inputs, self._output]
        return float(sum(math.prod(array.shape) for array in arrays) * _ITEM_BYTES[self._dtype])

    def case(self) -> contract.Case:
        work = self.bytes
        return contract.Case(
            name=self.name,
            work=work,
            flops=self.operator.flops,
            dtype=self._dtype,
            execute=self.execute,
            amounts={"execution": work},
            counted_flops=self.counted_flops,
            bytes=work,
            counted_bytes=self.counted_bytes,
        )

    @property
    def bytes(self) -> float:
        return float(self.operator.traffic * _ITEM_BYTES[self._dtype])

    @property
    def is_product(self) -> bool:
        return self.name.startswith("product")

    def check(self, seed: int) -> contract.Verification:
        """Compare the timed output with float64."""
        inputs, output = [self._framework.numpy(array) for array in self._inputs], self._framework.numpy(self._output)
        operands = [array for array in inputs if not np.issubdtype(array.dtype, np.integer)]
        nonfinite = int(np.count_nonzero(~np.isfinite(output)))
        precision, unchecked = Precision(requested=self._dtype, observed=None, rel_error=None), dict[str, str]()
        if self.is_product:
            a, b = inputs
            product = correctness.freivalds(a, b, output, dtype=self._dtype, seed=seed)
            rel_error, limit, inner = product.rel_error, product.tolerance, self.operator.inner
            if product.elements >= _ENOUGH_ELEMENTS:
                observed = correctness.precision_fingerprint(rel_error, requested=self._dtype, inner=inner)
                unchecked = correctness.precision_unchecked(rel_error, inner=inner)
                precision = precision.model_copy(update={"observed": observed})
        else:
            rel_error, limit = self._error_of_rows(inputs, output, seed)
        finite = correctness.finite(rel_error)
        warnings = [
            next((raised for array in operands if (raised := result_checks.degenerate_data(array))), None),
            result_checks.output_nonfinite(nonfinite, output.size),
            None if nonfinite else result_checks.result_incorrect(rel_error, limit),
            subnormal_output(output, self._dtype),
        ]
        return contract.Verification(
            warnings=[_of(self.name, raised) for raised in warnings if raised is not None],
            verified=OUTPUT_CODES,
            unchecked=unchecked,
            precision=precision.model_copy(update={"rel_error": finite}),
            details={
                "flops": self.operator.flops,
                "bytes": self.bytes,
                "rel_error": finite,
                "rel_error_tolerance": limit,
            },
        )

    def _error_of_rows(self, inputs: Sequence[Array], output: Array, seed: int) -> tuple[float, float]:
        """The relative error of some rows, and its limit."""
        assert self.operator.expected is not None, "products are checked whole"
        rows = np.sort(np.random.default_rng(seed).permutation(self.operator.rows)[:_COMPARED])
        exact = [array if np.issubdtype(array.dtype, np.integer) else array.astype(np.float64) for array in inputs]
        expected = self.operator.expected(exact, rows)
        actual = output.reshape(self.operator.rows, *expected.shape[1:])[rows].astype(np.float64)
        norm = float(np.linalg.norm(expected))
        has_products = self.operator.flops > 0 and self._dtype == "float32"
        computed_in = _BY_DEFAULT.get(self._kind, "float32") if has_products else self._dtype
        limit = correctness.tolerance(computed_in, inner=self.operator.inner, products=2)
        if self._dtype == "float16":  # half the distance of subnormal values
            limit += 2.0**-25 * math.sqrt(expected.size) / norm
        return float(np.linalg.norm(actual - expected)) / norm, min(limit, correctness.MAX_TOLERANCE)


def _of(name: str, raised: ResultWarning) -> ResultWarning:
    return raised.model_copy(update={"evidence": {"operator": name, **raised.evidence}})


class Operators(contract.CaseByCase):
    """All operators of a job, as cases."""

    def __init__(self, params: OperatorsParams, context: contract.BuildContext) -> None:
        self._seed = context.seed
        context.framework.allow_tf32(False)
        self._layers = [_Layer(name, params, context) for name in params.operators]
        super().__init__(self._layers, [layer.case() for layer in self._layers])

    def verify(self) -> contract.Verification:
        checks = {layer.name: layer.check(self._seed) for layer in self._layers}
        deciding = next(
            (checks[layer.name] for layer in self._layers if layer.is_product), checks[self._layers[0].name]
        )
        return contract.Verification(
            warnings=[raised for check in checks.values() for raised in check.warnings],
            verified=OUTPUT_CODES,
            unchecked=deciding.unchecked,
            precision=deciding.precision,
            details={
                "working_set_bytes": int(min(layer.bytes for layer in self._layers)),
                "operators": {name: check.details for name, check in checks.items()},
            },
            amounts=dict(self.cases[0].amounts),
        )


def flops(params: OperatorsParams) -> float:
    """FLOP of the first operator."""
    return _OPERATORS[params.operators[0]](params).flops


_REACHED = 0.3  # share of the peak
_ASSUMED_FLOP_PER_S = {"cpu": 3e10, "gpu": 1e13, "tpu": 2e13}  # per CPU core, per accelerator
_ASSUMED_BYTES_PER_S = {"cpu": 5e9, "gpu": 3e11, "tpu": 3e11}
_START_S = 0.3  # tracing and compiling an operator; measured 0.05 to 0.2 s on a CPU
_MAKING_S = 1e-8  # a random value
_CHECKING_BYTES = 20  # of an element on the host: in float32, in float64, and padded or as a product


def estimate(
    params: OperatorsParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> contract.Estimate:
    """Each operator takes the time of its FLOP at a share of the peak and of its bytes at an assumed bandwidth."""
    per_s = estimates.rate_flop_per_s(device, params.dtype, _REACHED, _ASSUMED_FLOP_PER_S)
    all_operators = [_OPERATORS[name](params) for name in params.operators]
    item = _ITEM_BYTES[params.dtype]
    times_s = [
        each.flops * each.executed / per_s + each.traffic * item / _ASSUMED_BYTES_PER_S[device.driven_as]
        for each in all_operators
    ]
    held = [each.traffic + each.idle for each in all_operators]
    memory_bytes = item * sum(held) + 4 * max(each.scratch for each in all_operators) + estimates.runtime_bytes(device)
    if device.driven_as == "cpu":
        memory_bytes += _CHECKING_BYTES * max(held)
    start_s = _START_S * len(times_s) + 2 * sum(times_s) + _MAKING_S * sum(held)
    return contract.Estimate(start_s, memory_bytes, executions_s=tuple(times_s))


def refuses(params: OperatorsParams, device: Device) -> list[FieldError]:
    """Refuses attention in float16 on CPUs. JAX has no kernel for it, and TensorFlow adds up too many roundings."""
    attends = any(name.startswith("attention") for name in params.operators)
    if params.dtype != "float16" or device.driven_as != "cpu" or not attends:
        return []
    detail = "attention in float16 needs an accelerator; on a CPU use bfloat16 or float32"
    return [FieldError("/dtype", "dtype_unsupported", detail)]


WORKLOAD = contract.Workload(
    name="operators",
    description="Single layers at the shapes of a decoder and of ResNet-50, each with its time and bytes per second",
    params=OperatorsParams,
    metrics=(
        contract.MetricSpec("execution_time", "s", "lower", "Time of one call of the layer", amount="execution"),
        contract.MetricSpec("bandwidth", "bytes/s", "higher", "Compulsory traffic of the layer per second"),
    ),
    flops=flops,
    estimate=estimate,
    build=Operators,
    refuses=refuses,
    cases_of=lambda params: tuple(params.operators),
    executions=lambda params: "one call of the compiled layer; the sum of the last output is read back",
    smoke=contract.Smoke(
        {"operators": ["product_square", "softmax"], "tokens": 64, "width": 64, "vocabulary": 256},
        details=frozenset({"operators"}),
    ),
    bench={"tokens": 256},
    options="16 operators; the decoder's sizes one by one; float32, bfloat16 or float16",
)
