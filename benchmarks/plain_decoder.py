"""The decoder of `transformer` as a careful person writes it by hand, without Keras, in JAX and in TensorFlow.

A loop takes a number of executions and returns the seconds of one: training steps with Adam, prompts, or tokens.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dyno.bench.workloads import _decoder as decoder
from dyno.bench.workloads._decoder import DecoderSizes

Loop = Callable[[int], float]
_RATE, _MEAN, _SQUARE, _EPSILON = 1e-3, 0.9, 0.999, 1e-7  # of Adam


@dataclass(frozen=True)
class Ops:
    """The operations of one framework."""

    arange: Callable[..., Any]
    einsum: Callable[..., Any]
    gather: Callable[[Any, Any], Any]
    concat: Callable[..., Any]
    mean: Callable[[Any], Any]  # over the last axis, which stays
    reshape: Callable[..., Any]
    rsqrt: Callable[[Any], Any]
    sigmoid: Callable[[Any], Any]
    softmax: Callable[[Any], Any]
    where: Callable[..., Any]
    write: Callable[[Any, Any, Any], Any]  # (cache, new entry, position) to the new cache


def new_weights(sizes: DecoderSizes, seed: int = 0) -> dict[str, Any]:
    """Weights by name; those of a block start with its number. Tied embeddings, rotary positions and SwiGLU."""
    random = np.random.default_rng(seed)
    shapes = {"embedding": (sizes.vocabulary, sizes.width), "norm": (sizes.width,)}
    for block in range(sizes.layers):
        query, key = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        shapes |= {
            f"{block}_{name}": (sizes.width, columns) for name, columns in zip("qkv", (query, key, key), strict=True)
        }
        shapes |= {f"{block}_o": (query, sizes.width), f"{block}_n1": (sizes.width,), f"{block}_n2": (sizes.width,)}
        shapes |= {f"{block}_{name}": (sizes.width, sizes.feed_forward) for name in ("up", "gate")}
        shapes |= {f"{block}_down": (sizes.feed_forward, sizes.width)}
    return {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else (random.standard_normal(shape) / math.sqrt(shape[0 if name != "embedding" else 1])).astype(np.float32)
        for name, shape in shapes.items()
    }


def network(
    ops: Ops, sizes: DecoderSizes, weights: dict[str, Any], tokens: Any, position: Any = None, cache: Any = None
) -> tuple[Any, list[Any]]:
    """(hidden states, keys and values of each block) of tokens (batch, length). See `decoder`."""
    batch, length = tokens.shape
    places = ops.arange(length) if position is None else ops.reshape(position, (1,))
    context = length if cache is None else cache[0].shape[1]
    cosines, sines = (ops.gather(table, places) for table in decoder.rotations(context, sizes.head_dim))
    seen = ops.arange(length)[:, None] >= ops.arange(length)[None, :] if cache is None else None

    def product(x: Any, name: str) -> Any:
        flat = ops.reshape(x, (batch * length, x.shape[-1]))
        return ops.reshape(flat @ weights[name], (batch, length, weights[name].shape[1]))

    def normed(x: Any, name: str) -> Any:
        return x * ops.rsqrt(ops.mean(x * x) + decoder.EPSILON) * weights[name]

    def by_head(x: Any, heads: int, *, turned: bool) -> Any:
        x = ops.reshape(x, (batch, length, heads, sizes.head_dim))
        if not turned:
            return x
        first, second = x[..., : sizes.head_dim // 2], x[..., sizes.head_dim // 2 :]
        cos, sin = cosines[None, :, None, :], sines[None, :, None, :]
        return ops.concat([first * cos - second * sin, second * cos + first * sin], axis=-1)

    x, after = ops.gather(weights["embedding"], tokens), []
    for block in range(sizes.layers):
        inner = normed(x, f"{block}_n1")
        query = by_head(product(inner, f"{block}_q"), sizes.heads, turned=True)
        keys = by_head(product(inner, f"{block}_k"), sizes.kv_heads, turned=True)
        values = by_head(product(inner, f"{block}_v"), sizes.kv_heads, turned=False)
        if cache is not None:
            keys, values = (ops.write(cache[2 * block + n], new, position) for n, new in enumerate((keys, values)))
            seen = (ops.arange(context) <= position)[None, :]
        query = ops.reshape(query, (batch, length, sizes.kv_heads, -1, sizes.head_dim))
        scores = ops.einsum("btgrd,bcgd->bgrtc", query, keys) / math.sqrt(sizes.head_dim)
        chances = ops.softmax(ops.where(seen, scores, -math.inf))
        attended = ops.einsum("bgrtc,bcgd->btgrd", chances, values)
        x = x + product(ops.reshape(attended, (batch, length, -1)), f"{block}_o")
        inner = normed(x, f"{block}_n2")
        gate = product(inner, f"{block}_gate")
        x = x + product(gate * ops.sigmoid(gate) * product(inner, f"{block}_up"), f"{block}_down")
        after += [keys, values]
    return normed(x, "norm"), after


def _timed(execute: Callable[[int], Any]) -> Loop:
    def loop(count: int) -> float:
        begin_s = time.perf_counter()
        execute(count)
        return (time.perf_counter() - begin_s) / count

    loop(1)
    return loop


def _tokens(batch: int, length: int) -> Any:
    return np.random.default_rng(1).integers(0, 256, (batch, length)).astype(np.int32)


def _jax() -> Ops:
    import jax
    from jax import numpy as jnp

    return Ops(
        jnp.arange,
        jnp.einsum,
        lambda table, rows: jnp.asarray(table)[rows],
        jnp.concatenate,
        lambda x: jnp.mean(x, axis=-1, keepdims=True),
        jnp.reshape,
        jax.lax.rsqrt,
        jax.nn.sigmoid,
        jax.nn.softmax,
        jnp.where,
        lambda cache, new, position: jax.lax.dynamic_update_slice(cache, new, (0, position, 0, 0)),
    )


def jax_train(sizes: DecoderSizes, batch: int, length: int) -> Loop:
    import jax
    from jax import numpy as jnp

    ops, weights = _jax(), jax.tree.map(jnp.asarray, new_weights(sizes))
    inputs, targets = (jnp.asarray(_tokens(batch, length)) for _ in range(2))

    def loss(weights: Any, inputs: Any, targets: Any) -> Any:
        hidden, _ = network(ops, sizes, weights, inputs)
        logits = jax.nn.log_softmax(hidden @ weights["embedding"].T)
        return -jnp.mean(jnp.take_along_axis(logits, targets[..., None], axis=-1))

    def step(state: Any, inputs: Any, targets: Any) -> Any:
        weights, means, squares, number = state
        error, gradients = jax.value_and_grad(loss)(weights, inputs, targets)
        number = number + 1
        rate = _RATE * jnp.sqrt(1 - _SQUARE**number) / (1 - _MEAN**number)
        means = jax.tree.map(lambda m, g: m + (g - m) * (1 - _MEAN), means, gradients)
        squares = jax.tree.map(lambda s, g: s + (g * g - s) * (1 - _SQUARE), squares, gradients)
        weights = jax.tree.map(lambda w, m, s: w - rate * m / (jnp.sqrt(s) + _EPSILON), weights, means, squares)
        return (weights, means, squares, number), error

    compiled = jax.jit(step, donate_argnums=0)
    zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
    state = [(weights, *zeros, jnp.float32(0))]

    def train(count: int) -> None:
        for _ in range(count):
            state[0], error = compiled(state[0], inputs, targets)
        float(error)

    return _timed(train)


def jax_prefill(sizes: DecoderSizes, batch: int, length: int) -> Loop:
    import jax
    from jax import numpy as jnp

    ops, weights = _jax(), jax.tree.map(jnp.asarray, new_weights(sizes))
    prompt = jnp.asarray(_tokens(batch, length))

    def read(weights: Any, tokens: Any) -> Any:
        hidden, cache = network(ops, sizes, weights, tokens)
        return hidden[:, -1:] @ weights["embedding"].T, cache

    compiled = jax.jit(read)

    def prefill(count: int) -> None:
        for _ in range(count):
            logits, _ = compiled(weights, prompt)
        float(logits.sum())

    return _timed(prefill)


def jax_decode(sizes: DecoderSizes, batch: int, length: int) -> Loop:
    import jax
    from jax import numpy as jnp

    ops, weights = _jax(), jax.tree.map(jnp.asarray, new_weights(sizes))

    def next_token(weights: Any, position: Any, token: Any, cache: Any) -> Any:
        hidden, cache = network(ops, sizes, weights, token, position, cache)
        return jnp.argmax(hidden @ weights["embedding"].T, axis=-1).astype(jnp.int32), cache

    compiled, position = jax.jit(next_token, donate_argnums=3), jnp.int32(length - 1)
    held = [(jnp.asarray(_tokens(batch, 1)), [jnp.asarray(each) for each in _cache(sizes, batch, length)])]

    def decode(count: int) -> None:
        for _ in range(count):
            held[0] = compiled(weights, position, *held[0])
        int(held[0][0].sum())

    return _timed(decode)


def _cache(sizes: DecoderSizes, batch: int, length: int) -> list[Any]:
    return [np.zeros((batch, length, sizes.kv_heads, sizes.head_dim), np.float32) for _ in range(2 * sizes.layers)]


def _tensorflow() -> Ops:
    import tensorflow as tf

    def write(cache: Any, new: Any, position: Any) -> Any:
        rows = tf.stack([tf.range(cache.shape[0]), tf.fill([cache.shape[0]], position)], axis=1)
        return tf.tensor_scatter_nd_update(cache, rows, new[:, 0])

    return Ops(
        tf.range,
        tf.einsum,
        tf.gather,
        tf.concat,
        lambda x: tf.reduce_mean(x, axis=-1, keepdims=True),
        tf.reshape,
        tf.math.rsqrt,
        tf.sigmoid,
        tf.nn.softmax,
        tf.where,
        write,
    )


def tensorflow_train(sizes: DecoderSizes, batch: int, length: int) -> Loop:
    import tensorflow as tf

    ops, weights = _tensorflow(), {name: tf.Variable(value) for name, value in new_weights(sizes).items()}
    inputs, targets = (tf.constant(_tokens(batch, length)) for _ in range(2))
    means, squares = ({name: tf.Variable(tf.zeros_like(w)) for name, w in weights.items()} for _ in range(2))
    number = tf.Variable(0.0)

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step(inputs: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden, _ = network(ops, sizes, weights, inputs)
            logits = tf.matmul(hidden, weights["embedding"], transpose_b=True)
            error = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))
        gradients = tape.gradient(error, weights)
        number.assign_add(1.0)
        rate = _RATE * tf.sqrt(1 - _SQUARE**number) / (1 - _MEAN**number)
        for name, weight in weights.items():
            gradient = tf.convert_to_tensor(gradients[name])
            means[name].assign_add((gradient - means[name]) * (1 - _MEAN))
            squares[name].assign_add((gradient * gradient - squares[name]) * (1 - _SQUARE))
            weight.assign_sub(rate * means[name] / (tf.sqrt(squares[name]) + _EPSILON))
        return error

    def train(count: int) -> None:
        for _ in range(count):
            error = step(inputs, targets)
        float(error)

    return _timed(train)


def tensorflow_prefill(sizes: DecoderSizes, batch: int, length: int) -> Loop:
    import tensorflow as tf

    ops, weights = _tensorflow(), {name: tf.Variable(value) for name, value in new_weights(sizes).items()}
    prompt = tf.constant(_tokens(batch, length))

    @tf.function  # type: ignore[untyped-decorator]
    def read(tokens: Any) -> Any:
        hidden, cache = network(ops, sizes, weights, tokens)
        return tf.matmul(hidden[:, -1:], weights["embedding"], transpose_b=True), cache

    def prefill(count: int) -> None:
        for _ in range(count):
            logits, _ = read(prompt)
        float(tf.reduce_sum(logits))

    return _timed(prefill)


def tensorflow_decode(sizes: DecoderSizes, batch: int, length: int) -> Loop:
    import tensorflow as tf

    ops, weights = _tensorflow(), {name: tf.Variable(value) for name, value in new_weights(sizes).items()}

    @tf.function  # type: ignore[untyped-decorator]
    def next_token(position: Any, token: Any, cache: Any) -> Any:
        hidden, cache = network(ops, sizes, weights, token, position, cache)
        logits = tf.matmul(hidden, weights["embedding"], transpose_b=True)
        return tf.argmax(logits, axis=-1, output_type=tf.int32), cache

    position = tf.constant(length - 1)
    held = [(tf.constant(_tokens(batch, 1)), [tf.constant(each) for each in _cache(sizes, batch, length)])]

    def decode(count: int) -> None:
        for _ in range(count):
            held[0] = next_token(position, *held[0])
        int(tf.reduce_sum(held[0][0]))

    return _timed(decode)


LOOPS: dict[tuple[str, str], Callable[[DecoderSizes, int, int], Loop]] = {
    ("jax", "train"): jax_train,
    ("jax", "prefill"): jax_prefill,
    ("jax", "decode"): jax_decode,
    ("tensorflow", "train"): tensorflow_train,
    ("tensorflow", "prefill"): tensorflow_prefill,
    ("tensorflow", "decode"): tensorflow_decode,
}
