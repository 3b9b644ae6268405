"""TensorFlow, with Keras on it. The only file that imports it, and only inside methods."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from dyno.errors import DeviceUnavailable, FrameworkMissing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dyno.frameworks.contract import Samples, ServedModel, Trainer

_UNROLL = 20  # a while loop's own cost is spread over so many calls of its body


class TensorFlow:
    name = "tensorflow"

    def __init__(self) -> None:
        self._tf: Any = None
        self._keras: Any = None
        self._integer_matmul: Any = None

    def load(self) -> None:
        # Keras reads its backend once, at its first import.
        os.environ["KERAS_BACKEND"] = "tensorflow"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        # As NVML numbers GPUs, by which a device is named; CUDA's own order is the fastest first.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        try:
            import keras
            import tensorflow
        except ImportError as error:
            raise FrameworkMissing(f"tensorflow can't be imported here: {error}") from error
        if keras.backend.backend() != "tensorflow":
            raise FrameworkMissing(f"keras was imported before, on the backend {keras.backend.backend()}")
        self._tf = tensorflow
        self._keras = keras

    def start(self, kind: str, cores: int, replicas: int = 1) -> None:
        tf = self._tf
        if kind == "cpu":
            tf.config.set_visible_devices([], "GPU")
        elif not tf.config.list_physical_devices(kind.upper()):
            raise DeviceUnavailable(f"TensorFlow sees no {kind} here; it sees {tf.config.list_physical_devices()}")
        # Before the context exists: afterwards TensorFlow refuses. Its own default is every core it may run on.
        tf.config.threading.set_intra_op_parallelism_threads(cores)
        tf.config.threading.set_inter_op_parallelism_threads(cores)
        for gpu in tf.config.get_visible_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        one = tf.ones((2, 2))
        self.scalar(tf.reduce_sum(tf.matmul(one, one)))

    def scope(self) -> AbstractContextManager[object]:
        return nullcontext()

    def versions(self) -> dict[str, str]:
        return {"tensorflow": str(self._tf.__version__), "keras": str(self._keras.__version__)}

    @property
    def keras(self) -> Any:
        return self._keras

    def seed(self, seed: int) -> None:
        self._keras.utils.set_random_seed(seed)

    def compile(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        signature = [self._tf.TensorSpec(example.shape, example.dtype) for example in examples]
        return cast(
            Callable[..., Any],
            self._tf.function(function, input_signature=signature, autograph=False).get_concrete_function(),
        )

    def array(self, value: Any, dtype: str) -> Any:
        return self._tf.cast(self._tf.convert_to_tensor(value), dtype)

    def numpy(self, value: Any) -> Any:
        tf = self._tf
        narrow = value.dtype.size < tf.float32.size
        return (tf.cast(value, tf.float32) if narrow else value).numpy()

    def scalar(self, value: Any) -> float:
        return float(value.numpy())

    def matmul(self, a: Any, b: Any) -> Any:
        return self._tf.matmul(a, b)

    def integer_matmul(self, a: Any, b: Any) -> Any:
        if self._integer_matmul is None:
            tf = self._tf
            # Through XLA: TensorFlow's own int8 kernel on a CPU is a plain loop (10 GOP/s where XLA's gave 74).
            self._integer_matmul = tf.function(
                lambda left, right: tf.matmul(left, right, output_type=tf.int32), jit_compile=True, autograph=False
            )
        return self._integer_matmul(a, b)

    def allow_tf32(self, allowed: bool) -> None:
        self._tf.config.experimental.enable_tensor_float_32_execution(allowed)

    def total(self, value: Any) -> Any:
        return self._tf.reduce_sum(self._tf.cast(value, self._tf.float32))

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        rounds, rest = divmod(count, _UNROLL)
        value = start
        if rounds > 1:
            value = self._loop(rounds, lambda inner: _apply(_UNROLL, body, inner), value)
        else:
            rest = count
        return _apply(rest, body, value)

    def _loop(self, rounds: int, body: Callable[[Any], Any], start: Any) -> Any:
        tf = self._tf
        return tf.while_loop(
            lambda index, value: index < rounds,
            lambda index, value: (index + 1, body(value)),
            (tf.constant(0), start),
            parallel_iterations=1,
        )[1]

    def trainer(
        self, model: Any, samples: Samples, batch_size: int, seed: int, steps_per_execution: int = 1
    ) -> Trainer:
        from dyno.frameworks.tensorflow_trainer import TensorFlowTrainer

        return TensorFlowTrainer(self._tf, model, samples, batch_size, seed, steps_per_execution)

    def served(self, model: Any, cores: int, int8_examples: NDArray[np.float32] | None = None) -> ServedModel | None:
        from dyno.frameworks.tensorflow_lite import LiteModel

        if not hasattr(self._tf, "lite"):
            return None
        return LiteModel(self._tf, model, cores, int8_examples)

    def out_of_memory(self, error: BaseException) -> bool:
        return self._tf is not None and isinstance(error, self._tf.errors.ResourceExhaustedError)

    def device_peak_bytes(self, kind: str) -> int | None:
        if kind == "cpu":
            return None
        return int(self._tf.config.experimental.get_memory_info(f"{kind.upper()}:0")["peak"])


def _apply(count: int, body: Callable[[Any], Any], value: Any) -> Any:
    for _ in range(count):
        value = body(value)
    return value
