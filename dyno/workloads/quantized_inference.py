"""A trained network in float32 and in int8: the size of its file, latency, throughput and accuracy of both.

The network is trained here first, or comes with the weights of another job. What int8 means depends on the engine (see
`_quantized`), and the result says it: which layers, and with what share of the multiplications.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dyno.datasets.idx_images import SAMPLE_TRAIN
from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.frameworks.contract import JitCompile
from dyno.models.result import ResultWarning
from dyno.models.spec import FrameworkName
from dyno.workloads._articles import INTRODUCTION
from dyno.workloads._digits import DIGITS
from dyno.workloads._images import ImageParams, Network
from dyno.workloads._lint import of_data
from dyno.workloads._quantized import LITERT_NEEDS, LITERT_ON, Engine
from dyno.workloads._quantized_run import QuantizedRun
from dyno.workloads.cifar10_cnn import PHOTOGRAPHS
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Workload

NETWORKS: dict[str, Network] = {"mnist_cnn": DIGITS, "cifar10_cnn": PHOTOGRAPHS}
_CONVERSION_S = 10.0
_CASES = 4
_CASE_S = 4.0  # the default budget of one case, whose calls are short


class QuantizedInferenceParams(ImageParams):
    how: ClassVar[frozenset[str]] = ImageParams.how | {"engine"}
    shipped: ClassVar[int | None] = SAMPLE_TRAIN

    model: Literal["mnist_cnn", "cifar10_cnn"] = "mnist_cnn"
    batch_size: Annotated[int, Field(ge=2, le=10_000)] = Field(256, description="Of throughput, and of the training")
    epochs: Annotated[int, Field(ge=1, le=1000)] = Field(3, description="Of the training; with `weights` there is none")
    jit_compile: JitCompile = Field(False, description="Of the training, whose speed is not the question here")
    engine: Engine | None = Field(
        None, description="litert: all layers int8; keras: dense layers alone; null: litert on a CPU with TensorFlow"
    )

    def conflicts(self) -> list[FieldError]:
        found = []
        if self.data == "sample" and not self.network.ships_sample:
            found.append(FieldError("/data", "no-sample", f"of the images of {self.model} no sample ships"))
        if self.weights is None:
            return [*found, *super().conflicts()]
        return [*found, *self.only_training("the weights are another job's", "jit_compile")]

    def conflicts_on(self, framework: FrameworkName, replicas: int) -> list[FieldError]:
        found = super().conflicts_on(framework, replicas)
        if self.engine == "litert" and framework != LITERT_ON:
            found.append(FieldError("/engine", "engine-unsupported", LITERT_NEEDS))
        return found

    @property
    def draws_batches(self) -> bool:
        return self.weights is None

    @property
    def dtype(self) -> str:
        """Of the run's own figures; those in float32 are further cases."""
        return "int8"

    @property
    def network(self) -> Network:
        return NETWORKS[self.model]


def flops(params: QuantizedInferenceParams) -> float:
    """Of one execution: the forward pass of a batch, a third of a training step."""
    return params.network.flops_per_sample / 3 * params.batch_size


def estimate(
    params: QuantizedInferenceParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> Estimate:
    """The training where there is one, and four cases with short calls."""
    trained = params.network.estimate(params, device, replicas, framework)
    train_s = trained.train_s if params.weights is None else 0.0
    return Estimate(_CONVERSION_S + _CASES * _CASE_S, trained.memory_bytes, train_s)


def lint(params: QuantizedInferenceParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    return of_data(params.data)


def refuses(params: QuantizedInferenceParams, device: Device) -> list[FieldError]:
    """LiteRT on an accelerator."""
    if params.engine != "litert" or device.driven_as == "cpu":
        return []
    return [FieldError("/engine", "engine-unsupported", LITERT_NEEDS)]


def build(params: QuantizedInferenceParams, context: BuildContext) -> Built:
    return QuantizedRun(params, params.network, flops(params) / params.batch_size, context)


_INCEPTION = "Inception's file, as the article repeats it from Google: a quarter, which follows from the dtypes alone."
_UP_TO = "Of TPU hardware in general, not of a model that was timed: no network, batch or precision is given."


WORKLOAD = Workload(
    name="quantized_inference",
    description="A trained network in float32 and in int8: size, latency, throughput and accuracy of both",
    params=QuantizedInferenceParams,
    metrics=(
        MetricSpec("throughput", "images/s", "higher", "Images recognised per second, in int8, in full batches"),
        MetricSpec("latency", "s", "lower", "Time of one call", amount="call"),
        MetricSpec("size_float32", "bytes", "lower", "The file of the model in float32", once=True),
        MetricSpec("size_int8", "bytes", "lower", "The file of the model in int8", once=True),
        MetricSpec("accuracy_float32", "1", "higher", "Share of the test images that are recognised", once=True),
        MetricSpec("accuracy_int8", "1", "higher", "The same of the model in int8", once=True),
        MetricSpec("agreement", "1", "higher", "Share of the test images of which both say the same", once=True),
    ),
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    references=(
        INTRODUCTION.figure("not said", "size_float32", 91e6, "bytes", _INCEPTION),
        INTRODUCTION.figure("not said", "size_int8", 23e6, "bytes", _INCEPTION),
        INTRODUCTION.figure("TPU", "speed_up", 25.0, "times", _UP_TO),
    ),
    datasets=("mnist", "cifar10"),
    refuses=refuses,
    cases_of=lambda params: tuple(
        f"{name}_batch_{size}" for size in (params.batch_size, 1) for name in ("int8", "float32")
    ),
    executions=lambda params: f"the outputs of the int8 model for a batch of {params.batch_size} images",
)
