from dataclasses import replace

import numpy as np
import pytest

from dyno.bench.datasets import shakespeare
from dyno.bench.measure.result_metrics import all_metrics
from dyno.bench.registry import validate_params, workload
from dyno.bench.training.text import baselines
from dyno.bench.workloads.shakespeare_lstm import (
    CharacterReader,
    ShakespeareLstmParams,
    apply_temperature,
    character_model,
    flops_per_sample,
    plan,
    write_passage,
)
from dyno.settings import Settings
from tests.bench.measure.conftest import make_record
from tests.running import started
from tests.step_flops import step_flops

SHAKESPEARE = workload("shakespeare_lstm")
TINY = {"units": 32, "embedding": 16, "window": 20, "batch_size": 64, "test_samples": 200, "jit_compile": False}
QUICK = {"epochs": 2, "steps_per_epoch": 5, "generate": 120, "validation_share": 0.01}


def _params(**params):
    return validate_params(SHAKESPEARE, TINY | params)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def built(context, artifacts):
    return started(SHAKESPEARE.build(_params(**QUICK), replace(context(), artifacts=artifacts)))


@pytest.fixture(scope="module")
def training(built):
    return built.complete(compile_s=0.0, first_execution_s=0.0)


def test_the_model_is_the_reference_one(tensorflow):
    model = character_model(tensorflow.keras, ShakespeareLstmParams(), False)
    lstm = 4 * 512 * (512 + 512 + 1)
    assert [layer.count_params() for layer in model.layers] == [256 * 512, lstm, lstm, 256 * 513]
    assert model.output_shape == (None, 100, 256)
    assert float(model.optimizer.learning_rate) == pytest.approx(1e-2)
    assert ShakespeareLstmParams().batch_size == 128


def test_flops_match_tensorflow_s_count_of_an_unrolled_graph(tensorflow):
    params = _params(recurrence="unrolled", units=7, embedding=6, window=3)
    model = character_model(tensorflow.keras, params, False)
    counted = step_flops(model, np.zeros((4, 3), np.int32), np.zeros((4, 3), np.int32))
    into_first_states = 2 * 8 * 7**2  # they are constants: nobody asks for their gradients
    assert counted == (flops_per_sample(params) - into_first_states) * 4
    assert flops_per_sample(ShakespeareLstmParams()) == pytest.approx(2.6e9, rel=0.01)


def test_targets_are_the_next_characters_and_the_parts_share_none(context):
    text = shakespeare.load(Settings(data_dir=None))
    found = plan(_params(validation_share=0.1), context())
    last, first = found.train.starts[-1], found.validation.starts[0]
    assert bytes(found.train.inputs[:9].tolist()) == b"First Cit"
    assert bytes(found.train.targets[:8].tolist()) == b"irst Cit"
    assert last + 20 < first
    assert found.validation.starts[-1] + 20 < text.train_count
    assert found.amounts == {"character": 1 / 20}


@pytest.mark.verify
def test_results_are_reported_with_unigram_and_bigram_baselines(training):
    assert training.data.kind == "real"
    assert training.test["nats_per_character"] > 0
    assert training.baselines["bigram_nats_per_character"] < training.baselines["unigram_nats_per_character"]


@pytest.mark.verify
def test_it_learns_more_than_how_frequent_each_character_is(context, tmp_path):
    """With six seeds it needed 0.76 to 0.79 of the baseline's nats, with a deviation of 0.012."""
    built = started(
        SHAKESPEARE.build(_params(**QUICK | {"steps_per_epoch": 200}), replace(context(), artifacts=tmp_path))
    )
    training = built.complete(compile_s=0.0, first_execution_s=0.0)
    learnt = training.test["nats_per_character"]
    assert learnt < 0.9 * training.baselines["unigram_nats_per_character"]
    assert training.epochs[-1].validation_loss == pytest.approx(learnt, rel=0.1)  # of another part of the text
    # Three in four of the text's characters are among these; of all that there are, one in 25.
    passage = (tmp_path / "generated.txt").read_text()
    assert sum(character in " etaoinshr\n" for character in passage) > 40


