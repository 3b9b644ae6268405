"""Run a trained network in float32 and in int8: file size, latency, throughput and accuracy of both.

The run trains the network or loads another job's weights, converts it, and times four cases: each format in batches
and image by image. It also times single calls (`dyno.bench.measure.latency`). The engine decides which layers are int8;
the result lists them and their share of the multiplications.

`litert`: the framework's own format for serving. All layers are int8 (weights, activations and arithmetic),
calibrated on training images; only the inputs and outputs stay float32. `keras`: Keras' own quantisation, which
every framework runs. Only dense layers are int8: their weights are stored as int8, and every call quantises their
inputs anew.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue

from dyno.bench import estimates, references
from dyno.bench.contract import (
    LATENCIES,
    RATE,
    BuildContext,
    Built,
    Case,
    Estimate,
    MetricSpec,
    RatePerS,
    Smoke,
    Verification,
    Workload,
)
from dyno.bench.frameworks.interface import Dataset, JitCompile, Trainer, compiled_total
from dyno.bench.measure import result_checks, statistics
from dyno.bench.measure.warnings import OUTPUT_CODES
from dyno.bench.training.checkpoints import load_weights
from dyno.bench.training.images import (
    ImageParams,
    ImageTraining,
    Network,
    check_recognise,
    judge_images,
    recognise_image,
)
from dyno.bench.training.model_training import ModelTraining, Plan, TrainingOutcome
from dyno.bench.training.workload import EpochCount
from dyno.bench.workloads.cifar10_cnn import PHOTOGRAPHS
from dyno.bench.workloads.mnist_cnn import DIGITS
from dyno.errors import FieldError, RunFailed
from dyno.models.device import Device
from dyno.models.result import DataOrigin, Precision, ResultWarning, Training
from dyno.models.spec import FrameworkName
from dyno.settings import Settings

Engine = Literal["litert", "keras"]
Float32 = NDArray[np.float32]
LITERT_ON = "tensorflow"
LITERT_NEEDS = "the engine litert runs on a CPU with TensorFlow only"
_WEIGHTS_ONLY = "{}.weights.h5"


@dataclass
class ConvertedModel:
    """The float32 or int8 model. `timed(batch)` returns a function that runs the batch and drains the device.

    `file`: (name, content) of the deployable file. `in_int8`: whether any layer is int8.
    """

    file: tuple[str, bytes]
    predict: Callable[[Float32], Float32]
    timed: Callable[[Float32], Callable[[int], None]]
    details: dict[str, JsonValue] = field(default_factory=dict)
    in_int8: bool = False


def engine_for(requested: Engine | None, context: BuildContext) -> Engine:
    """The requested engine; by default LiteRT with TensorFlow on a CPU, else Keras.

    Raises RunFailed (unsupported, engine_unsupported) if LiteRT was requested and is unavailable.
    """
    on_cpu = context.device is None or context.device.driven_as == "cpu"
    available = on_cpu and context.framework.name == LITERT_ON
    if requested == "litert" and not available:
        raise RunFailed("unsupported", "engine_unsupported", LITERT_NEEDS)
    return requested or ("litert" if available else "keras")


def convert_model(
    model: Any, engine: Engine, calibration: Float32, context: BuildContext
) -> tuple[ConvertedModel, ConvertedModel]:
    """Convert a model with float32 inputs; returns (float32, int8)."""
    if engine == "litert":
        return _served(model, None, context), _served(model, calibration, context)
    return _kept(model, context), _kept(_quantised(model, context), context)


def _served(model: Any, calibration: Float32 | None, context: BuildContext) -> ConvertedModel:
    served = context.framework.served(model, context.cores, calibration)
    if served is None:
        raise RunFailed("unsupported", "engine_unsupported", "this TensorFlow build has no LiteRT")

    def timed(batch: Float32) -> Callable[[int], None]:
        def execute(count: int) -> None:
            for _ in range(count):
                served.predict(batch)  # blocks until finished

        return execute

    name = f"model.{'float32' if calibration is None else 'int8'}.{served.format}"
    tensors: dict[str, JsonValue] = dict(served.tensors)
    return ConvertedModel((name, served.file), served.predict, timed, {"tensors": tensors}, "int8" in tensors)


def _kept(model: Any, context: BuildContext) -> ConvertedModel:
    framework = context.framework
    compiled: dict[tuple[int, ...], Callable[[Any], Any]] = {}

    def outputs_of(batch: Float32) -> tuple[Callable[[Any], Any], Any]:
        on_device = framework.array(batch, "float32")
        if batch.shape not in compiled:
            compiled[batch.shape] = framework.forward(model, on_device)
        return compiled[batch.shape], on_device

    def predict(batch: Float32) -> Float32:
        forward, on_device = outputs_of(batch)
        return np.asarray(framework.numpy(forward(on_device)), np.float32)

    def timed(batch: Float32) -> Callable[[int], None]:
        forward, on_device = outputs_of(batch)
        total = compiled_total(framework, len(batch), *model.output_shape[1:])

        def execute(count: int) -> None:
            outputs = None
            for _ in range(count):
                outputs = forward(on_device)
            framework.scalar(total(outputs))

        return execute

    int8 = [layer.name for layer in model.layers if getattr(layer, "quantization_mode", None) == "int8"]
    plain = [layer.name for layer in model.layers if layer.weights and layer.name not in int8]
    details: dict[str, JsonValue] = {"int8_layers": list[JsonValue](int8), "float32_layers": list[JsonValue](plain)}
    return ConvertedModel(_saved(model, "int8" if int8 else "float32"), predict, timed, details, bool(int8))


def _quantised(model: Any, context: BuildContext) -> Any:
    keras = context.framework.keras
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    for layer in copy.layers:
        if isinstance(layer, keras.layers.Dense):  # convolutions have no int8 in Keras
            layer.quantize("int8")
    return copy


def _saved(model: Any, name: str) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="dyno-size-") as folder:
        path = Path(folder) / _WEIGHTS_ONLY.format(name)
        model.save_weights(path)
        return path.name, path.read_bytes()


_NOT_JUDGED = "int8 outputs differ from float32: the result reports differences and accuracies without judging them"
_CALIBRATION = 128  # training images that calibrate the int8 ranges


class QuantizedRun:
    """One execution is one batch through the int8 model.

    Only run 0 trains and evaluates, if the job requests it. Timing needs no trained model.
    """

    def __init__(
        self, params: "QuantizedInferenceParams", network: Network, image_flops: float, context: BuildContext
    ) -> None:
        self._params, self._network, self._context = params, network, context
        self._engine = engine_for(params.engine, context)
        with context.phase("data"):
            data = network.load(Settings(data_dir=context.data_dir), params.data)
            self._data = data.limited(params.train_samples, params.test_samples)
            check_recognise(params.recognise, self._data)
        self._trained: Training | None = None
        self._details: dict[str, JsonValue] = {}
        self._figures: dict[str, float] = {}
        model = self._model()
        with context.phase("build"):
            calibration = _scaled(self._data.train_images[:_CALIBRATION])
            self._float32, self._int8 = convert_model(model, self._engine, calibration, context)
        self.work = float(params.batch_size)
        self._image_flops = image_flops
        self.cases: list[Case] = []

    def compile(self) -> None:
        """Make the cases, which compiles Keras' models for their batches. LiteRT compiles nothing."""
        self.cases = self._cases()

    def execute(self, count: int) -> None:
        self.cases[0].execute(count)

    def complete(self, compile_s: float, first_execution_s: float) -> Training | None:
        """Write both models' files and, if the models are trained, evaluate them. The training ran earlier."""
        if self._context.artifacts is not None:
            for name, content in (self._float32.file, self._int8.file):
                (self._context.artifacts / name).write_bytes(content)
        if self._params.weights is not None or self._params.train == "full":
            self._evaluate()
        return self._trained

    def _evaluate(self) -> None:
        truth = self._data.test_labels
        self._context.report("evaluation", 0, 2 * len(truth), "samples")
        probabilities = self._outputs(self._float32)
        by_float32, by_int8 = probabilities.argmax(-1), self._outputs(self._int8).argmax(-1)
        right = {"float32": int((by_float32 == truth).sum()), "int8": int((by_int8 == truth).sum())}
        for name, count in right.items():
            interval = statistics.wilson_interval(count, len(truth))
            self._details[f"accuracy_{name}_interval"] = [interval.low, interval.high]
        self._figures = {
            **{f"accuracy_{name}": count / len(truth) for name, count in right.items()},
            "agreement": float((by_float32 == by_int8).mean()),
        }
        if self._params.recognise is not None:
            self._details["recognised"] = recognise_image(self._data, probabilities, self._params.recognise)

    def verify(self) -> Verification:
        """Check that both models give finite outputs for the timed batch. Their difference is reported, not checked."""
        batch = self._batch(self._params.batch_size)
        floats, integers = self._float32.predict(batch), self._int8.predict(batch)
        difference, outputs = float(np.abs(floats - integers).max()), np.concatenate([floats, integers])
        nonfinite = result_checks.output_nonfinite(int((~np.isfinite(outputs)).sum()), outputs.size)
        origin = self._origin()
        return Verification(
            warnings=[raised for raised in (nonfinite, result_checks.synthetic_data(origin)) if raised is not None],
            verified=frozenset({"OUTPUT_NONFINITE"}),
            unchecked=dict.fromkeys(OUTPUT_CODES - {"OUTPUT_NONFINITE"}, _NOT_JUDGED),
            precision=None if self._int8.in_int8 else Precision(requested="int8", observed="float32", rel_error=None),
            details={
                "engine": self._engine,
                "int8": self._int8.details,
                "float32": self._float32.details,
                "int8_flop_share": self._int8_share,
                "int8_note": self._int8_note(),
                "largest_difference": difference if np.isfinite(difference) else None,
                "data": origin.model_dump(mode="json"),
                **self._details,
            },
            amounts={"call": self.work},
            params={"engine": self._engine, **self._data.params},
            figures={
                "size_float32": float(len(self._float32.file[1])),
                "size_int8": float(len(self._int8.file[1])),
                **self._figures,
            },
        )

    def _model(self) -> Any:
        """The model with float32 inputs, 0 to 1, trained if the job trains. Speed figures need no training."""
        context, params = self._context, self._params
        model: Any = None
        if context.weights is not None or context.run > 0 or params.train == "steps":
            model = self._network.model(context.framework.keras, params.learning_rate, False)
            if context.weights is not None:
                load_weights(model, context.weights)
        else:
            model = self._train()
        keras = context.framework.keras
        return keras.Sequential([keras.Input(self._network.shape), *model.layers[1:]])  # without the rescaling

    def _train(self) -> Any:
        keras, params, context = self._context.framework.keras, self._params, self._context
        kept: list[Any] = []

        def judge(model: Any, trainer: Trainer) -> TrainingOutcome:
            kept.append(model)
            return judge_images(self._data, self._network.noun, trainer, context, None)

        one_hot = np.eye(len(self._data.classes), dtype=np.float32)[self._data.train_labels]
        training = ModelTraining(
            params,
            Plan(
                make=lambda jit: self._network.model(keras, params.learning_rate, jit, params.optimizer),
                train=Dataset(self._data.train_images, one_hot),
                data=self._data.origin,
                judge=judge,
                params=self._data.params,
            ),
            context,
        )
        began_s = time.perf_counter()
        training.compile()
        compiled_s = time.perf_counter()
        training.execute(1)
        self._trained = training.complete(compiled_s - began_s, time.perf_counter() - compiled_s)
        self._details["training"] = training.details()
        return kept[-1]

    def _cases(self) -> list[Case]:
        cases, image_flops = [], self._image_flops
        for size in (self._params.batch_size, 1):
            batch = self._batch(size)
            for name, dtype, model in (("int8", self._int8_dtype, self._int8), ("float32", "float32", self._float32)):
                execute = model.timed(batch)
                label = f"{name}_batch_{size}"
                moved = float(len(model.file[1]) + batch.nbytes)
                amounts = {"call": float(size)}
                cases.append(Case(label, float(size), image_flops * size, dtype, execute, amounts, bytes=moved))
        return cases

    def _batch(self, size: int) -> Float32:
        """`size` test images, repeated from the first if there are fewer."""
        return _scaled(np.resize(self._data.test_images, (size, *self._network.shape)))

    def _outputs(self, model: ConvertedModel) -> Float32:
        """The outputs for the whole test set."""
        size = self._params.batch_size
        starts = range(0, len(self._data.test_images), size)
        batches = (_scaled(self._data.test_images[start : start + size]) for start in starts)
        return np.concatenate([model.predict(batch) for batch in batches])

    def _origin(self) -> DataOrigin:
        """The data's origin, with 0 training samples if the run didn't train."""
        origin = self._data.origin
        if self._context.weights is None:
            return origin
        note = "not trained in this job: the weights come from another job"
        if self._engine == "litert":
            note += f"; the first {min(_CALIBRATION, len(self._data.train_images))} training images calibrated int8"
        notes = [text for text in (origin.note, note) if text]
        return origin.model_copy(update={"train_samples": 0, "note": "; ".join(notes)})

    def _int8_note(self) -> str:
        if self._int8_share == 1.0:
            return "all layers compute in int8"
        return f"{1 - self._int8_share:.0%} of the multiplications stay in float32: not the speed of int8 alone"

    @property
    def _int8_dtype(self) -> str:
        return "int8" if self._int8_share == 1.0 else "int8+float32"

    @property
    def _int8_share(self) -> float:
        """The share of the multiplications in int8: all, or the dense layers' share."""
        if self._engine == "litert":
            return 1.0
        dense = sum(2.0 * into * out for into, out in self._network.dense)
        return dense / (self._network.flops_per_sample / 3)


