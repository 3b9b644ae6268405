"""The decoder against float64 NumPy, its formulas against the framework's counts, and planted faults that are found."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dyno.bench.measure.warnings import OUTPUT_CODES
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads import _decoder as decoder
from dyno.bench.workloads import _transformer_params, transformer
from dyno.errors import InvalidSpec
from tests.running import started

TRANSFORMER = workload("transformer")
TINY = decoder.PRESETS["tiny"]
LEARNED = decoder.DecoderSizes(2, 32, 4, 4, 8, 48, 256, tied=False, learned_positions=20, activation="gelu")
SHARED = decoder.DecoderSizes(2, 32, 4, 2, 8, 48, 256)
TOKENS = np.random.default_rng(0).integers(0, 256, (2, 12)).astype(np.int32)


def params(**fields):
    return validate_params(TRANSFORMER, {"preset": "tiny", "layers": 2, **fields})


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def rms_norm(x, scale):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + decoder.EPSILON) * scale


def rotated(x):
    """x: (tokens, heads, head_dim). Pairs of dimensions as complex numbers."""
    half = x.shape[2] // 2
    angles = np.outer(np.arange(len(x)), 10_000.0 ** (-np.arange(half) / half))
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[:, np.newaxis]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def by_numpy(model, sizes, tokens):
    """Logits (tokens, vocabulary) of one sequence in float64, token by token, from the weights by their names."""
    weights = {
        each.path.partition("decoder/")[2]: np.asarray(value, np.float64)
        for each, value in zip(model.weights, model.get_weights(), strict=True)
    }
    x = weights["embedding/embeddings"][tokens]
    if sizes.learned_positions:
        x = x + weights["positions/embeddings"][: len(tokens)]
    group = sizes.heads // sizes.kv_heads
    for number in range(sizes.layers):
        own = {name.partition("/")[2]: each for name, each in weights.items() if name.startswith(f"block_{number}/")}
        normed = rms_norm(x, own["attention_norm/scale"])
        query, key, value = (
            (normed @ own[f"{name}/kernel"]).reshape(len(tokens), -1, sizes.head_dim)
            for name in ("query", "key", "value")
        )
        if not sizes.learned_positions:
            query, key = rotated(query), rotated(key)
        attended = np.zeros_like(query)
        for token in range(len(tokens)):
            for head in range(sizes.heads):
                scores = key[: token + 1, head // group] @ query[token, head] / math.sqrt(sizes.head_dim)
                attended[token, head] = softmax(scores) @ value[: token + 1, head // group]
        x = x + attended.reshape(len(tokens), -1) @ own["attention_output/kernel"]
        normed = rms_norm(x, own["feed_norm/scale"])
        up = normed @ own["up/kernel"]
        if sizes.activation == "swiglu":
            gate = normed @ own["gate/kernel"]
            fed = gate / (1 + np.exp(-gate)) * up
        else:
            fed = 0.5 * up * (1 + np.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        x = x + fed @ own["down/kernel"]
    projection = weights["embedding/embeddings"].T if sizes.tied else weights["projection/kernel"]
    return rms_norm(x, weights["norm/scale"]) @ projection


def new_model(tensorflow, sizes, tokens=TOKENS.shape[1]):
    of_all = decoder.new_decoder(tensorflow.keras, sizes, tokens)
    return of_all, decoder.sequence_model(tensorflow.keras, of_all, tokens)


def empty_cache(sizes, batch, length):
    return [np.zeros((batch, sizes.kv_heads, length, sizes.head_dim), np.float32)] * (2 * sizes.layers)


def logits_of(model, tokens):
    return np.asarray(model(tokens, training=False))


@pytest.mark.parametrize("sizes", [SHARED, LEARNED], ids=["rotary-grouped-swiglu-tied", "learned-gelu-untied"])
def test_the_model_computes_what_numpy_does(tensorflow, sizes):
    _, model = new_model(tensorflow, sizes)
    for found, tokens in zip(logits_of(model, TOKENS), TOKENS, strict=True):
        np.testing.assert_allclose(found, by_numpy(model, sizes, tokens), rtol=0, atol=1e-5)


def test_a_token_depends_neither_on_later_tokens_nor_on_other_sequences(tensorflow):
    _, model = new_model(tensorflow, SHARED)
    before, changed = logits_of(model, TOKENS), TOKENS.copy()
    changed[0, 7] += 1
    after = logits_of(model, changed % 256)
    assert np.array_equal(before[1], after[1])
    assert np.array_equal(before[0, :7], after[0, :7])
    assert not np.allclose(before[0, 7], after[0, 7])


@pytest.mark.parametrize("sizes", [SHARED, LEARNED], ids=["rotary", "learned"])
def test_token_by_token_with_a_cache_gives_the_logits_of_the_whole_sequence(tensorflow, sizes):
    of_all, model = new_model(tensorflow, sizes)
    batch, length = TOKENS.shape
    step = decoder.step_model(tensorflow.keras, of_all, batch, "float32")
    cache, tensors = empty_cache(sizes, batch, length), tensorflow.keras.ops.convert_to_tensor
    expected = logits_of(model, TOKENS)
    for position in range(length):
        token = TOKENS[:, position : position + 1]
        chosen, logits, *cache = step([tensors(token), tensors(position, "int32"), *map(tensors, cache)])
        np.testing.assert_allclose(logits[:, 0], expected[:, position], rtol=0, atol=1e-5)
        assert np.array_equal(chosen[:, 0], expected[:, position].argmax(-1))


@pytest.mark.parametrize("sizes", [TINY, SHARED, LEARNED])
def test_weights_by_the_formula(tensorflow, sizes):
    _, model = new_model(tensorflow, sizes)
    assert model.count_params() == sizes.weights


@pytest.mark.parametrize(("preset", "weights"), [("llama-1b", 1_235_814_400), ("llama-8b", 8_030_261_248)])
def test_presets_have_the_number_of_weights_of_the_published_models(preset, weights):
    assert decoder.PRESETS[preset].weights == weights


def test_gpt_2_has_its_weights_without_biases():
    """GPT-2 has 124,439,808 weights: 12 blocks with 9 width-sized biases and 2 norms' shifts, and a last shift."""
    biases = 12 * (3 + 1 + 4 + 1 + 2) * 768 + 768
    assert decoder.PRESETS["gpt2-124m"].weights == 124_439_808 - biases


