"""Shared parts of the image classifiers: params, network, FLOP count, estimate, plan and evaluation.

The evaluation counts, lists and draws the misclassified test images. Images stay uint8 on the device, in a quarter of
the memory of float32. The model's first layer scales them to 0 to 1. On a CPU, uint8 images are as fast as float32
images (1.8 ms per sample with CIFAR-10's network at batch 128 on two Zen 4 cores).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue

from dyno.bench.contract import BuildContext, Built, Estimate, MetricSpec
from dyno.bench.datasets import image_sets, loading
from dyno.bench.estimates import batch_warnings, data_warnings, step_warnings
from dyno.bench.frameworks.interface import Dataset, JitCompile, Trainer
from dyno.bench.measure.statistics import wilson_interval
from dyno.bench.training import evaluation, plots, workload
from dyno.bench.training.cost import Work, counts_of, estimate_step, estimate_training
from dyno.bench.training.model_training import ModelTraining, Plan, TrainingOutcome
from dyno.bench.training.workload import Optimizer, TrainingParams, new_optimizer
from dyno.errors import FieldError, RunFailed
from dyno.models.device import Device
from dyno.models.result import ResultWarning
from dyno.models.spec import FrameworkName
from dyno.settings import Settings

_WRONG_LISTED, _DRAWN = 32, 60
_LEAST = 1e-7  # Keras' losses replace smaller probabilities with this value


def judge_images(
    data: image_sets.Images, noun: str, trainer: Trainer, context: BuildContext, recognise: int | None
) -> TrainingOutcome:
    """Return the accuracy with its Wilson interval, and the misclassified images. Draws `wrong.png`.

    If `recognise` isn't None, the outcome includes the prediction for the image of this number.
    `noun` names the images in the plural, such as "digits".
    """
    context.report("evaluation", 0, len(data.test_labels), "samples")
    probabilities = trainer.predict(data.test_images, trainer.batch_size)
    predicted = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(predicted != data.test_labels)
    _draw(data, predicted, wrong, context)
    accuracy = wilson_interval(len(predicted) - len(wrong), len(predicted))
    of_labels = probabilities[np.arange(len(predicted)), data.test_labels].astype(np.float64)
    training = {
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "wrong": len(wrong),
        "test": {"loss": float(-np.log(np.clip(of_labels, _LEAST, 1.0)).mean())},
        "baselines": {evaluation.MAJORITY: float(np.bincount(data.test_labels).max() / len(predicted))},
    }
    listed: list[JsonValue] = [_described(data, probabilities, int(number)) for number in wrong[:_WRONG_LISTED]]
    details: dict[str, JsonValue] = {f"wrong_{noun}": listed}
    if recognise is not None:
        details["recognised"] = recognise_image(data, probabilities, recognise)
    return TrainingOutcome(training, details)


def _described(data: image_sets.Images, probabilities: NDArray[np.float32], index: int) -> dict[str, JsonValue]:
    """Label and prediction by number and by name; `probability`: the probability of the predicted class."""
    label, best = int(data.test_labels[index]), int(probabilities[index].argmax())
    return {
        "index": index,
        "label": label,
        "label_name": data.classes[label],
        "predicted": best,
        "predicted_name": data.classes[best],
        "probability": float(probabilities[index, best]),
    }


def recognise_image(data: image_sets.Images, probabilities: NDArray[np.float32], index: int) -> dict[str, JsonValue]:
    """The model's prediction for test image `index`. `probabilities`: (images, classes) of the whole test set."""
    by_class = zip(data.classes, probabilities[index], strict=True)
    every: dict[str, JsonValue] = {name: float(probability) for name, probability in by_class}
    return {**_described(data, probabilities, index), "probabilities": every}


def _draw(data: image_sets.Images, predicted: NDArray[np.intp], wrong: NDArray[np.intp], context: BuildContext) -> None:
    """Draw as many images as fit, misclassified ones first."""
    if context.artifacts is None:
        return
    right = np.setdiff1d(np.arange(len(predicted)), wrong, assume_unique=True)
    chosen = np.concatenate([wrong, right])[:_DRAWN]
    is_wrong = [bool(predicted[number] != data.test_labels[number]) for number in chosen]
    titles = [_title(data, int(predicted[number]), int(data.test_labels[number])) for number in chosen]
    plots.plot_gallery(context.artifacts, data.test_images[chosen], titles, is_wrong)


