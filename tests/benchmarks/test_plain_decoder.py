"""The hand-written network of the benchmark is the network of `transformer`."""

import numpy as np

from benchmarks import plain_decoder
from dyno.bench.workloads import _decoder as decoder

SIZES = decoder.PRESETS["tiny"]
PATHS = {
    "attention_norm/scale": "n1",
    "query/kernel": "q",
    "key/kernel": "k",
    "value/kernel": "v",
    "attention_output/kernel": "o",
    "feed_norm/scale": "n2",
    "up/kernel": "up",
    "gate/kernel": "gate",
    "down/kernel": "down",
}


def by_hand(path):
    """The name of a weight of the Keras layer in the hand-written network."""
    path = path.partition("decoder/")[2]
    if not path.startswith("block_"):
        return path.partition("/")[0]
    block, _, name = path.removeprefix("block_").partition("/")
    return f"{block}_{PATHS[name]}"


def test_both_networks_compute_the_same(tensorflow):
    tokens = np.random.default_rng(0).integers(0, 256, (2, 9)).astype(np.int32)
    weights = {
        name: value + 0.1 * (value.ndim == 1) for name, value in plain_decoder.new_weights(SIZES, seed=3).items()
    }
    of_keras = decoder.new_decoder(tensorflow.keras, SIZES, 9)
    model = decoder.sequence_model(tensorflow.keras, of_keras, 9)
    assert {by_hand(each.path) for each in model.weights} == weights.keys()
    model.set_weights([weights[by_hand(each.path)] for each in model.weights])
    hidden, _ = plain_decoder.network(plain_decoder._tensorflow(), SIZES, weights, tokens)
    np.testing.assert_allclose(np.asarray(hidden) @ weights["embedding"].T, model(tokens), rtol=0, atol=1e-3)
