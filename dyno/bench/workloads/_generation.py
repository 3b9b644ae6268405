"""Generate text with a decoder: read prompts (prefill), or add one token to each sequence at a time (decode).

Verification runs the decoder without a cache, operation by operation, and compares four sequences of the batch: the
logits, and the keys and values of each block at each position. All chosen tokens must have the largest logit. Weights
that were rounded to int8 are compared with the weights before rounding.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.bench import contract
from dyno.bench.datasets import shakespeare
from dyno.bench.frameworks.interface import compiled_total
from dyno.bench.frameworks.keras import dtype_policy
from dyno.bench.measure import correctness, result_checks
from dyno.bench.measure.warnings import OUTPUT_CODES
from dyno.bench.training.checkpoints import load_weights
from dyno.bench.training.step_checks import CheckedTraining, observe_precision
from dyno.bench.workloads import _decoder as decoder
from dyno.bench.workloads import _transformer_params as costs
from dyno.bench.workloads._forward import ALWAYS_COMPILED
from dyno.bench.workloads._transformer_params import COMPARED, TransformerParams
from dyno.models.result import ResultWarning
from dyno.settings import Settings

Array = NDArray[Any]


class _Generation:
    """A decoder with its weights and the tokens of each sequence, (batch, context)."""

    execution: str  # what an execution does, for the details

    def __init__(self, params: TransformerParams, context: contract.BuildContext) -> None:
        self._params, self._context, self._framework = params, context, context.framework
        keras, length = self._framework.keras, params.context
        with context.phase("data"):
            text = shakespeare.load(Settings(data_dir=context.data_dir), params.data)
            passages = _passages(text.ids, min(params.batch_size, COMPARED), length, context.seed)
            self._tokens = passages[np.arange(params.batch_size) % len(passages)]
            self._data = text.origin.kind
        with context.phase("build"), dtype_policy(keras, params.precision):
            self._decoder = decoder.new_decoder(keras, params.sizes, length)
            self._without_cache = decoder.prefill_model(keras, self._decoder, 1, length)
            if context.weights is not None:
                load_weights(decoder.sequence_model(keras, self._decoder, length), context.weights)
            self._weights = int(self._without_cache.count_params())
        self._rounded: tuple[float, float] | None = None if params.weight_dtype is None else self._round_weights()
        self._chosen: Any = None
        self._logits: Any = None
        self._cache: Sequence[Any] = ()
        self._total: Callable[[Any], Any]

    def _round_weights(self) -> tuple[float, float]:
        """The largest error of a weight in steps, and the relative error that it adds to the logits of a sequence."""
        with self._context.phase("build"):
            exact, _ = self._computed_without_cache(self._tokens[0])
            steps = decoder.round_weights(self._framework.keras, self._decoder)
            rounded, _ = self._computed_without_cache(self._tokens[0])
        return steps, _distances(rounded, exact, None)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def _compile_total(self) -> None:
        self._total = compiled_total(self._framework, self._params.batch_size, 1, self._params.sizes.vocabulary)

    def _verification(self, tokens: Array) -> contract.Verification:
        """Compare the outputs of the last timed execution. `tokens`: the tokens that it had seen, (batch, context)."""
        logits = np.asarray(self._framework.numpy(self._logits), np.float64)[:, 0]
        chosen = np.asarray(self._framework.numpy(self._chosen))[:, 0]
        nonfinite = int(logits.size - np.isfinite(logits).sum())
        facts = CheckedTraining()
        observe_precision(self._context, self._without_cache, self._params.precision, facts)
        limit = _tolerance(self._params, facts.precision.observed if facts.precision else None)
        has_largest = np.take_along_axis(logits, chosen[:, np.newaxis], axis=1)[:, 0] == logits.max(axis=1)
        rel_error = self._rel_error(tokens, logits) if has_largest.all() else math.inf
        raised = (
            result_checks.output_nonfinite(nonfinite, logits.size),
            None if nonfinite else result_checks.result_incorrect(rel_error, limit),
            result_checks.degenerate_data(logits),
            None if self._rounded is None else _wrongly_rounded(self._params, self._rounded[0]),
        )
        jit_compile = ALWAYS_COMPILED.get(self._framework.name, self._params.jit_compile is True)
        return contract.Verification(
            warnings=[each for each in raised if each is not None],
            verified=OUTPUT_CODES,
            precision=facts.precision,
            details={
                "execution": self.execution,
                "batch_size": len(tokens),
                "jit_compile": jit_compile,
                "weights": self._weights,
                "rel_error": correctness.finite(rel_error),
                "rel_error_tolerance": limit,
                **({} if self._rounded is None else {"rel_error_of_int8": correctness.finite(self._rounded[1])}),
                **facts.details,
            },
            tuned=facts.tuned,
            bytes=costs.traffic_bytes(self._params),
            params={"data": self._data, "jit_compile": jit_compile},
        )

    def _rel_error(self, tokens: Array, logits: Array) -> float:
        """The largest error of a compared sequence's logits, or of its keys or values at a position."""
        errors = []
        rows = np.unique(np.linspace(0, len(tokens) - 1, COMPARED).astype(int)).tolist()
        for number, row in enumerate(rows):
            self._context.report("verify", number, len(rows), "sequences")
            expected, cache = self._computed_without_cache(tokens[row])
            errors.append(_distances(logits[row], expected, None))
            for entries, expected_entries in zip(self._cache, cache, strict=True):
                errors.append(_distances(self._framework.numpy(entries[row]), expected_entries, (0, 2)))
        return max(errors)

    def _computed_without_cache(self, tokens: Array) -> tuple[Array, list[Array]]:
        """The last token's logits, (vocabulary,), and the keys and values of each block, (kv_heads, length, head_dim).

        The model runs operation by operation.
        """
        ops = self._framework.keras.ops
        _, logits, *cache = self._without_cache(ops.convert_to_tensor(tokens[np.newaxis], "int32"), training=False)
        return self._framework.numpy(logits)[0, 0], [self._framework.numpy(entries)[0] for entries in cache]