def _title(data: image_sets.Images, predicted: int, label: int) -> str:
    names = data.classes
    return names[predicted] if predicted == label else f"{names[predicted]}\nis {names[label]}"


Channels = Annotated[int, Field(ge=1, le=4096)]
Units = Annotated[int, Field(ge=1, le=65536)]
Rate = Annotated[float, Field(ge=0, lt=1)]
BATCH_SIZE = "Total over all replicas"
FILTERS = "Output channels of the convolutions, in order"
DENSE_UNITS = "Units of the dense layer before the last"
DROPOUT_RATES = "Rates of the dropout layers, in order: the share of values that each drops in training"
RECOGNISE = "Report the trained model's prediction for this test image, from 0"


class ImageParams(TrainingParams):
    untimed: ClassVar[frozenset[str]] = TrainingParams.untimed | {"recognise"}

    train_samples: Annotated[int, Field(ge=1, le=60_000)] | None = Field(
        None, description="Maximum training samples; null: all"
    )
    test_samples: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="Maximum test samples; null: all"
    )
    data: loading.DataKind = Field("auto", description=loading.SAMPLED)
    recognise: Annotated[int, Field(ge=0, lt=10_000)] | None = Field(None, description=RECOGNISE)

    @property
    def available(self) -> tuple[int, int]:
        """The maximum numbers of (training, test) images in this kind of data."""
        return image_sets.samples(self.data)

    @property
    def available_samples(self) -> int:
        return self.available[0]

    @property
    def samples_asked_for(self) -> tuple[str, int] | None:
        if self.train_samples is not None:
            return "train_samples", self.train_samples
        return ("data", self.available[0]) if self.data == "sample" else None

    def fitted(self, replicas: int) -> dict[str, object]:
        """Also lowers the default of `recognise` to fit a smaller test set."""
        tested, recognise = self._tested, self.recognise
        within = {} if recognise is None or recognise < tested else {"recognise": tested - 1}
        return {**super().fitted(replicas), **within}

    def conflicts(self) -> list[FieldError]:
        return [*super().conflicts(), *self.beyond_the_data()]

    def beyond_the_data(self) -> list[FieldError]:
        """Errors in fields that ask for more images than this kind of data has."""
        errors = []
        for name, limit in zip(("train_samples", "test_samples"), self.available, strict=True):
            if (getattr(self, name) or 0) > limit:
                errors.append(FieldError(f"/{name}", "too-many-samples", f'at most {limit} with "data": "{self.data}"'))
        if self.recognise is not None and self.recognise >= (tested := self._tested):
            detail = f"there are {tested} test images, numbered from 0"
            errors.append(FieldError("/recognise", "no-such-image", detail))
        return errors

    @property
    def _tested(self) -> int:
        """The maximum number of test images with these params."""
        return min(self.test_samples or self.available[1], self.available[1])


class ClassifierParams(ImageParams):
    """Params of trainings that can be tested after each epoch."""

    untimed: ClassVar[frozenset[str]] = ImageParams.untimed | {"target_accuracy"}
    tests_accuracy: ClassVar[bool] = True

    target_accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Test each epoch, and report the time until the test accuracy is this high"
    )


def check_recognise(recognise: int | None, data: image_sets.Images) -> None:
    """Raises RunFailed if the test set has no such image. Admission doesn't know which data the worker finds."""
    if recognise is not None and recognise >= len(data.test_labels):
        detail = f"test image {recognise} doesn't exist: {data.origin.name} ({data.origin.kind}) has "
        raise RunFailed("benchmark", "no_such_image", f"{detail}{len(data.test_labels)} here, numbered from 0")


@dataclass(frozen=True)
class Convolution:
    side: int  # of the output
    kernel: int
    channels: tuple[int, int]  # in, out

    @property
    def values(self) -> int:
        """Values in the output for one image."""
        return self.side**2 * self.channels[1]

    @property
    def flops(self) -> float:
        """FLOP of the forward pass for one image, multiply-add = 2: 2·H·W·k²·C_in·C_out."""
        return 2.0 * self.side**2 * self.kernel**2 * self.channels[0] * self.channels[1]