def test_cost_by_hand():
    """One block of width 4 with 2 heads of size 2, one of keys and values; SwiGLU 8; 3 tokens."""
    sizes = decoder.DecoderSizes(1, 4, 2, 1, 2, 8, 256)
    products = 4 * 4 + 2 * 4 * 2 + 4 * 4 + 3 * 4 * 8  # query, key and value, output, gate, up and down
    assert sizes.layer_weights == products
    attention = 4 * 4 * (1 + 2 + 3)  # 2 products of 2 heads x 2 dimensions, for each causal pair
    assert sizes.forward_flops(3, 1) == 2 * 3 * products + 2 * 256 * 4 + attention
    assert sizes.decode_flops(3) == 2 * products + 2 * 256 * 4 + 4 * 4 * 3
    decode = params(mode="decode", layers=1, width=4, heads=2, kv_heads=1, head_dim=2, feed_forward=8, context=3)
    weights = 256 * 4 + products + 2 * 4 + 4
    assert _transformer_params.traffic_bytes(decode) == 4 * (
        weights + 2 * 2 * 4 + 256
    )  # 3 entries read and one written; logits


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_formulas_agree_with_the_count_of_the_framework(context, mode):
    given = params(mode=mode, context=64, batch_size=2)
    built = started(TRANSFORMER.build(given, context()))
    assert built.counted_flops() == pytest.approx(TRANSFORMER.flops(given), rel=0.001)


@pytest.mark.verify
def test_a_training_agrees_with_the_plain_step_and_learns(with_room):
    """Before the training, it needs about ln 256 = 5.5 nats."""
    given = params(context=32, epochs=1, steps_per_epoch=40)
    built = started(TRANSFORMER.build(given, with_room()))
    training, found = built.complete(0.0, 0.0), built.verify()
    assert training.test["nats_per_character"] < 4
    assert found.details["plain_step"]["rel_error"] < found.details["plain_step"]["bound"]
    assert found.amounts["token"] == 1 / 32
    assert found.warnings == []
    assert built.counted_flops() == pytest.approx(TRANSFORMER.flops(given))


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.verify)])
@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_outputs_are_verified(context, mode, precision):
    built = started(TRANSFORMER.build(params(mode=mode, context=24, batch_size=2, precision=precision), context()))
    built.execute(3)
    found = built.verify()
    assert (found.warnings, found.verified) == ([], OUTPUT_CODES)
    assert found.precision.observed == precision


