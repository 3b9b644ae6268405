import os

import numpy as np
import pytest

from dyno.bench.frameworks import framework as framework_named
from dyno.bench.frameworks.interface import STREAM, HasTransfers, StreamOperands
from dyno.errors import DeviceUnavailable

RANDOM = np.random.default_rng(0)


def test_keras_runs_on_it_and_it_reports_its_versions(framework):
    assert framework.keras.backend.backend() == framework.name
    assert framework.versions().keys() == {framework.name, "keras"}
    assert all(version.count(".") >= 2 for version in framework.versions().values())


def test_a_missing_device_is_unavailable(framework):
    again = framework_named(framework.name)
    again.load()
    with pytest.raises(DeviceUnavailable, match="tpu"):
        again.start("tpu", 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_array_comes_back_as_numpy_knows_it_rounded_once(framework, dtype):
    values = np.array([[1.0, 1 / 3], [-2.5, 1e-3]], np.float32)
    back = framework.numpy(framework.array(values, dtype))
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, values, rtol=2.0**-8)
    assert (back == values).all() == (dtype == "float32")


@pytest.mark.parametrize("count", [1, 19, 20, 21, 40, 67])
def test_repeat_applies_the_body_exactly_so_often(framework, count):
    def counted(start):
        return framework.repeat(count, lambda value: value + 1, start)

    start = framework.array(np.zeros(()), "float32")
    assert framework.scalar(framework.compile(counted, start)(start)) == count