def test_the_baselines_are_the_entropies_of_a_text_whose_pairs_are_known():
    known = np.frombuffer(b"ab" * 5000, np.uint8)
    before, after = known[np.newaxis, :-1].astype(np.int32), known[np.newaxis, 1:].astype(np.int32)
    unigram, bigram = baselines(known, before, after)
    assert unigram.shape == bigram.shape == (9999,)
    assert unigram.mean() == pytest.approx(np.log(2), rel=0.05)
    assert bigram.mean() == pytest.approx(np.log((5000 + 256) / 5001), rel=0.05)


def test_a_passage_is_written_and_left_behind(built, training, artifacts):
    passage = (artifacts / "generated.txt").read_text()
    assert passage.startswith("ROMEO:")
    assert len(passage) == len("ROMEO:") + 120
    assert built.verify().details["generated"] == passage[:500]


def test_writing_reads_as_the_model_itself_does(tensorflow, context):
    model = character_model(tensorflow.keras, _params(window=6), False)
    characters = np.array([[84, 111, 32, 98, 101, 44]], np.int32)
    whole = tensorflow.numpy(model(characters))[0]
    reader = CharacterReader(model, context())
    one_by_one = [reader.read(int(character)) for character in characters[0]]
    assert np.array(one_by_one) == pytest.approx(whole, abs=1e-6)


def test_the_same_seed_writes_the_same_passage(tensorflow, context):
    model = character_model(tensorflow.keras, _params(), False)
    passages = [write_passage(model, context(), "To be", 30, temperature=1.0, seed=seed) for seed in (1, 1, 2)]
    assert passages[0] == passages[1] != passages[2]


def test_temperature_sharpens_or_flattens_the_probabilities():
    chances = np.array([0.6, 0.3, 0.1], np.float32)
    assert apply_temperature(chances, 1.0) == pytest.approx(chances, abs=1e-6)
    assert apply_temperature(chances, 0.01)[0] == pytest.approx(1.0)
    assert apply_temperature(chances, 10.0).max() < 0.4


def test_a_character_s_time_is_a_window_s_by_its_length(built):
    assert built.verify().amounts["character"] == 1 / 20
    assert {spec.amount for spec in SHAKESPEARE.metrics if spec.amount} <= built.verify().amounts.keys()


def test_characters_are_the_tokens_of_a_rate(built):
    of_character = [spec for spec in SHAKESPEARE.metrics if spec.amount == "character"]
    ran = {"work": 64.0, "amounts": built.verify().amounts}
    time, rate, *_ = all_metrics(of_character, [make_record([0.5] * 20).model_copy(update=ran)])
    assert (rate.name, rate.unit, rate.value) == ("token_rate", "tokens/s", pytest.approx(64 * 20 / 0.5))
    assert rate.value * time.value == pytest.approx(1)


def test_an_estimate_takes_in_the_passage_and_the_states(device):
    usual = SHAKESPEARE.estimate(ShakespeareLstmParams(train="full"), device)
    assert 1.46e9 / 3 < usual.memory_bytes < 1.46e9 * 3  # measured on a CPU
    assert SHAKESPEARE.estimate(ShakespeareLstmParams(batch_size=4096), device).memory_bytes > 10 * usual.memory_bytes
    longer = SHAKESPEARE.estimate(ShakespeareLstmParams(generate=100_000), device)
    assert longer.train_s > usual.train_s + 100


def test_only_synthetic_text_is_warned_of():
    assert [raised.code for raised in SHAKESPEARE.lint(_params(data="synthetic"))] == ["SYNTHETIC_DATA"]
    assert SHAKESPEARE.lint(_params(data="sample")) == []