def _stale(step):
    """Each step returns the cache that it got, without the new token."""
    return lambda inputs, state: (step(inputs, [each + 0 for each in state])[0], state)


def _unlike(step):
    """Chooses a token that isn't the most likely one."""

    def chosen_at_random(inputs, state):
        (chosen, logits), cache = step(inputs, state)
        return [(chosen + 1) % 256, logits], cache

    return chosen_at_random


def _one_wrong(step):
    """The last sequence of the batch has another last token."""

    def mixed_up(inputs, state):
        token, position = inputs
        (chosen, logits), cache = step(
            [(token + (np.arange(len(token)) == len(token) - 1)[:, None]) % 256, position], state
        )
        return [chosen, logits], cache

    return mixed_up


def _elsewhere(step):
    return lambda inputs, state: step([inputs[0], inputs[1] - 1], state)


@pytest.mark.parametrize(
    "fault", [_stale, *(pytest.param(each, marks=pytest.mark.verify) for each in (_elsewhere, _unlike, _one_wrong))]
)
def test_faults_of_the_cache_are_found(context, monkeypatch, fault):
    ready = context()
    honest = type(ready.framework).step
    monkeypatch.setattr(ready.framework, "step", lambda *made_of: fault(honest(ready.framework, *made_of)))
    built = started(TRANSFORMER.build(params(mode="decode", context=512, batch_size=9), ready))
    built.execute(2)
    assert [raised.code for raised in built.verify().warnings] == ["RESULT_INCORRECT"]


def test_an_attention_that_leaves_out_the_own_token_is_found(context, monkeypatch):
    honest = decoder._attended_from_cache

    def without_own(ops, query, cache, new, position):
        return honest(ops, query, cache, [new[0], new[1] * 0], position)

    monkeypatch.setattr(decoder, "_attended_from_cache", without_own)
    built = started(TRANSFORMER.build(params(mode="decode", context=512), context()))
    assert [raised.code for raised in built.verify().warnings] == ["RESULT_INCORRECT"]


def test_a_wrong_cache_of_a_prompt_is_found(context):
    built = started(TRANSFORMER.build(params(mode="prefill", context=24), context()))
    built._cache[-1] = built._cache[-1] * 1.01
    assert [raised.code for raised in built.verify().warnings] == ["RESULT_INCORRECT"]


def test_the_shortest_context_is_two_tokens(context):
    built = started(TRANSFORMER.build(params(mode="decode", context=2), context()))
    assert built.verify().warnings == []


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.verify)])
def test_weights_of_a_training_at_a_shorter_context_generate(context, tensorflow, tmp_path, precision):
    trained = transformer.new_model(tensorflow.keras, params(context=12), jit_compile=False)
    trained.save_weights(tmp_path / "model.weights.h5")
    ready = replace(context(), weights=tmp_path / "model.weights.h5")
    built = started(TRANSFORMER.build(params(mode="decode", context=24, precision=precision), ready))
    assert built.verify().warnings == []
    embeddings = np.asarray(built._decoder.embedding.embeddings, np.float32)
    np.testing.assert_allclose(embeddings, trained.get_weights()[0], rtol=0 if precision == "float32" else 2**-8)


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.verify)])
@pytest.mark.parametrize("mode", ["prefill", pytest.param("decode", marks=pytest.mark.verify)])
def test_int8_weights_change_logits_by_little_and_are_a_quarter_of_the_bytes(context, mode, precision):
    given = params(mode=mode, context=24, weight_dtype="int8", precision=precision)
    item = {"float32": 4, "bfloat16": 2}[precision]
    built = started(TRANSFORMER.build(given, context()))
    found = built.verify()
    assert (found.warnings, found.details["weights"]) == ([], given.sizes.weights)
    assert 0.001 < found.details["rel_error_of_int8"] < 0.1
    assert built.counted_flops() == pytest.approx(TRANSFORMER.flops(given), rel=0.001)
    weights = sum(int(np.prod(each.shape)) * (1 if each.dtype == "int8" else item) for each in built._decoder.weights)
    tokens = {"prefill": 24, "decode": 25}[mode]
    assert found.bytes == weights + item * given.sizes.cache_elements(tokens) + 4 * 256