def _passages(ids: NDArray[np.uint8], count: int, length: int, seed: int) -> NDArray[np.int32]:
    """`count` passages from random places; the text is repeated if it is shorter than a passage."""
    starts = np.random.default_rng(seed).integers(0, len(ids), count)
    passages: NDArray[np.int32] = ids[(starts[:, np.newaxis] + np.arange(length)) % len(ids)].astype(np.int32)
    return passages


def _distances(actual: Array, expected: Array, axes: tuple[int, ...] | None) -> float:
    """The largest relative error (norm of the difference over `axes`, divided by the norm of `expected`)."""
    exact = np.asarray(expected, np.float64)
    errors = np.linalg.norm(np.asarray(actual, np.float64) - exact, axis=axes) / np.linalg.norm(exact, axis=axes)
    largest = float(np.max(errors))
    return largest if math.isfinite(largest) else math.inf


def _wrongly_rounded(params: TransformerParams, steps: float) -> ResultWarning | None:
    """RESULT_INCORRECT if an int8 weight is further from the exact one than rounding puts it.

    `steps`: half a step, and up to 127 times the rounding error of a scale, which has the precision of the weights.
    """
    raised = result_checks.result_incorrect(steps, 0.51 + 2 * 127 * correctness.UNIT_ROUNDOFF[params.precision])
    return raised and raised.model_copy(update={"evidence": {**raised.evidence, "of": "int8 weights, in steps"}})