def _scaled(images: NDArray[np.uint8]) -> Float32:
    return images.astype(np.float32) / np.float32(255)


NETWORKS: dict[str, Network] = {"mnist_cnn": DIGITS, "cifar10_cnn": PHOTOGRAPHS}
_CONVERSION_S = 10.0
_CASES = 4
_CALL_S = 0.001


class QuantizedInferenceParams(ImageParams):
    untimed: ClassVar[frozenset[str]] = ImageParams.untimed | {"rate_per_s"}
    how: ClassVar[frozenset[str]] = ImageParams.how | {"engine"}

    model: Literal["mnist_cnn", "cifar10_cnn"] = "mnist_cnn"
    batch_size: Annotated[int, Field(ge=2, le=10_000)] = Field(
        256, description="Batch size of the throughput and of the training"
    )
    epochs: EpochCount = Field(3, description="Training epochs; leave out with `weights`")
    jit_compile: JitCompile = Field(False, description="For the training, whose speed isn't measured here")
    engine: Engine | None = Field(
        None,
        description="litert: all layers int8; keras: dense layers; null: litert on a CPU with TensorFlow, else keras",
    )

    rate_per_s: RatePerS | None = Field(None, description=RATE)

    def conflicts(self) -> list[FieldError]:
        errors = []
        if self.data == "sample" and not self.network.ships_sample:
            errors.append(FieldError("/data", "no-sample", f"Dyno ships no sample of {self.model}'s images"))
        if self.weights is None:
            return [*errors, *super().conflicts()]
        only = self.only_training("the weights come from another job", "jit_compile")
        return [*errors, *only, *self.beyond_the_data()]

    def conflicts_on(self, framework: FrameworkName, replicas: int) -> list[FieldError]:
        errors = super().conflicts_on(framework, replicas)
        if self.engine == "litert" and framework != LITERT_ON:
            errors.append(FieldError("/engine", "engine-unsupported", LITERT_NEEDS))
        return errors

    @property
    def available(self) -> tuple[int, int]:
        return self.network.samples(self.data)

    @property
    def draws_batches(self) -> bool:
        return self.weights is None

    @property
    def dtype(self) -> str:
        """The dtype of the run's own figures; further cases measure float32."""
        return "int8"

    @property
    def network(self) -> Network:
        return NETWORKS[self.model]