def test_a_compiled_function_gives_what_the_function_gives(framework):
    def both(a, b):
        product = framework.matmul(a, b)
        return product, framework.total(product)

    a, b = (framework.array(RANDOM.normal(size=(8, 8)), "float32") for _ in range(2))
    product, total = framework.compile(both, a, b)(a, b)
    # Eight terms of about 1 are rounded by 8 × 2^-24 at most, and sums of 64 such may cancel.
    np.testing.assert_allclose(framework.numpy(product), framework.numpy(a) @ framework.numpy(b), rtol=1e-4, atol=1e-5)
    assert framework.scalar(total) == pytest.approx(float(framework.numpy(product).sum()), rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("tf32", [None, False, True])
def test_a_float32_product_on_a_cpu_is_rounded_as_float32(framework, tf32):
    if tf32 is not None:
        framework.allow_tf32(tf32)
    a, b = (RANDOM.normal(size=(64, 64)).astype(np.float32) for _ in range(2))
    found = framework.numpy(framework.matmul(framework.array(a, "float32"), framework.array(b, "float32")))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.linalg.norm(found - exact) / np.linalg.norm(exact) < 64 * 2.0**-24  # at most; bfloat16: 2e-3, TF32: 3e-4


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_product_has_the_dtype_of_its_factors(framework, dtype):
    a = framework.array(RANDOM.normal(size=(8, 8)), dtype)
    assert str(framework.matmul(a, a).dtype).find(dtype) >= 0


@pytest.fixture
def exact_integers(framework):
    if framework.name == "torch" and os.environ.get("ONEDNN_MAX_CPU_ISA") in ("AVX2", "AVX512_CORE"):
        pytest.skip("without VNNI, PyTorch's int8 products saturate; results say RESULT_INCORRECT")


def test_integers_are_summed_in_32_bits(framework, exact_integers):
    a, b = (RANDOM.integers(-128, 128, (32, 32), dtype=np.int8) for _ in range(2))
    found = framework.numpy(framework.integer_matmul(framework.array(a, "int8"), framework.array(b, "int8")))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


def test_the_total_of_narrow_numbers_is_summed_in_float32(framework):
    ones = framework.array(np.ones((100, 100)), "float16")  # which skips odd numbers from 2,048
    assert framework.scalar(framework.total(ones)) == 10_000


def test_a_seed_decides_the_weights(framework):
    def weights(seed):
        framework.seed(seed)
        layer = framework.keras.layers.Dense(3)
        layer.build((None, 2))
        return [float(value) for value in np.ravel(layer.get_weights()[0])]

    assert weights(1) == weights(1)
    assert weights(1) != weights(2)


def test_it_knows_its_own_way_of_running_out_of_memory(framework):
    if framework.name == "tensorflow":
        pytest.skip("TensorFlow's allocator retries for 10 s; its own test makes the error")
    long = framework.array(np.zeros((1 << 24, 1)), "float32")
    wide = framework.array(np.zeros((1, 1 << 24)), "float32")
    assert framework.out_of_memory(_raised(lambda: framework.scalar(framework.total(framework.matmul(long, wide)))))
    assert not framework.out_of_memory(ValueError("shapes"))
    assert not framework_named(framework.name).out_of_memory(ValueError("before it was loaded"))


def test_a_cpu_counts_no_device_memory(framework):
    assert framework.device_peak_bytes("cpu") is None


def _raised(call):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is, is what is asked
        call()
    return caught.value


def test_a_factor_by_columns_gives_the_same_product(framework, exact_integers):
    """And PyTorch keeps that order, with which CUDA multiplies int8 seven times as fast."""
    a, b = (RANDOM.integers(-127, 128, (16, 16), dtype=np.int8) for _ in range(2))
    by_columns = framework.array(np.asfortranarray(b), "int8")
    if framework.name == "torch":
        assert by_columns.stride() == (1, 16)
    found = framework.numpy(framework.integer_matmul(framework.array(a, "int8"), by_columns))
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("kernel", STREAM)
def test_a_stream_kernel_computes_y_with_the_last_scale(framework, kernel, times):
    x, z = (np.arange(5, dtype=np.float32) + 10 * place for place in (1, 2))
    step = 0 if kernel in ("copy", "add") else 2
    scalars = (framework.array(np.array(value, np.float32), "float32") for value in (1, step))
    operands = StreamOperands(*(framework.array(values, "float32") for values in (x, z)), *scalars)
    y = framework.stream(kernel, times, operands)(framework.array(np.full_like(x, np.nan), "float32"))
    np.testing.assert_array_equal(framework.numpy(y), STREAM[kernel](x, z, np.float32(1 + (times - 1) * step)))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_step_passes_its_state_on(framework, jit_compile):
    """The state grows by the input and is multiplied by a weight of 2: ((1 + 3) x 2 + 3) x 2 = 22."""
    keras = framework.keras
    given, before = keras.Input(batch_shape=(2, 1)), keras.Input(batch_shape=(2, 3))
    twice = keras.layers.Dense(3, use_bias=False, kernel_initializer=keras.initializers.Identity(2.0))
    after = twice(before + given)
    model = keras.Model([given, before], [keras.ops.sum(after, axis=1), after])
    model.jit_compile = jit_compile
    three, one = (framework.array(np.full(shape, value), "float32") for shape, value in (((2, 1), 3.0), ((2, 3), 1.0)))
    step, state = framework.step(model, [three], [one]), [one]
    for _ in range(2):
        old = state
        (total,), state = step([three], old)
    assert framework.numpy(state[0]).tolist() == [[22.0] * 3] * 2
    assert framework.numpy(total).tolist() == [66.0] * 2
    assert framework.counted_flops(step) == 2 * 2 * 3 * 3
    if framework.name == "jax":
        assert old[0].is_deleted(), "its memory is that of the new state"


@pytest.mark.parametrize("to_host", [False, True])
def test_a_copy_writes_all_values_each_time(framework, to_host):
    if not isinstance(framework, HasTransfers):
        pytest.skip(f"{framework.name} may answer a second copy from the first one")
    values = RANDOM.normal(size=1000).astype(np.float32)
    copy = framework.transfer(values, to_host=to_host, pinned=False)  # without CUDA, PyTorch can't pin memory
    assert np.isnan(copy.arrived()).all()
    copy.execute(2)
    assert np.array_equal(copy.arrived(), values)
    assert (copy.bytes, copy.route) == (4000, "cpu to cpu")
