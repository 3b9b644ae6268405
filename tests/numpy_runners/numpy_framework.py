"""A framework that multiplies with NumPy, under TensorFlow's name: a worker's processes without TensorFlow's import.

It runs `matmul` in float32, which is what tests of workers ask for. Zygote, runner, samples and checks are the real
ones.
"""

from contextlib import nullcontext

from dyno.errors import DeviceUnavailable


class TensorFlow:
    name = "tensorflow"
    keras = None

    def load(self):
        import numpy  # noqa: F401

    def start(self, kind, cores, replicas=1):
        import numpy as np

        if kind != "cpu":
            raise DeviceUnavailable(f"NumPy sees no {kind}")
        one = np.ones((2, 2), np.float32)
        assert (one @ one).sum() == 8

    def scope(self):
        return nullcontext()

    def versions(self):
        import numpy as np

        return {"numpy": np.__version__}

    def visible_devices(self):
        return []

    def seed(self, seed):
        """Nothing here draws."""

    def compile(self, function, *examples):
        return function

    def counted_flops(self, compiled):
        return None

    def traced(self):
        return None

    def drain(self):
        """A call returns when it is done."""

    def array(self, value, dtype):
        import numpy as np

        return np.asarray(value, dtype)

    def numpy(self, value):
        return value

    def scalar(self, value):
        return float(value)

    def matmul(self, a, b):
        return a @ b

    def allow_tf32(self, allowed):
        """There is none."""

    def total(self, value):
        return value.sum()

    def repeat(self, count, body, start):
        for _ in range(count):
            start = body(start)
        return start

    def out_of_memory(self, error):
        return False

    def device_peak_bytes(self, kind):
        return None