@dataclass(frozen=True)
class Network:
    """A network and its image data set. `make(keras)` returns the layers after the rescaling layer.

    `samples(kind)`: the numbers of (training, test) samples in data of that kind.
    """

    load: Callable[[Settings, loading.DataKind], image_sets.Images]
    shape: tuple[int, int, int]
    samples: Callable[[loading.DataKind], tuple[int, int]]
    make: Callable[[Any], Sequence[Any]]
    convolutions: Sequence[Convolution]
    dense: Sequence[tuple[int, int]]  # in, out
    step_bytes_per_value: float  # per output value of the convolutions, forward and backward
    noun: str = "images"
    ships_sample: bool = True

    @property
    def flops_per_sample(self) -> float:
        """FLOP of a training step per sample: three times the forward pass; see the workload's docstring."""
        return 3.0 * (sum(layer.flops for layer in self.convolutions) + sum(2 * into * out for into, out in self.dense))

    @property
    def weights(self) -> int:
        """The number of weights, without biases and normalisation."""
        kernels = sum(layer.kernel**2 * layer.channels[0] * layer.channels[1] for layer in self.convolutions)
        return kernels + sum(into * out for into, out in self.dense)

    def model(
        self,
        keras: Any,
        learning_rate: float,
        jit_compile: JitCompile,
        optimizer: Optimizer = "adam",
        *,
        scaled_inputs: bool = False,
    ) -> Any:
        """A model compiled for training on stored uint8 images or, with `scaled_inputs`, on float32 images, 0 to 1."""
        stored = [keras.Input(self.shape, dtype="uint8"), keras.layers.Rescaling(1 / 255)]
        first = [keras.Input(self.shape)] if scaled_inputs else stored
        model = keras.Sequential([*first, *self.make(keras)])
        model.compile(
            optimizer=new_optimizer(keras, optimizer, learning_rate),
            loss="categorical_crossentropy",
            metrics=["accuracy"],
            jit_compile=jit_compile,
        )
        return model

    def work(self, params: ImageParams) -> Work:
        train, test = self.samples(params.data)
        return Work(
            train_samples=min(train, params.train_samples or train),
            test_samples=min(test, params.test_samples or test),
            flops_per_sample=self.flops_per_sample,
            sample_bytes=int(np.prod(self.shape)) + 4 * self.dense[-1][1],
            step_bytes_per_sample=int(self.step_bytes_per_value * sum(layer.values for layer in self.convolutions)),
            weights=self.weights,
        )


@dataclass(frozen=True)
class ImageTraining:
    """The functions of a training's `Workload`. `network(params)`: a network whose sizes the params may set."""

    network: Callable[[Any], Network]

    def flops(self, params: ImageParams) -> float:
        """FLOP of one execution: training steps on full batches."""
        network = self.network(params)
        return network.flops_per_sample * counts_of(params, network.work(params)).execution

    def estimate(
        self, params: ImageParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
    ) -> Estimate:
        return estimate_training(params, device, self.network(params).work(params), replicas)

    def lint(self, params: ImageParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
        work = self.network(params).work(params)
        of_device = [] if device is None else step_warnings(estimate_step(params, device, work, replicas), device)
        return [*data_warnings(params.data), *batch_warnings(counts_of(params, work).batch, replicas), *of_device]

    def build(self, params: ImageParams, context: BuildContext) -> Built:
        return ModelTraining(params, _plan(self.network(params), params, context), context)


def _plan(network: Network, params: ImageParams, context: BuildContext) -> Plan:
    with context.phase("data"):
        data = network.load(Settings(data_dir=context.data_dir), params.data)
        data = data.limited(params.train_samples, params.test_samples)
        check_recognise(params.recognise, data)
        classes = np.eye(len(data.classes), dtype=np.float32)
    target = getattr(params, "target_accuracy", None)
    keras = context.framework.keras
    return Plan(
        make=lambda jit_compile: network.model(keras, params.learning_rate, jit_compile, params.optimizer),
        train=Dataset(data.train_images, classes[data.train_labels]),
        test=None if target is None else Dataset(data.test_images, classes[data.test_labels]),
        target_accuracy=target,
        data=data.origin,
        params=data.params,
        flops_per_sample=network.flops_per_sample,
        judge=lambda model, trainer: judge_images(data, network.noun, trainer, context, params.recognise),
    )


IMAGE_OPTIONS = "accuracy, a picture of the wrong images, the class of one image (`recognise`)"
IMAGE_METRICS = (
    *workload.TRAINING_METRICS,
    MetricSpec(
        "train_accuracy", "1", "higher", "Running mean over the last epoch with dropout, as Keras prints it", once=True
    ),
)