def _tolerance(params: TransformerParams, observed: str | None) -> float:
    """Each block adds the errors of seven products, and of two norms and a softmax, to its input.

    `observed`: the precision of products, which is coarser than the requested one on some devices, such as TF32.
    """
    sizes = params.sizes
    inner = max(sizes.width, sizes.feed_forward, params.context)
    computed_in = observed if observed in correctness.UNIT_ROUNDOFF else params.precision
    return min(
        correctness.tolerance(computed_in, inner=inner, products=10 * sizes.layers + 1), correctness.MAX_TOLERANCE
    )


class Prefill(_Generation):
    """One execution reads a prompt for each sequence into a new cache, and chooses the first token."""

    def __init__(self, params: TransformerParams, context: contract.BuildContext) -> None:
        super().__init__(params, context)
        keras = self._framework.keras
        self.work = float(self._tokens.size)
        self.execution = "a prompt of {1} tokens for each of {0} sequences".format(*self._tokens.shape)
        with context.phase("build"), dtype_policy(keras, params.precision):
            self._model = decoder.prefill_model(keras, self._decoder, *self._tokens.shape)
            self._model.jit_compile = params.jit_compile is True
            self._prompt = self._framework.array(self._tokens, "int32")

    def compile(self) -> None:
        self._forward = self._framework.forward(self._model, self._prompt)
        self._compile_total()

    def execute(self, count: int) -> None:
        for _ in range(count):
            self._chosen, self._logits, *self._cache = self._forward(self._prompt)
        self._framework.scalar(self._total(self._logits))

    def counted_flops(self) -> float | None:
        """Without the masked half of the attention, which frameworks count."""
        counted, (batch, length) = self._framework.counted_flops(self._forward), self._tokens.shape
        return None if counted is None else counted - batch * costs.masked_flops(self._params.sizes, length)

    def verify(self) -> contract.Verification:
        verification = self._verification(self._tokens)
        verification.amounts |= {"token": 1.0, "request": self.work}
        return verification


class Decode(_Generation):
    """One execution adds the last token of the context to the cache, and chooses the next token."""

    def __init__(self, params: TransformerParams, context: contract.BuildContext) -> None:
        super().__init__(params, context)
        framework, keras = self._framework, self._framework.keras
        batch, length = self._tokens.shape
        self.work = float(batch)
        self.execution = f"token {length} of each of {batch} sequences"
        with context.phase("build"), dtype_policy(keras, params.precision):
            self._model = decoder.step_model(keras, self._decoder, batch, params.precision)
            self._model.jit_compile = params.jit_compile is True
            self._position = framework.array(np.array(length - 1, np.int32), "int32")
            self._chosen = self._last_token = framework.array(self._tokens[:, -1:], "int32")
            self._cache = [framework.array(entries, params.precision) for entries in self._filled()]

    def _filled(self) -> list[Array]:
        """The cache of all tokens before the last one, whose entries are zero."""
        different, by_sequence = self._tokens[:COMPARED], list[list[Array]]()
        for number, tokens in enumerate(different):
            self._context.report("build", number, len(different), "sequences")
            by_sequence.append(self._computed_without_cache(tokens)[1])
        cache = [
            np.stack(entries)[np.arange(len(self._tokens)) % len(different)]
            for entries in zip(*by_sequence, strict=True)
        ]
        for entries in cache:
            entries[:, :, -1] = 0
        return cache

    def compile(self) -> None:
        self._step = self._framework.step(self._model, [self._chosen, self._position], self._cache)
        self._compile_total()

    def execute(self, count: int) -> None:
        for _ in range(count):
            self._last_token = self._chosen
            (self._chosen, self._logits), self._cache = self._step([self._last_token, self._position], self._cache)
        self._framework.scalar(self._total(self._logits))

    def counted_flops(self) -> float | None:
        return self._framework.counted_flops(self._step)

    def verify(self) -> contract.Verification:
        last = np.asarray(self._framework.numpy(self._last_token), np.int32)
        verification = self._verification(np.concatenate([self._tokens[:, :-1], last], axis=1))
        verification.amounts |= {"token": 1.0, "step": self.work}
        return verification
