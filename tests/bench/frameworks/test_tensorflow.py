import os

import numpy as np
import pytest

from dyno.bench.frameworks import framework, supported
from dyno.bench.frameworks.tensorflow import TensorFlow
from dyno.errors import DeviceUnavailable, FrameworkMissing


def test_the_error_for_an_unknown_framework_lists_the_supported_ones():
    with pytest.raises(FrameworkMissing, match="tensorflow"):
        framework("theano")
    assert [framework(name).name for name in supported()] == supported()


def test_keras_runs_on_tensorflow(tensorflow):
    assert tensorflow.keras.backend.backend() == "tensorflow"
    assert tensorflow.versions().keys() == {"tensorflow", "keras"}


def test_it_starts_with_as_many_threads_as_it_is_given_cores(tensorflow):
    import tensorflow as tf

    assert tf.config.threading.get_intra_op_parallelism_threads() == len(os.sched_getaffinity(0))


def test_a_device_that_tensorflow_does_not_see_is_unavailable(tensorflow):
    import tensorflow as tf

    if tf.config.list_physical_devices("TPU"):
        pytest.skip("a TPU is here")
    with pytest.raises(DeviceUnavailable, match="no tpu"):
        tensorflow.start("tpu", 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_array_comes_back_as_numpy_knows_it_rounded_once(tensorflow, dtype):
    values = np.array([[1.0, 1 / 3], [-2.5, 1e-3]], np.float32)
    back = tensorflow.numpy(tensorflow.array(values, dtype))
    assert back.dtype == np.float32
    np.testing.assert_allclose(back, values, rtol=2.0**-8)
    assert (back == values).all() == (dtype == "float32")


@pytest.mark.parametrize("count", [1, 19, 20, 21, 40, 67])
def test_repeat_applies_the_body_exactly_so_often(tensorflow, count):
    def counted(start):
        return tensorflow.repeat(count, lambda value: value + 1, start)

    start = tensorflow.array(np.zeros(()), "float32")
    assert tensorflow.scalar(tensorflow.compile(counted, start)(start)) == count


def test_compiling_executes_nothing(tensorflow):
    import tensorflow as tf

    ran = tf.Variable(0)

    def counting(value):
        ran.assign_add(1)
        return value

    value = tensorflow.array(np.ones(3), "float32")
    compiled = tensorflow.compile(counting, value)
    assert ran.numpy() == 0
    compiled(value)
    assert ran.numpy() == 1


def test_the_total_of_narrow_numbers_is_summed_in_float32(tensorflow):
    ones = tensorflow.array(np.ones((100, 100)), "float16")
    assert (
        tensorflow.scalar(tensorflow.total(ones)) == 10_000
    )  # float16 ends at 65,504 and skips odd numbers from 2,048


def test_a_seed_decides_the_weights(tensorflow):
    def weights(seed):
        tensorflow.seed(seed)
        layer = tensorflow.keras.layers.Dense(3)
        layer.build((None, 2))
        return [float(value) for value in np.ravel(layer.get_weights()[0])]

    assert weights(1) == weights(1)
    assert weights(1) != weights(2)


def test_it_knows_its_own_way_of_running_out_of_memory(tensorflow):
    import tensorflow as tf

    # A real one takes 10 s: the allocator retries.
    assert tensorflow.out_of_memory(tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"))
    assert not tensorflow.out_of_memory(ValueError("shapes"))
    assert not TensorFlow().out_of_memory(ValueError("before it was loaded"))