def flops(params: QuantizedInferenceParams) -> float:
    """FLOP of one execution: the forward pass of a batch, a third of a training step."""
    return params.network.flops_per_sample / 3 * params.batch_size


def estimate(
    params: QuantizedInferenceParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> Estimate:
    """The training, if any, and four cases with short calls."""
    trained = ImageTraining(lambda params: params.network).estimate(params, device, replicas, framework)
    train_s = trained.train_s if params.weights is None else 0.0  # zero without a full training
    return Estimate(_CONVERSION_S, trained.memory_bytes, train_s, _CASES * (_CALL_S,))


def lint(params: QuantizedInferenceParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    return estimates.data_warnings(params.data)


def refuses(params: QuantizedInferenceParams, device: Device) -> list[FieldError]:
    """Refuses LiteRT on an accelerator."""
    if params.engine != "litert" or device.driven_as == "cpu":
        return []
    return [FieldError("/engine", "engine-unsupported", LITERT_NEEDS)]


def build(params: QuantizedInferenceParams, context: BuildContext) -> Built:
    return QuantizedRun(params, params.network, flops(params) / params.batch_size, context)


_INCEPTION = "Size of Inception's file, which the article quotes from Google: the factor of 4 follows from the dtypes."
_UP_TO = "For TPU hardware in general, not for a timed model: the article gives no network, batch or precision."


WORKLOAD = Workload(
    name="quantized_inference",
    description="A network in float32 and in int8: size, latency, throughput, and accuracy if it is trained",
    params=QuantizedInferenceParams,
    metrics=(
        MetricSpec("throughput", "samples/s", "higher", "Images recognised per second in int8, in full batches"),
        MetricSpec(
            *("latency", "s", "lower"),
            "Mean time of a call where calls follow each other without a wait for the answer: the inverse of the "
            "throughput. For the time until an answer, see `latency_closed_p50`",
            amount="call",
        ),
        *LATENCIES,
        MetricSpec("size_float32", "bytes", "lower", "Size of the float32 model's file", once=True),
        MetricSpec("size_int8", "bytes", "lower", "Size of the int8 model's file", once=True),
        MetricSpec("accuracy_float32", "1", "higher", "Share of the test images recognised in float32", once=True),
        MetricSpec("accuracy_int8", "1", "higher", "Share of the test images recognised in int8", once=True),
        MetricSpec("agreement", "1", "higher", "Share of the test images on which both models agree", once=True),
    ),
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    references=(
        references.INTRODUCTION.figure("not said", "size_float32", 91e6, "bytes", _INCEPTION),
        references.INTRODUCTION.figure("not said", "size_int8", 23e6, "bytes", _INCEPTION),
        references.INTRODUCTION.figure("TPU", "speed_up", 25.0, "times", _UP_TO),
    ),
    datasets=("mnist", "cifar10"),
    refuses=refuses,
    cases_of=lambda params: tuple(
        f"{name}_batch_{size}" for size in (params.batch_size, 1) for name in ("int8", "float32")
    ),
    executions=lambda params: f"the outputs of the int8 model for a batch of {params.batch_size} images",
    smoke=Smoke(
        {"epochs": 1, "batch_size": 32, "train_samples": 64, "test_samples": 32, "data": "sample"},
        details=frozenset({"engine", "int8"}),
    ),
    bench={"train_samples": 8192},
    options="a network trained here, or from another job's `weights`; the class of one image (`recognise`)",
)
