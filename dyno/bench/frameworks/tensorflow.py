"""Run Keras on TensorFlow. Only this module and `tensorflow_trainer` import TensorFlow, inside methods.

`LiteModel` runs a trained model from a TensorFlow Lite file, the only way in Dyno to run all layers in int8.
"""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dyno.bench.frameworks.interface import (
    STREAM,
    Dataset,
    FedStep,
    ServedModel,
    Step,
    StreamCall,
    StreamKernel,
    StreamOperands,
    Trainer,
    split_state,
)
from dyno.bench.frameworks.keras import KerasFramework
from dyno.bench.frameworks.plain_step import PlainStep
from dyno.bench.frameworks.tensorflow_trainer import TensorFlowFedStep, TensorFlowTrainer, counted_flops
from dyno.errors import DeviceUnavailable, FrameworkMissing


class LiteModel:
    """See `ServedModel`. Inputs and outputs are float32; an int8 model converts them."""

    format = "tflite"

    def __init__(self, tf: Any, model: Any, cores: int, int8_examples: NDArray[np.float32] | None) -> None:
        self.file = _converted(tf, model, int8_examples)
        self._interpreter = tf.lite.Interpreter(model_content=self.file, num_threads=cores)
        self._input = self._interpreter.get_input_details()[0]["index"]
        self._output = self._interpreter.get_output_details()[0]["index"]
        self._shape: tuple[int, ...] = ()

    @property
    def tensors(self) -> dict[str, int]:
        """The number of tensors of each dtype in the file, and so how many tensors the conversion made int8."""
        counts: dict[str, int] = {}
        for tensor in self._interpreter.get_tensor_details():
            dtype = tensor["dtype"].__name__
            counts[dtype] = counts.get(dtype, 0) + 1
        return counts

    def predict(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        interpreter = self._interpreter
        if inputs.shape != self._shape:
            interpreter.resize_tensor_input(self._input, inputs.shape)
            interpreter.allocate_tensors()
            self._shape = inputs.shape
        interpreter.set_tensor(self._input, inputs)
        interpreter.invoke()
        outputs: NDArray[np.float32] = interpreter.get_tensor(self._output)
        return outputs


def _converted(tf: Any, model: Any, int8_examples: NDArray[np.float32] | None) -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if int8_examples is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]  # other operations raise
        converter.representative_dataset = lambda: _one_by_one(int8_examples)
    with contextlib.redirect_stdout(io.StringIO()):  # Keras prints the model's endpoints
        return bytes(converter.convert())


def _one_by_one(examples: NDArray[np.float32]) -> Iterator[list[NDArray[np.float32]]]:
    for number in range(len(examples)):
        yield [examples[number : number + 1]]


_UNROLL = 20  # calls of the body per iteration of the while loop, to spread the loop's own cost
_WRAPPED = "__wrapped__"  # prefix of single operations that TensorFlow wraps in a function without a trace


