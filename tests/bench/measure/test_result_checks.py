"""Each check raises its warning, with its evidence, and is silent on a clean run."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from dyno.bench.measure import result_checks
from dyno.models.result import DataOrigin, Epoch, Peak, Precision, Roof, Training, Trial


def code(raised):
    return raised.code if raised else None


def test_output_that_is_not_finite_is_counted():
    raised = result_checks.output_nonfinite(3, 100)
    assert raised.evidence == {"nonfinite": 3, "elements": 100}
    assert result_checks.output_nonfinite(0, 100) is None


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_nonfinite_loss_raises_a_warning(loss):
    raised = result_checks.loss_nonfinite(loss)
    assert (raised.code, raised.severity, raised.evidence) == ("LOSS_NONFINITE", "A", {"loss": str(loss)})
    assert result_checks.loss_nonfinite(2.5) is None


@pytest.mark.parametrize(
    ("waited", "made", "message"),
    [
        (0.1, None, None),
        (0.1, 0.1, None),
        (0.11, 0.0, "waited for its input for 11%"),
        (1.0, None, "waited for its input for 100%"),
        (0.0, 0.25, "cores spent 25% of their time making its input"),
    ],
)
def test_more_than_a_tenth_of_waiting_for_input_or_making_it_is_input_bound(waited, made, message):
    raised = result_checks.input_bound(waited, made, {"source": "png"})
    assert (raised is None) == (message is None)
    if raised is not None:
        assert (raised.code, raised.severity) == ("INPUT_BOUND", "C")
        assert message is not None
        assert message in raised.message
        assert raised.evidence == {"wait_share": waited, "core_share": made, "limit": 0.1, "source": "png"}


@pytest.mark.parametrize(("error", "wrong"), [(1e-7, False), (1e-3, True), (math.inf, True), (math.nan, True)])
def test_an_error_above_the_tolerance_is_an_incorrect_result(error, wrong):
    assert (code(result_checks.result_incorrect(error, 1e-6)) == "RESULT_INCORRECT") is wrong


@pytest.mark.parametrize(
    "operand", [np.zeros((64, 64)), np.ones(1000, np.float32), np.where(np.arange(1000) % 3 == 0, 1.0, 0.0)]
)
def test_constant_or_mostly_constant_operands_are_degenerate(operand):
    assert code(result_checks.degenerate_data(operand)) == "DEGENERATE_DATA"


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (300, 300)])
def test_random_operands_are_not(shape):
    assert result_checks.degenerate_data(np.random.default_rng(0).standard_normal(shape).astype(np.float32)) is None


def test_one_constant_column_of_many_is_not_taken_for_the_whole():
    operand = np.random.default_rng(0).standard_normal((4096, 64))
    operand[:, 0] = 127
    assert result_checks.degenerate_data(operand, shares=65536) is None


@pytest.mark.parametrize(("count", "raised"), [(2, None), (15, None), (16, "DEGENERATE_DATA")])
def test_many_samples_of_one_class_are_degenerate_but_few_may_be_chance(count, raised):
    assert code(result_checks.constant_data({"targets": np.ones(count)})) == raised


def test_images_with_equal_borders_are_not_constant():
    """2,400 images of 28 x 28 are just over 28 times 65,536 values: equal steps would read only the first column."""
    images = np.zeros((2400, 28, 28), np.uint8)
    images[7, 14, 14] = 1
    assert result_checks.constant_data({"inputs": images}) is None
    images[7, 14, 14] = 0
    assert code(result_checks.constant_data({"inputs": images})) == "DEGENERATE_DATA"


@pytest.mark.parametrize(
    ("fraction", "provenance", "above"),
    [
        (1.01, "datasheet", True),
        (1.01, "measured here", False),
        (1.06, "measured here", True),
        (0.99, "datasheet", False),
        (None, None, False),
    ],
)
def test_more_than_the_peak_is_wrong_and_a_measured_peak_has_slack(fraction, provenance, above):
    peak = Peak(value=1e12, provenance=provenance, fraction=fraction)
    assert (code(result_checks.above_peak(peak)) == "ABOVE_PEAK") is above


@pytest.mark.parametrize(("fraction", "bound"), [(0.019, True), (0.02, False), (0.8, False), (None, False)])
def test_a_device_that_is_almost_idle_is_bound_by_overhead(fraction, bound):
    unknown = Roof(reason="this workload doesn't state its memory traffic")
    assert (
        code(result_checks.overhead_bound(Peak(value=1e12, fraction=fraction), unknown)) == "OVERHEAD_BOUND"
    ) is bound
    limit = Roof(binds="memory", fraction=fraction)
    assert (code(result_checks.overhead_bound(Peak(value=1e12, fraction=0.001), limit)) == "OVERHEAD_BOUND") is bound


@pytest.mark.parametrize(
    ("monotonic_s", "epoch_s", "skewed"),
    [(2.0, 2.01, False), (2.0, 2.06, True), (2.0, 1.9, True), (60.0, 60.5, False), (60.0, 61.0, True)],
)
def test_clocks_that_disagree_by_more_than_a_percent_and_50_ms_are_skewed(monotonic_s, epoch_s, skewed):
    assert (code(result_checks.clock_skew(monotonic_s, epoch_s)) == "CLOCK_SKEW") is skewed


def a_training(losses, start=None, trials=None):
    epochs = [Epoch(index=index, time_s=1.0, loss=loss) for index, loss in enumerate(losses)]
    origin = DataOrigin(name="noise", kind="synthetic", train_samples=64, test_samples=0)
    return Training(epochs=epochs, start_loss=start, seed=0, data=origin, trials=trials or [])


@pytest.mark.parametrize("losses", [[1.0, 1.1], [0.5, 0.4, 0.6], [2.0, 1.0, 0.5, 1.2, 1.6, 1.9]])
def test_a_rising_loss_raises_a_warning(losses):
    assert code(result_checks.loss_rising(a_training(losses))) == "LOSS_RISING"


@pytest.mark.parametrize("losses", [[1.0], [1.0, 0.9], [2.0, 1.0, 1.1, 0.9, 0.8], [1.0, 0.5, 0.52, 0.49]])
def test_a_falling_loss_and_a_single_epoch_raise_nothing(losses):
    for start in (None, 0.0, 2.0):
        assert result_checks.loss_rising(a_training(losses, start)) is None


@pytest.mark.parametrize(
    ("losses", "start"),
    [
        ([2.4e9, 2065.0, 47.0], None),
        ([2.4e9, 2065.0, 47.0], 2.3),
        ([2065.0, 47.0, 2.0], 2.3),
        ([1e9], None),
        ([4.6], 2.3),
        ([2.6, 2.5], 2.3),
    ],
)
def test_a_loss_far_above_its_start_or_above_1e9_raises_a_warning(losses, start):
    raised = result_checks.loss_rising(a_training(losses, start))
    assert (raised.code, raised.severity) == ("LOSS_RISING", "B")
    assert (raised.evidence["start"], raised.evidence["highest"]) == (start, max(losses))


def test_every_trial_may_diverge_and_its_seed_is_named():
    sound = Trial(seed=0, epochs=2, loss=0.5, start_loss=2.3, highest_loss=1.0)
    exploded = sound.model_copy(update={"seed": 1, "highest_loss": 50.0})
    unknown_start = sound.model_copy(update={"start_loss": None})
    assert result_checks.loss_rising(a_training([1.0, 0.5], 2.3, [sound, unknown_start])) is None
    raised = result_checks.loss_rising(a_training([1.0, 0.5], 2.3, [sound, exploded]))
    assert raised.evidence["seed"] == 1


RECORDED = Path(__file__).parents[3] / "docs" / "results" / "recorded" / "reproduction"


@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("cifar10_1024", 0.79),
        ("cifar10_128", 1.17),
        ("fashion", 1.13),
        ("weather", 1.16),
        ("weather_small", 1.27),
        *((name, None) for name in ("imdb", "mnist_256", "mnist_512", "mnist_1024", "mnist_full_128")),
        *((name, None) for name in ("mnist_full_1024", "shakespeare", "shakespeare_small")),
    ],
)
def test_recorded_trainings_disagree_with_their_samples_by_more_than_5_percent(name, ratio):
    result = json.loads((RECORDED / f"{name}.json").read_text())["result"]
    epoch_s = next(metric["value"] for metric in result["metrics"] if metric["name"] == "epoch_time")
    epochs = [Epoch.model_validate(epoch) for epoch in result["training"]["epochs"]]
    raised = result_checks.epochs_disagree(epoch_s, epochs)
    assert (code(raised) == "EPOCHS_DISAGREE") is (ratio is not None)
    if raised is not None:
        assert raised.evidence["ratio"] == pytest.approx(ratio, abs=0.006)
        assert (raised.evidence["epochs"], raised.severity) == (len(epochs) - 1, "B")


@pytest.mark.parametrize(
    ("busy", "cpu_ratio"),
    [(1.8, 0.8), (1.44, 1.0), (None, None)],  # slower cores, and threads that waited
)
def test_the_evidence_tells_slower_cores_from_threads_that_waited(busy, cpu_ratio):
    """Sampled epochs of 8 s keep 1.8 cores busy; trained ones of 10 s keep `busy` ones."""
    used_s = None if busy is None else 10 * busy
    epochs = [Epoch(index=index, time_s=10.0, loss=1.0, cpu_s=used_s) for index in range(3)]
    raised = result_checks.epochs_disagree(8.0, epochs, 1.8)
    assert raised.evidence["cpu_ratio"] == (cpu_ratio and pytest.approx(cpu_ratio))
    assert raised.evidence["trained_cores_busy"] == (busy and pytest.approx(busy))


@pytest.mark.parametrize(("next_run", "disagrees"), [(0.0, True), (0.24, True), (0.26, False)])
def test_a_training_as_far_off_as_a_further_run_may_be_agrees(next_run, disagrees):
    epochs = [Epoch(index=index, time_s=10.0, loss=1.0) for index in range(3)]
    assert (result_checks.epochs_disagree(8.0, epochs, None, next_run) is not None) is disagrees


@pytest.mark.parametrize("times_s", [[3.0], [3.0, 0.4, 0.4, 0.4], [3.0, 0.9]])
def test_a_single_epoch_and_short_ones_are_not_compared(times_s):
    epochs = [Epoch(index=index, time_s=time_s, loss=1.0) for index, time_s in enumerate(times_s)]
    assert result_checks.epochs_disagree(0.1, epochs) is None


@pytest.mark.parametrize(
    ("requested", "observed", "differs"),
    [
        ("float32", "float32", False),
        ("float32", "tf32", True),
        ("float32", "bfloat16", True),
        ("bfloat16", "bfloat16", False),
        ("float16", "tf32", False),  # the same error
        ("float32", None, False),
    ],
)
def test_another_precision_than_requested_is_a_mismatch(requested, observed, differs):
    raised = result_checks.precision_mismatch(Precision(requested=requested, observed=observed, rel_error=1e-4))
    assert (code(raised) == "PRECISION_MISMATCH") is differs


@pytest.mark.parametrize(
    ("sizes", "only"), [([2048], True), ([1, 64, 128], True), ([2000], False), ([64, 63], False), ([1], False)]
)
def test_sizes_that_are_all_powers_of_two_raise_a_warning(sizes, only):
    assert (code(result_checks.pow2_only(sizes)) == "POW2_ONLY") is only


@pytest.mark.parametrize(("cache_bytes", "resident"), [(2000, True), (1000, True), (999, False), (None, False)])
def test_data_that_fits_in_a_known_cache_raises_a_warning(cache_bytes, resident):
    assert (code(result_checks.cache_resident(1000, cache_bytes)) == "CACHE_RESIDENT") is resident


@pytest.mark.parametrize(("kind", "raises"), [("real", False), ("sample", True), ("synthetic", True)])
def test_data_that_is_not_the_full_real_set_raises_a_warning(kind, raises):
    data = DataOrigin.model_validate({"name": "mnist", "kind": kind, "train_samples": 10, "test_samples": 5})
    raised = result_checks.synthetic_data(data)
    assert (code(raised) == "SYNTHETIC_DATA") is raises
    assert result_checks.synthetic_data(None) is None


def test_an_emulated_device_raises_a_warning():
    assert code(result_checks.emulated_device(True)) == "EMULATED_DEVICE"
    assert result_checks.emulated_device(False) is None


def test_a_batch_s_share_is_uneven_unless_it_is_a_multiple_of_8():
    assert result_checks.batch_uneven(64, 8) is None
    assert (raised := result_checks.batch_uneven(64, 16)) is not None
    assert (raised.code, raised.severity) == ("BATCH_UNEVEN", "C")
    assert raised.evidence == {"batch_size_per_replica": 4, "multiple": 8}


def test_only_widths_that_are_uneven_are_named():
    assert result_checks.width_uneven({"units": 128, "embedding": 256}) is None
    assert (raised := result_checks.width_uneven({"units": 128, "embedding": 100})) is not None
    assert raised.evidence == {"widths": {"embedding": 100}, "multiple": 128}


@pytest.mark.parametrize(("products_s", "small"), [(0.049, True), (0.05, False), (1.0, False)])
def test_a_batch_is_small_if_its_products_take_less_than_half_of_the_fixed_cost(products_s, small):
    assert (code(result_checks.batch_small(products_s, 0.1)) == "BATCH_SMALL") is small
