import os

import numpy as np
import pytest

from dyno.bench.frameworks import framework, supported
from dyno.bench.frameworks.tensorflow import TensorFlow
from dyno.errors import FrameworkMissing


def test_the_error_for_an_unknown_framework_lists_the_supported_ones():
    with pytest.raises(FrameworkMissing, match="tensorflow"):
        framework("theano")
    assert [framework(name).name for name in supported()] == supported()


def test_it_starts_with_as_many_threads_as_it_is_given_cores(tensorflow):
    import tensorflow as tf

    assert tf.config.threading.get_intra_op_parallelism_threads() == len(os.sched_getaffinity(0))


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


def test_it_knows_its_own_way_of_running_out_of_memory(tensorflow):
    import tensorflow as tf

    # A real one takes 10 s: the allocator retries.
    assert tensorflow.out_of_memory(tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"))
    assert not tensorflow.out_of_memory(ValueError("shapes"))
    assert not TensorFlow().out_of_memory(ValueError("before it was loaded"))
