"""A decoder-only language model in Keras: its sizes, the formulas of its cost, and one layer with all its weights.

A token's embedding passes through blocks of causal attention and a feed-forward network, each after an RMSNorm (Zhang &
Sennrich 2019) and added to its input, then through a last RMSNorm and the output projection. Queries may share keys and
values (grouped-query attention, Ainslie et al. 2023). Positions are rotations of queries and keys (Su et al. 2021), or
learned vectors. The feed-forward network is SwiGLU (Shazeer 2020), or GELU between two products. No layer has biases.

The cache holds the keys and values of all positions of a context, (batch, kv_heads, context, head_dim) for each block,
so that a further token needs no other token's products.
"""

import functools
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

EPSILON = 1e-5
_ROTATION_BASE = 10_000.0  # Su et al. 2021; Llama 3 uses 500,000


@dataclass(frozen=True)
class DecoderSizes:
    """The sizes of a model. `tied`: whether the output projection is the transposed embedding.

    `activation`: of the feed-forward network.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    tied: bool = True
    learned_positions: int | None = None  # the number of vectors; None: rotations
    activation: Literal["swiglu", "gelu"] = "swiglu"

    @property
    def layer_weights(self) -> int:
        """The weights of one block's products."""
        attention = 2 * self.width * self.head_dim * (self.heads + self.kv_heads)
        return attention + (3 if self.activation == "swiglu" else 2) * self.width * self.feed_forward

    @property
    def weights(self) -> int:
        """All weights."""
        embeddings = (1 if self.tied else 2) * self.vocabulary + (self.learned_positions or 0)
        return embeddings * self.width + self.layers * (self.layer_weights + 2 * self.width) + self.width

    @property
    def read_weights(self) -> int:
        """The weights that each step reads, apart from a few rows of the embeddings."""
        return self.vocabulary * self.width + self.layers * (self.layer_weights + 2 * self.width) + self.width

    @property
    def rounded(self) -> tuple[int, int]:
        """The weights that `round_weights` rounds, and their scales: one for each output of a product."""
        heads, feeds = self.heads + 2 * self.kv_heads, 2 if self.activation == "swiglu" else 1
        scales = self.layers * (self.head_dim * heads + 2 * self.width + feeds * self.feed_forward)
        weights, projection = self.layers * self.layer_weights, 0 if self.tied else self.vocabulary
        return weights + projection * self.width, scales + projection

    def attention_flops(self, pairs: float) -> float:
        """FLOP of scores and weighted sums for `pairs` of a token and a token that it attends to."""
        return 4.0 * self.layers * self.heads * self.head_dim * pairs

    def forward_flops(self, tokens: int, outputs: int) -> float:
        """FLOP of a sequence of `tokens` with the logits of `outputs` tokens. Half of all pairs are causal."""
        products = 2.0 * (tokens * self.layers * self.layer_weights + outputs * self.vocabulary * self.width)
        return products + self.attention_flops(tokens * (tokens + 1) / 2)

    def decode_flops(self, context: int) -> float:
        """FLOP of one further token, which attends to all `context` tokens, itself included."""
        products = 2.0 * (self.layers * self.layer_weights + self.vocabulary * self.width)
        return products + self.attention_flops(context)

    def cache_elements(self, tokens: int) -> int:
        """Keys and values of a sequence."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens


PRESETS: dict[str, DecoderSizes] = {
    "tiny": DecoderSizes(4, 128, 4, 2, 32, 384, 256),
    "small": DecoderSizes(8, 512, 8, 4, 64, 1536, 256),
    # The shapes of GPT-2 (Radford et al. 2019), with RMSNorm instead of LayerNorm and without biases.
    "gpt2-124m": DecoderSizes(12, 768, 12, 12, 64, 3072, 50257, learned_positions=1024, activation="gelu"),
    # Llama 3.2 1B and Llama 3.1 8B (Grattafiori et al. 2024), with the rotations of Su et al.
    "llama-1b": DecoderSizes(16, 2048, 32, 8, 64, 8192, 128_256),
    "llama-8b": DecoderSizes(32, 4096, 32, 8, 128, 14336, 128_256, tied=False),
}


def rotations(context: int, head_dim: int) -> Any:
    """Cosines and sines of the angle of each position and pair of dimensions, (2, context, head_dim / 2)."""
    angles = np.arange(context)[:, np.newaxis] * _ROTATION_BASE ** (-np.arange(0, head_dim, 2) / head_dim)
    return np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


class _Block:
    """Attention and feed-forward network. `keras`: the module whose layer this becomes; see `_layer`.

    All tokens of a batch are the rows of one matrix: XLA computes products of matrices, and their gradients, faster
    than those of arrays with a third axis.
    """

    keras: Any

    def __init__(self, sizes: DecoderSizes, **options: Any) -> None:
        super().__init__(**options)
        layers, dense = self.keras.layers, functools.partial(self.keras.layers.Dense, use_bias=False)
        self.sizes = sizes
        self.attention_norm = layers.RMSNormalization(epsilon=EPSILON, name="attention_norm")
        self.query = dense(sizes.heads * sizes.head_dim, name="query")
        self.key = dense(sizes.kv_heads * sizes.head_dim, name="key")
        self.value = dense(sizes.kv_heads * sizes.head_dim, name="value")
        self.attention_output = dense(sizes.width, name="attention_output")
        self.feed_norm = layers.RMSNormalization(epsilon=EPSILON, name="feed_norm")
        self.up = dense(sizes.feed_forward, name="up")
        self.gate = dense(sizes.feed_forward, name="gate") if sizes.activation == "swiglu" else None
        self.down = dense(sizes.width, name="down")

    def build(self, input_shape: Any) -> None:
        for layer in (self.attention_norm, self.query, self.key, self.value, self.feed_norm, self.up, self.gate):
            if layer is not None:
                layer.build(input_shape)
        self.attention_output.build((*input_shape[:-1], self.sizes.heads * self.sizes.head_dim))
        self.down.build((*input_shape[:-1], self.sizes.feed_forward))

    def call(self, x: Any, angles: Any = None, position: Any = None, cache: Any = None, *, length: int) -> Any:
        """(outputs, keys, values) for x of shape (batch x length, width).

        With a `cache`, x has one token of each sequence, at `position`, whose entries are added to the cache.
        """
        ops, sizes, normed = self.keras.ops, self.sizes, self.attention_norm(x)
        query = _by_head(ops, self.query(normed), length, sizes.heads, angles)
        keys = _by_head(ops, self.key(normed), length, sizes.kv_heads, angles)
        values = _by_head(ops, self.value(normed), length, sizes.kv_heads)
        if cache is None:
            attended = _attended(self.keras, query, keys, values)
        else:
            attended = _attended_from_cache(ops, query, cache, (keys, values), position)
            keys, values = (
                _updated(ops, old, new, position, attended) for old, new in zip(cache, (keys, values), strict=True)
            )
        by_token = ops.transpose(attended, (0, 2, 1, 3))
        x = x + self.attention_output(ops.reshape(by_token, (-1, sizes.heads * sizes.head_dim)))
        return x + self._feed(self.feed_norm(x)), keys, values

    def _feed(self, x: Any) -> Any:
        ops = self.keras.ops
        if self.gate is None:
            return self.down(ops.gelu(self.up(x), approximate=True))
        return self.down(ops.silu(self.gate(x)) * self.up(x))


def _by_head(ops: Any, x: Any, length: int, heads: int, angles: Any = None) -> Any:
    """(batch x length, heads x head_dim) as (batch, heads, length, head_dim), rotated by `angles`."""
    x = ops.transpose(ops.reshape(x, (-1, length, heads, x.shape[1] // heads)), (0, 2, 1, 3))
    if angles is None:
        return x
    cosines, sines = (ops.cast(angle, x.dtype) for angle in angles)
    first, second = ops.split(x, 2, axis=-1)
    return ops.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=-1)


def _attended(keras: Any, query: Any, keys: Any, values: Any) -> Any:
    """Causal attention of a whole sequence. Only JAX shares keys and values among a group of queries uncopied."""
    ops, group = keras.ops, query.shape[1] // keys.shape[1]
    if keras.backend.backend() != "jax":
        keys, values = (ops.repeat(each, group, axis=1) for each in (keys, values))
    by_token = (ops.transpose(each, (0, 2, 1, 3)) for each in (query, keys, values))
    return ops.transpose(ops.dot_product_attention(*by_token, is_causal=True), (0, 2, 1, 3))


def _updated(ops: Any, old: Any, new: Any, position: Any, attended: Any) -> Any:
    """The keys or values with the new entry, which depends on the attention, so that XLA reads the cache first.

    Otherwise XLA would copy the cache, and a step of `small` in JAX took 12 % longer on two cores of a CPU.
    """
    return ops.slice_update(old, (0, 0, position, 0), new + 0 * attended[:, : new.shape[1]])


def _attended_from_cache(ops: Any, query: Any, cache: Any, new: Any, position: Any) -> Any:
    """The attention of one token to the cache before `position`, and to itself: `new` has its key and value.

    Each group of queries shares its keys uncopied.
    """
    (keys, values), (own_key, own_value) = cache, new
    heads, kv_heads, size = query.shape[1], keys.shape[1], query.shape[3]
    grouped = ops.reshape(query, (-1, kv_heads, heads // kv_heads, size))
    before, own = (
        ops.cast(ops.einsum("bgrd,bgcd->bgrc", grouped, each), "float32") / np.float32(np.sqrt(size))
        for each in (keys, own_key)
    )
    before = ops.where(ops.arange(keys.shape[2]) < position, before, np.float32(-np.inf))
    largest = ops.maximum(ops.max(before, axis=-1, keepdims=True), own)
    before, own = ops.exp(before - largest), ops.exp(own - largest)
    total = ops.sum(before, axis=-1, keepdims=True) + own
    attended = ops.einsum("bgrc,bgcd->bgrd", ops.cast(before / total, values.dtype), values)
    attended = attended + ops.cast(own / total, values.dtype) * own_value
    return ops.reshape(attended, (-1, heads, 1, size))


class _Decoder:
    """The whole model. `sizes`: the fields of `DecoderSizes`; `context`: the maximum number of tokens."""

    keras: Any
    name: Any
    compute_dtype: Any

    def __init__(self, sizes: Any, context: int, **options: Any) -> None:
        super().__init__(**options)
        layers, self.sizes, self.context = self.keras.layers, DecoderSizes(**sizes), context
        width, learned = self.sizes.width, self.sizes.learned_positions
        self.embedding = layers.Embedding(self.sizes.vocabulary, width, name="embedding")
        self.positions = layers.Embedding(learned, width, name="positions") if learned else None
        block = _layer(self.keras, _Block)
        self.blocks = [block(self.sizes, name=f"block_{number}") for number in range(self.sizes.layers)]
        self.norm = layers.RMSNormalization(epsilon=EPSILON, name="norm")
        tied, count = self.sizes.tied, self.sizes.vocabulary
        self.projection = None if tied else layers.Dense(count, use_bias=False, name="projection")
        self._angles = None if learned else rotations(context, self.sizes.head_dim)

    def build(self, input_shape: Any) -> None:
        self.embedding.build(input_shape)
        if self.positions is not None:
            self.positions.build((None,))
        for layer in (*self.blocks, self.norm, *([] if self.projection is None else [self.projection])):
            layer.build((None, self.sizes.width))

    def call(self, tokens: Any, position: Any = None, cache: Any = None, *, only_last: bool = False) -> Any:
        """Logits (float32), then the keys and values of each block.

        Without a `cache`, the first token is at position 0.
        """
        ops = self.keras.ops
        length, width = tokens.shape[1], self.sizes.width
        places = ops.arange(length) if position is None else ops.reshape(position, (1,))
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(places)
        angles = None if self._angles is None else [ops.take(angle, places, axis=0) for angle in self._angles]
        x, new_cache = ops.reshape(x, (-1, width)), []
        for number, block in enumerate(self.blocks):
            entries = None if cache is None else cache[2 * number : 2 * number + 2]
            x, keys, values = block(x, angles, position, entries, length=length)
            new_cache += [keys, values]
        if only_last:
            x, length = ops.reshape(ops.reshape(x, (-1, length, width))[:, -1], (-1, width)), 1
        return [ops.reshape(self._logits(x), (-1, length, self.sizes.vocabulary)), *new_cache]

    def compute_output_spec(
        self, tokens: Any, position: Any = None, cache: Any = None, *, only_last: bool = False
    ) -> Any:
        """The shapes of `call`. To find them, Keras would trace all blocks in each model of the decoder."""
        (batch, length), sizes, tensor = tokens.shape, self.sizes, self.keras.KerasTensor
        entries = (batch, sizes.kv_heads, length if cache is None else self.context, sizes.head_dim)
        logits = tensor((batch, 1 if only_last else length, sizes.vocabulary), "float32")
        return [logits, *(tensor(entries, self.compute_dtype) for _ in range(2 * sizes.layers))]

    def _logits(self, x: Any) -> Any:
        ops, x = self.keras.ops, self.norm(x)
        if self.projection is not None:
            logits = self.projection(x)
        else:
            logits = ops.einsum("rd,vd->rv", x, ops.cast(self.embedding.embeddings, x.dtype))
        return ops.cast(logits, "float32")

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()  # type: ignore[misc]
        return {**config, "sizes": asdict(self.sizes), "context": self.context}


@functools.cache
def _layer(keras: Any, methods: type) -> Any:
    """The Keras layer with these methods."""
    name = methods.__name__.removeprefix("_")
    made = type(name, (methods, keras.layers.Layer), {"keras": keras, "__doc__": methods.__doc__})
    return keras.saving.register_keras_serializable("dyno")(made)


def new_decoder(keras: Any, sizes: DecoderSizes, context: int) -> Any:
    """A decoder with new weights, in Keras' current dtype policy."""
    return _layer(keras, _Decoder)(asdict(sizes), context, name="decoder")