class TensorFlow(KerasFramework):
    name = "tensorflow"

    def __init__(self) -> None:
        super().__init__()
        self._tf: Any = None
        self._kind = "cpu"
        self._strategy: Any = None
        self._integer_matmul: Any = None
        self._traced: list[str] = []
        self._names: set[str] = set()  # of traced functions, including TensorFlow's numbers

    def load(self) -> None:
        # Keras reads its backend once, at its first import.
        os.environ["KERAS_BACKEND"] = "tensorflow"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
        try:
            import keras
            import tensorflow
        except ImportError as error:
            raise FrameworkMissing(f"can't import tensorflow: {error}") from error
        if keras.backend.backend() != "tensorflow":
            raise FrameworkMissing(f"keras is already imported with the backend {keras.backend.backend()}")
        self._tf = tensorflow
        self._keras = keras

    def start(self, kind: str, cores: int, replicas: int = 1) -> None:
        tf, self._kind = self._tf, kind
        # TensorFlow rejects these settings once its context exists.
        devices = _virtual_cpus(tf, replicas) if kind == "cpu" else _accelerators(tf, kind, replicas)
        # By default TensorFlow uses one thread per allowed core.
        tf.config.threading.set_intra_op_parallelism_threads(cores)
        tf.config.threading.set_inter_op_parallelism_threads(cores)
        if replicas > 1:
            self._strategy = tf.distribute.MirroredStrategy(devices)
        # A constant and one operation: each further kind of operation costs a new process 5 to 10 ms. For a product,
        # oneDNN would first compile its kernels, which takes 30 ms and is of no use to other work.
        tf.square(tf.constant(1.0)).numpy()

    def scope(self) -> AbstractContextManager[object]:
        return (
            super().scope() if self._strategy is None else cast(AbstractContextManager[object], self._strategy.scope())
        )

    def compile(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        signature = [self._tf.TensorSpec(example.shape, example.dtype) for example in examples]
        return cast(
            Callable[..., Any],
            self._tf.function(function, input_signature=signature, autograph=False).get_concrete_function(),
        )

    def counted_flops(self, compiled: Callable[..., Any]) -> float | None:
        return counted_flops(compiled.graph)  # type: ignore[attr-defined]

    def traced(self) -> Sequence[str]:
        """Omits XLA's compilations at a function's first run, and those for new shapes.

        Fixed signatures exclude new shapes.
        """
        from tensorflow.python.eager import context

        names: set[str] = context.context().list_function_names() - self._names
        self._names |= names
        self._traced += sorted(_unnumbered(name) for name in names if not name.startswith(_WRAPPED))
        return self._traced

    def drain(self) -> None:
        self._tf.test.experimental.sync_devices()

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
            # With XLA, whose int8 kernel reached 74 GOP/s on a CPU. TensorFlow's own kernel is a plain loop (10 GOP/s).
            self._integer_matmul = tf.function(
                lambda left, right: tf.matmul(left, right, output_type=tf.int32), jit_compile=True, autograph=False
            )
        return self._integer_matmul(a, b)

    def allow_tf32(self, allowed: bool) -> None:
        self._tf.config.experimental.enable_tensor_float_32_execution(allowed)

    def total(self, value: Any) -> Any:
        return self._tf.reduce_sum(self._tf.cast(value, self._tf.float32))

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        rounds, remaining = divmod(count, _UNROLL)
        value = start
        if rounds > 1:
            value = self._loop(rounds, lambda inner: _apply(_UNROLL, body, inner), value)
        else:
            remaining = count
        return _apply(remaining, body, value)

    def _loop(self, rounds: int, body: Callable[[Any], Any], start: Any) -> Any:
        tf = self._tf
        return tf.while_loop(
            lambda index, value: index < rounds,
            lambda index, value: (index + 1, body(value)),
            (tf.constant(0), start),
            parallel_iterations=1,
        )[1]

    def stream(self, kernel: StreamKernel, times: int, operands: StreamOperands) -> StreamCall:
        """Compiled by XLA: TensorFlow itself would compute a triad in two kernels, with an array between them.

        Each call writes to a new array, for which TensorFlow reuses the memory of an earlier one.
        """
        tf, apply = self._tf, STREAM[kernel]

        def loop(x: Any, z: Any, scale: Any, step: Any) -> Any:
            return tf.while_loop(
                lambda index, *_: index < times,
                lambda index, _, scale: (index + 1, apply(x, z, scale), scale + step),
                (tf.constant(0), tf.zeros(x.shape), scale),
            )[1]

        in_loop = self._kind == "cpu" and times > 1
        # The operands are arguments, because XLA would treat captured tensors as constants.
        compiled = tf.function(
            loop if in_loop else lambda x, z, scale, step: apply(x, z, scale),
            input_signature=[tf.TensorSpec(operand.shape, operand.dtype) for operand in operands],
            jit_compile=True,
            autograph=False,
        ).get_concrete_function()

        def calls(y: Any) -> Any:
            scale = operands.scale
            for number in range(times):
                scale = scale + operands.step if number else scale
                y = compiled(operands.x, operands.z, scale, operands.step)
            return y

        return (lambda y: compiled(*operands)) if in_loop else calls

    def trainer(
        self, model: Any, samples: Dataset, batch_size: int, seed: int, steps_per_execution: int = 1
    ) -> Trainer:
        strategy = self._strategy or self._tf.distribute.get_strategy()
        return TensorFlowTrainer(self._tf, strategy, model, samples, batch_size, seed, steps_per_execution)

    def plain_step(self, model: Any, *, exact: bool) -> PlainStep:
        tf = self._tf
        if model.jit_compile:  # XLA has its own random number generator
            for layer in model._flatten_layers():
                if hasattr(layer, "seed_generator"):
                    layer.call = tf.function(layer.call, jit_compile=True, autograph=False)

        def gradients(inputs: NDArray[Any], targets: NDArray[Any]) -> tuple[float, Sequence[Any]]:
            tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
            self.allow_tf32(tf32 and not exact)
            try:
                with tf.GradientTape() as tape:
                    loss = model.compute_loss(inputs, targets, model(inputs, training=True), training=True)
                    scaled = model.optimizer.scale_loss(loss)
                return float(loss), tape.gradient(scaled, [variable.value for variable in model.trainable_variables])
            finally:
                self.allow_tf32(tf32)

        def mean(parts: Sequence[Any]) -> Any:
            """The mean gradient. An embedding's gradient has only some rows; the optimiser skips the other rows."""
            if not isinstance(parts[0], tf.IndexedSlices):
                return tf.add_n(list(parts)) / len(parts)
            values, rows = ([getattr(part, name) for part in parts] for name in ("values", "indices"))
            return tf.IndexedSlices(tf.concat(values, 0) / len(parts), tf.concat(rows, 0), parts[0].dense_shape)

        def apply(by_part: Sequence[Sequence[Any]]) -> None:
            gradients = [mean(parts) for parts in zip(*by_part, strict=True)]
            model.optimizer.apply(gradients, model.trainable_variables)

        return PlainStep(model, gradients, apply, exact=exact)

    def fed_step(self, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> FedStep:
        return TensorFlowFedStep(self._tf, model, inputs, targets)

    def forward(self, model: Any, example: Any) -> Callable[[Any], Any]:
        tf = self._tf
        signature = [tf.TensorSpec(example.shape, example.dtype)]
        xla = bool(getattr(model, "jit_compile", False))
        outputs = tf.function(
            lambda batch: model(batch, training=False), input_signature=signature, jit_compile=xla, autograph=False
        ).get_concrete_function()
        if xla:  # TensorFlow's XLA compiles when the function runs
            outputs(example)
        return cast(Callable[[Any], Any], outputs)

    def step(self, model: Any, inputs: Sequence[Any], state: Sequence[Any]) -> Step:
        tf = self._tf
        signature = [[tf.TensorSpec(each.shape, each.dtype) for each in group] for group in (inputs, state)]
        xla = bool(getattr(model, "jit_compile", False))

        def outputs(inputs: Any, state: Any) -> Any:
            return split_state(model([*inputs, *state], training=False), len(state))

        compiled = tf.function(outputs, input_signature=signature, jit_compile=xla, autograph=False)
        step = compiled.get_concrete_function()
        if xla:
            step(list(inputs), list(state))
        return cast(Step, step)

    def served(self, model: Any, cores: int, int8_examples: NDArray[np.float32] | None = None) -> ServedModel | None:
        if not hasattr(self._tf, "lite"):
            return None
        return LiteModel(self._tf, model, cores, int8_examples)

    def out_of_memory(self, error: BaseException) -> bool:
        return self._tf is not None and isinstance(error, self._tf.errors.ResourceExhaustedError)

    def visible_devices(self) -> list[dict[str, Any]]:
        config = self._tf.config
        return [
            {"name": device.name, "kind": device.device_type.lower()}
            | {name: str(value) for name, value in config.experimental.get_device_details(device).items()}
            for device in config.list_physical_devices()
        ]

    def device_peak_bytes(self, kind: str) -> int | None:
        if kind == "cpu":
            return None
        return int(self._tf.config.experimental.get_memory_info(f"{kind.upper()}:0")["peak"])


def _unnumbered(name: str) -> str:
    """ "__inference_step_123" -> "step"."""
    return re.sub(r"^__(inference|forward|backward)_|_\d+$", "", name)


def _apply(count: int, body: Callable[[Any], Any], value: Any) -> Any:
    for _ in range(count):
        value = body(value)
    return value


def _virtual_cpus(tf: Any, replicas: int) -> list[str]:
    """Divide the host's processor into `replicas` virtual devices that share its memory and threads."""
    if tf.test.is_built_with_cuda():  # without CUDA, TensorFlow can find no GPU, and a search would cost 2 ms
        tf.config.set_visible_devices([], "GPU")
    if replicas > 1:
        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    return [f"/CPU:{index}" for index in range(replicas)]


def _accelerators(tf: Any, kind: str, replicas: int) -> list[str]:
    """Select the first `replicas` accelerators; TensorFlow doesn't touch the others."""
    devices = tf.config.list_physical_devices(kind.upper())
    if len(devices) < replicas:
        visible = ", ".join(device.name for device in tf.config.list_physical_devices())
        missing = f"{replicas} {kind}s" if devices else kind
        raise DeviceUnavailable(f"TensorFlow sees no {missing} on this host; it sees {visible}")
    chosen = devices[:replicas]
    tf.config.set_visible_devices(chosen, kind.upper())
    if kind == "gpu":
        for gpu in chosen:
            tf.config.experimental.set_memory_growth(gpu, True)
    return [f"/{kind.upper()}:{index}" for index in range(replicas)]