def test_a_wrong_scale_of_int8_weights_is_found(context, monkeypatch):
    """Of one output of one product, by 2 %."""
    quantize = context().framework.keras.layers.Dense.quantize

    def wrongly(layer, *given, **named):
        quantize(layer, *given, **named)
        if layer.name == "down":
            scale = layer.kernel_scale.numpy()
            layer.kernel_scale.assign(np.concatenate([scale[:1] * 1.02, scale[1:]]))

    monkeypatch.setattr(context().framework.keras.layers.Dense, "quantize", wrongly)
    built = started(TRANSFORMER.build(params(mode="prefill", context=24, weight_dtype="int8"), context()))
    [raised] = built.verify().warnings
    assert (raised.code, raised.evidence["of"]) == ("RESULT_INCORRECT", "int8 weights, in steps")


def test_float16_is_refused_on_a_cpu_only(device):
    half = params(precision="float16")
    assert [error.pointer for error in TRANSFORMER.refuses(half, device)] == ["/precision"]
    assert TRANSFORMER.refuses(half, device.model_copy(update={"kind": "gpu"})) == []
    assert TRANSFORMER.refuses(params(precision="bfloat16"), device) == []


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_a_dropped_block_is_found(context, monkeypatch, mode):
    built = TRANSFORMER.build(params(mode=mode, context=24), context())
    last = built._decoder.blocks[-1]
    honest = last.call
    monkeypatch.setattr(last, "call", lambda x, *others, length: (x, *honest(x, *others, length=length)[1:]))
    started(built)
    monkeypatch.setattr(last, "call", honest)
    built.execute(2)
    assert [raised.code for raised in built.verify().warnings] == ["RESULT_INCORRECT"]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"kv_heads": 3}, "/params/kv_heads"),
        ({"heads": 3}, "/params/heads"),
        ({"preset": "gpt2-124m", "context": 1025}, "/params/context"),
        ({"mode": "decode", "train": "full"}, "/params/train"),
        ({"mode": "decode", "epochs": 2}, "/params/epochs"),
        ({"rate_per_s": 5}, "/params/rate_per_s"),
        ({"weight_dtype": "int8"}, "/params/weight_dtype"),
        ({"mode": "decode", "weight_dtype": "int8", "precision": "float16"}, "/params/weight_dtype"),
        ({"head_dim": 7}, "/params/head_dim"),
        ({"context": 1 << 20}, "/params/context"),
        ({"vocabulary": 100}, "/params/vocabulary"),
    ],
)
def test_errors_name_the_field(fields, pointer):
    with pytest.raises(InvalidSpec) as invalid:
        params(**fields)
    assert [error.pointer for error in invalid.value.errors] == [pointer]


def test_defaults_depend_on_the_mode():
    assert (params().context, params().batch_size) == (64, 4)
    assert (params(mode="decode").context, params(mode="decode").batch_size) == (512, 1)
    assert params(mode="prefill", context=9).context == 9
    assert params(width=64).sizes == decoder.DecoderSizes(2, 64, 4, 2, 32, 384, 256)


@pytest.mark.verify
def test_a_trained_model_repeats_a_passage_by_greedy_decoding(tensorflow):
    keras = tensorflow.keras
    keras.utils.set_random_seed(0)
    passage = np.frombuffer(b"Speak, speak. You are all resolved rather to die than to famish? Resolved.", np.uint8)
    known, of_all = passage.astype(np.int32), decoder.new_decoder(keras, TINY, len(passage))
    model = decoder.sequence_model(keras, of_all, len(known) - 1)
    model.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(known[np.newaxis, :-1], known[np.newaxis, 1:], epochs=150, verbose=0)
    step = decoder.step_model(keras, of_all, 1, "float32")
    tensors = keras.ops.convert_to_tensor
    cache, written, token = (
        [tensors(each) for each in empty_cache(TINY, 1, len(known))],
        [],
        tensors(known[:1, np.newaxis]),
    )
    for position in range(len(known) - 1):
        token, _, *cache = step([token, tensors(position, "int32"), *cache])
        written.append(int(np.asarray(token).item()))
    assert bytes(written) == passage[1:].tobytes()