def round_weights(keras: Any, decoder: Any) -> float:
    """Round the weights of products to int8, with a scale for each output: the largest weight becomes 127.

    Products multiply by the integers and divide their outputs by the scale; inputs aren't rounded. Embeddings, and so a
    tied output projection, stay exact. Returns the largest rounding error in steps of the integers, at most 0.5 if the
    scales are exact.
    """
    errors = []
    for layer in decoder._flatten_layers():
        if isinstance(layer, keras.layers.Dense):
            exact = _float32(keras, layer.kernel)
            layer.quantize("int8", config=keras.quantizers.Int8QuantizationConfig(activation_quantizer=None))
            integers, scale = _float32(keras, layer.kernel), _float32(keras, layer.kernel_scale)
            errors.append(float(np.abs(exact * scale - integers).max()))
    return max(errors)


def _float32(keras: Any, values: Any) -> Any:
    return keras.ops.convert_to_numpy(keras.ops.cast(values, "float32"))


def sequence_model(keras: Any, decoder: Any, tokens: int) -> Any:
    """Tokens (batch, tokens) to logits (batch, tokens, vocabulary)."""
    inputs = keras.Input((tokens,), dtype="int32")
    return keras.Model(inputs, decoder(inputs)[0])


def prefill_model(keras: Any, decoder: Any, batch: int, tokens: int) -> Any:
    """Tokens (batch, tokens) to the most likely next token, the logits of the last token, and the cache.

    The next token has the shape (batch, 1), logits (batch, 1, vocabulary).
    """
    inputs = keras.Input(batch_shape=(batch, tokens), dtype="int32")
    logits, *cache = decoder(inputs, only_last=True)
    return keras.Model(inputs, [_most_likely(keras, logits), logits, *cache])


def _most_likely(keras: Any, logits: Any) -> Any:
    return keras.ops.cast(keras.ops.argmax(logits, axis=-1), "int32")


def step_model(keras: Any, decoder: Any, batch: int, dtype: str) -> Any:
    """One further token (batch, 1), its position () and the cache, to the most likely next token, logits and the cache.

    Logits have the shape (batch, 1, vocabulary).
    """
    sizes: DecoderSizes = decoder.sizes
    token, position = keras.Input(batch_shape=(batch, 1), dtype="int32"), keras.Input(batch_shape=(), dtype="int32")
    shape = (batch, sizes.kv_heads, decoder.context, sizes.head_dim)
    cache = [keras.Input(batch_shape=shape, dtype=dtype) for _ in range(2 * sizes.layers)]
    logits, *new_cache = decoder(token, position, cache)
    return keras.Model([token, position, *cache], [_most_likely(keras, logits), logits, *new_cache])
