"""Measure the cost of a training's input pipeline: the same step, fed by a pipeline or with a resident batch.

The pipeline works as in a training that reads files. It shuffles the images for each epoch, decodes stored files,
scales pixels to 0 to 1, stacks a batch on the host and copies it to the device. `fed` takes every batch from the
pipeline; `resident` reuses one batch in device memory. Both read the loss of each step back before they take the next
batch. If a training overlaps a step with the next copy, its pipeline may cost less. With `file_scale` the files hold
images enlarged by repeating each pixel. Such files decode faster than photographs of the same size.

No thread works between two calls of `execute`. A call leaves as many batches ready as it found, so its time includes
making as many batches as it takes. `verify` checks that the batches hold images and differ from each other,
because the loss doesn't reveal a repeated batch: a model memorises it.

FLOP of one execution (one training step): the network's FLOP (`mnist_cnn`, `cifar10_cnn`) for each image. Decoding
doesn't count. No article timed this workload, so it has no reference figures.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue

from dyno.bench import contract
from dyno.bench.datasets.loading import SAMPLED, DataKind
from dyno.bench.estimates import batch_warnings, data_warnings, held_bytes, step_warnings
from dyno.bench.frameworks.interface import Dataset
from dyno.bench.measure.result_checks import INPUT_LIMIT, constant_data, input_bound, synthetic_data
from dyno.bench.measure.warnings import warning
from dyno.bench.training import cost, step_checks, workload
from dyno.bench.training.images import ImageParams, Network
from dyno.bench.workloads.cifar10_cnn import PHOTOGRAPHS
from dyno.bench.workloads.mnist_cnn import DIGITS
from dyno.errors import FieldError, RunFailed
from dyno.models.device import Device
from dyno.models.result import DataOrigin, ResultWarning
from dyno.models.spec import FrameworkName
from dyno.settings import Settings

Rows = NDArray[np.intp]
Float32 = NDArray[np.float32]
Fill = Callable[[Rows, Float32], None]  # writes the inputs of the samples with these indices, in order


@dataclass(frozen=True)
class _Batch:
    inputs: Float32
    rows: Rows
    parts: list[Future[float]]

    def filled_in_s(self) -> float:
        """Wait for all parts and return their processor time. Raises the exception of a thread that failed."""
        return sum(part.result() for part in self.parts)


class BatchFeed:
    """Makes batches in threads. The context starts the threads; at its end, it stops them and cancels their work.

    Each epoch delivers every sample once, except samples that don't fill a batch. The order depends on the seed alone,
    not on the number of threads. `ahead`: the number of batches made before `take` needs them. `made_in_s`: the
    processor time of the batches taken so far.
    """

    def __init__(
        self,
        fill: Fill,
        targets: NDArray[Any],
        shape: tuple[int, ...],
        batch_size: int,
        seed: int,
        threads: int = 1,
        ahead: int = 0,
    ) -> None:
        self._fill, self._targets, self._shape = fill, targets, (batch_size, *shape)
        self._random = np.random.default_rng(seed)
        self._order: Rows = np.empty(0, np.intp)
        bounds = np.linspace(0, batch_size, threads + 1).astype(int).tolist()
        self._parts = [slice(first, last) for first, last in pairwise(bounds) if first < last]
        self.made_in_s = 0.0
        self.taken: Rows = self._order  # indices of the samples in the batch taken last
        self._ahead = ahead
        self._batches: deque[_Batch] = deque()
        self._pool: ThreadPoolExecutor

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(len(self._parts), thread_name_prefix="feed")
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def take(self) -> tuple[Float32, NDArray[Any]]:
        """Wait for the next batch and return its inputs and targets. Raises the exception of a thread that failed."""
        while len(self._batches) <= self._ahead:
            self._batches.append(self._begun())
        batch = self._batches.popleft()
        self.made_in_s += batch.filled_in_s()
        self.taken = batch.rows
        return batch.inputs, self._targets[batch.rows]

    def settle(self) -> None:
        """Wait for the batches made ahead. Call it at the end of the context, so that `take` finds them later."""
        for batch in self._batches:
            batch.filled_in_s()

    def _begun(self) -> _Batch:
        rows, inputs = self._next_rows(), np.empty(self._shape, np.float32)
        parts = [self._pool.submit(_timed, self._fill, rows[part], inputs[part]) for part in self._parts]
        return _Batch(inputs, rows, parts)

    def _next_rows(self) -> Rows:
        size = self._shape[0]
        if len(self._order) < size:
            self._order = self._random.permutation(len(self._targets))
        rows, self._order = self._order[:size], self._order[size:]
        return rows


def _timed(fill: Fill, rows: Rows, into: Float32) -> float:
    """Fill the rows; return the processor time of this thread alone."""
    began_s = time.thread_time()
    fill(rows, into)
    return time.thread_time() - began_s


Source = Literal["memory", "png", "jpeg"]
_JPEG_QUALITY = 90
_WHITE = np.float32(255)


@dataclass(frozen=True)
class StoredImages:
    """`fill` writes float32 images, 0 to 1. `held_bytes`: the size of all images as stored."""

    fill: Fill
    held_bytes: int


def store_images(
    images: NDArray[np.uint8], source: Source, scale: int = 1, encoding: Callable[[int], None] = lambda done: None
) -> StoredImages:
    """Store images (samples, height, width, 1 or 3) in the form `source`.

    `scale`: each pixel becomes a square of this side in the file, and decoding reduces the image again. Large files
    take minutes, so `encoding` is called with the number of finished files before each file.
    """
    if source == "memory":
        floats = images.astype(np.float32) / _WHITE
        return StoredImages(lambda rows, into: _gather(floats, rows, into), floats.nbytes)
    files: list[bytes] = []
    for image in images:
        encoding(len(files))
        files.append(_encoded(image.repeat(scale, axis=0).repeat(scale, axis=1), source))
    return StoredImages(lambda rows, into: _decode(files, scale, rows, into), sum(map(len, files)))


def _gather(floats: Float32, rows: Rows, into: Float32) -> None:
    np.take(floats, rows, axis=0, out=into, mode="clip")  # other modes make a copy


def _decode(files: Sequence[bytes], scale: int, rows: Rows, into: Float32) -> None:
    from PIL import Image

    for position, row in enumerate(rows):
        with Image.open(BytesIO(files[row])) as image:
            pixels = np.asarray(image.reduce(scale))
        np.divide(pixels.reshape(into.shape[1:]), _WHITE, out=into[position])


def _encoded(image: NDArray[np.uint8], source: Source) -> bytes:
    from PIL import Image

    file = BytesIO()
    pixels = image[..., 0] if image.shape[-1] == 1 else image
    Image.fromarray(pixels).save(file, source.upper(), quality=_JPEG_QUALITY)
    return file.getvalue()


CHECKED_BATCHES = 3  # consecutive batches: if an epoch has at least two batches, two of these belong to one epoch


def check_batches(batches: Sequence[tuple[NDArray[Any], ...]], samples: int) -> ResultWarning | None:
    """A warning if consecutive `batches` (inputs and targets) are constant or identical.

    If `samples` are too few for two full batches, identical batches are expected and raise nothing.
    """
    first = batches[0]
    if (constant := constant_data({"batches": np.stack([inputs for inputs, *_ in batches])})) is not None:
        return constant
    repeated = all((array == other).all() for batch in batches[1:] for array, other in zip(first, batch, strict=True))
    if not repeated or samples < 2 * len(first[0]):
        return None
    return warning("RESULT_INCORRECT", "The pipeline delivers the same batch repeatedly.", batches=len(batches))


RESIDENT = "resident"
_DECODING = "whose images may decode faster or slower"


@dataclass(frozen=True)
class _Call:
    """`made_in_s`: the processor time of the threads that made the call's batches."""

    took_s: float
    waited_s: float
    made_in_s: float


class FedTraining:
    """One execution is one step on a full batch. Each step reads its loss back before taking the next batch.

    So the device is idle while the step waits for its batch, in every framework. Only the losses of fed steps reflect
    what the model learned, because a model memorises a resident batch.
    """

    def __init__(self, params: "InputPipelineParams", network: Network, context: contract.BuildContext) -> None:
        self._params, self._network, self._context, self._shape = params, network, context, network.shape
        with context.phase("data"):
            self._train, self._origin = _loaded(params, network, context)
            self._stored = store_images(
                self._train.inputs,
                params.source,
                params.file_scale,
                lambda done: context.report("data", done, len(self._train), "files"),
            )
        self._feed = self._new_feed(params.input_threads, params.prefetch)
        with context.phase("build"):
            self._model = self._new_model()
            with self._new_feed() as first:
                batch = first.take()
            self._step = context.framework.fed_step(self._model, *batch)
            self._resident = self._step.placed(*batch)
        self._timed = step_checks.StepCounter.of(self._model)
        self._calls: list[_Call] = []
        self._losses = step_checks.StepLosses(params.batch_size)
        self.work = float(params.batch_size)
        flops = network.flops_per_sample * self.work
        moved = workload.step_bytes(self._model, sum(array.nbytes for array in batch))
        counted = self._step.counted_flops
        self.cases = [
            contract.Case(name, self.work, flops, "float32", execute, counted_flops=counted, bytes=moved)
            for name, execute in (("fed", self.execute), (RESIDENT, self._execute_resident))
        ]

    def compile(self) -> None:
        self._step.compile()

    def execute(self, count: int) -> None:
        """Take every batch from the pipeline and leave as many batches ready as before."""
        self._timed.counted += count
        step, waited_s, made_before_s, began_s = self._step, 0.0, self._feed.made_in_s, time.perf_counter()
        loss = 0.0
        with self._feed as feed:
            for _ in range(count):
                asked_s = time.perf_counter()
                batch = step.placed(*feed.take())
                waited_s += time.perf_counter() - asked_s
                loss = step.train(batch)
            asked_s = time.perf_counter()
            feed.settle()
            waited_s += time.perf_counter() - asked_s
        self._calls.append(_Call(time.perf_counter() - began_s, waited_s, self._feed.made_in_s - made_before_s))
        self._losses.add(loss, count)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> contract.Verification:
        wait_share, core_share = self._shares()
        on_cpu = self._context.device is None or self._context.device.driven_as == "cpu"
        pipeline = self._pipeline()
        bound = input_bound(wait_share, core_share if on_cpu else None, pipeline)
        step = self._one_step() if self._context.run == 0 else None
        checked = step_checks.check_training(self._context, self._model, self._step, self._train, self._timed, step)
        of_run = (
            bound,
            check_batches(self._few_batches(), len(self._train)),
            synthetic_data(self._origin, _DECODING),
        )
        return contract.Verification(
            warnings=[
                *self._losses.warnings(),
                *checked.warnings,
                *(raised for raised in of_run if raised is not None),
            ],
            verified=frozenset(checked.verified),
            unchecked=checked.unchecked,
            precision=checked.precision,
            tuned=checked.tuned,
            details={
                **pipeline,
                "input_limit": INPUT_LIMIT,
                "held_bytes": self._stored.held_bytes,
                "batch_bytes": int(self.work) * 4 * math.prod(self._shape),
                "batch_size": int(self.work),
                "jit_compile": self._step.jit_compile,
                "data": self._origin.model_dump(mode="json"),
                **workload.model_details(self._model),
                **checked.details,
            },
            amounts={"step": self.work},
            params={
                "jit_compile": self._step.jit_compile,
                "data": self._origin.kind,
                "train_samples": len(self._train),
            },
            figures={"input_wait_share": wait_share, "input_core_share": core_share},
        )

    def _execute_resident(self, count: int) -> None:
        self._timed.counted += count
        loss = 0.0
        for _ in range(count):
            loss = self._step.train(self._resident)
        self._losses.add(loss, count)

    def _few_batches(self) -> list[tuple[NDArray[Any], ...]]:
        """The next batches, read back from the device."""
        framework = self._context.framework
        with self._feed as feed:
            placed = [self._step.placed(*feed.take()) for _ in range(CHECKED_BATCHES)]
            feed.settle()
        return [tuple(framework.numpy(array) for array in batch) for batch in placed]

    def _new_model(self) -> Any:
        keras, params = self._context.framework.keras, self._params
        return self._network.model(keras, params.learning_rate, params.jit_compile, scaled_inputs=True)

    def _new_feed(self, threads: int = 1, ahead: int = 0) -> BatchFeed:
        seed, size = self._context.seed, self._params.batch_size
        return BatchFeed(self._stored.fill, self._train.targets, self._shape, size, seed, threads, ahead)

    def _shares(self) -> tuple[float, float]:
        """(share of the fed steps' time spent waiting, share of the cores' time spent making batches).

        Both include the warm-up. The first call may compile, so it is included only if there is no other call.
        """
        counted = self._calls[1:] or self._calls
        took_s = sum(call.took_s for call in counted)
        waited_s, made_in_s = sum(call.waited_s for call in counted), sum(call.made_in_s for call in counted)
        return waited_s / took_s, made_in_s / (took_s * self._context.cores)

    def _one_step(self) -> step_checks.CompiledStep:
        """A step on a batch from the pipeline. The comparison uses the data set's own labels for the batch's images."""

        def step() -> tuple[NDArray[Any], NDArray[Any], None]:
            with self._feed as feed:
                inputs, targets = feed.take()
                feed.settle()
            self._timed.counted += 1
            self._step.train(self._step.placed(inputs, targets))
            return inputs, self._train.targets[self._feed.taken], None

        return step_checks.CompiledStep(self._model, self._new_model, step, self._step.sync)

    def _pipeline(self) -> dict[str, JsonValue]:
        params = self._params
        return {name: getattr(params, name) for name in ("source", "file_scale", "input_threads", "prefetch")}


def _loaded(
    params: "InputPipelineParams", network: Network, context: contract.BuildContext
) -> tuple[Dataset, DataOrigin]:
    data = network.load(Settings(data_dir=context.data_dir), params.data).limited(params.train_samples, 1)
    if len(data.train_images) < params.batch_size:
        detail = f"a batch of {params.batch_size} can't be drawn from {len(data.train_images)} images"
        raise RunFailed("benchmark", "too_few_samples", detail)
    one_hot = np.eye(len(data.classes), dtype=np.float32)[data.train_labels]
    return Dataset(data.train_images, one_hot), data.origin.model_copy(update={"test_samples": 0})


NETWORKS: dict[str, Network] = {"mnist_cnn": DIGITS, "cifar10_cnn": PHOTOGRAPHS}
# Decoding time on one thread, per image and per pixel. Encoding takes longer but happens once.
_FILE_S, _PIXEL_S = 1e-4, 3e-9
_SMALLER = 10  # compression factor of a file with enlarged pixels
_BYTES_PER_WEIGHT = 4 * 4  # the weight, its gradient and Adam's two moments
_STARTED_IN_S = 5.0  # building and compiling


class InputPipelineParams(contract.Params):
    how: ClassVar[frozenset[str]] = frozenset({"source", "file_scale", "input_threads", "prefetch", "jit_compile"})

    model: Literal["mnist_cnn", "cifar10_cnn"] = "mnist_cnn"
    batch_size: Annotated[int, Field(ge=1, le=10_000)] = 128
    source: Source = Field(
        "png", description="memory: float32 images, gathered; png, jpeg: one file per image, decoded in every epoch"
    )
    file_scale: Annotated[int, Field(ge=1, le=32)] = Field(
        1,
        description="Factor by which the files' images are higher and wider than the network's; decoding reduces them",
    )
    input_threads: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="Threads on the device's cores that make batches; each makes a part of every batch"
    )
    prefetch: Annotated[int, Field(ge=0, le=64)] = Field(
        2, description="Batches made ahead of the step; 0: make each batch when the step needs it"
    )
    train_samples: Annotated[int, Field(ge=1, le=50_000)] = Field(10_000, description="Maximum images per epoch")
    data: DataKind = Field("auto", description=SAMPLED)
    learning_rate: Annotated[float, Field(gt=0, le=10)] = Field(1e-3, description="Adam's learning rate")
    jit_compile: bool = Field(False, description="Compile with XLA; JAX always does, PyTorch never")

    def fitted(self, replicas: int) -> dict[str, object]:
        return {"train_samples": self._available} if self._available < self.train_samples else {}

    @property
    def _available(self) -> int:
        """The maximum number of training images in this kind of data."""
        return self.network.samples(self.data)[0]

    def conflicts(self) -> list[FieldError]:
        errors = []
        if self.train_samples > self._available:
            detail = f'at most {self._available} with "data": "{self.data}"'
            errors.append(FieldError("/train_samples", "too-many-samples", detail))
        if self.input_threads > self.batch_size:
            detail = f"each thread makes a part of every batch: at most {self.batch_size}"
            errors.append(FieldError("/input_threads", "too-many-threads", detail))
        if self.data == "sample" and not self.network.ships_sample:
            errors.append(FieldError("/data", "no-sample", f"Dyno ships no sample of {self.model}'s images"))
        if self.source == "memory" and self.file_scale > 1:
            errors.append(FieldError("/file_scale", "no-files", 'source "memory" has no files to scale; use 1'))
        if self.train_samples < self.batch_size:
            detail = f"{self.train_samples} images are too few for a batch of {self.batch_size}"
            errors.append(FieldError("/train_samples", "too-few-samples", detail))
        return errors

    @property
    def network(self) -> Network:
        return NETWORKS[self.model]

    @property
    def as_training(self) -> ImageParams:
        """The equivalent params of the network's training workload."""
        return ImageParams(
            batch_size=self.batch_size, train_samples=self.train_samples, test_samples=1, data=self.data, epochs=1
        )


def flops(params: InputPipelineParams) -> float:
    """FLOP of one execution: a training step on a full batch."""
    return params.network.flops_per_sample * params.batch_size


def estimate(
    params: InputPipelineParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> contract.Estimate:
    """Time of both cases; memory of all images (as files or float32) and of the batches made ahead."""
    work = params.network.work(params.as_training)
    step = cost.estimate_step(params.as_training, device, work, 1)
    values, file_s = work.sample_bytes, _file_s(params)
    float_bytes = 4 * values
    kept = float_bytes if params.source == "memory" else values * max(1, params.file_scale**2 // _SMALLER)
    batch_bytes = params.batch_size * float_bytes
    executions_s = (step.time_s + params.batch_size * file_s, step.time_s)
    return contract.Estimate(
        start_s=_STARTED_IN_S + 2 * params.train_samples * file_s,
        memory_bytes=held_bytes(
            device,
            1,
            once=params.train_samples * (values + kept) + (params.prefetch + 1) * batch_bytes,
            per_replica=2 * batch_bytes + _BYTES_PER_WEIGHT * work.weights,
            shared=params.batch_size * work.step_bytes_per_sample,
        ),
        executions_s=executions_s,
    )


def _file_s(params: InputPipelineParams) -> float:
    """The time to decode one file."""
    height, width, _ = params.network.shape
    return 0.0 if params.source == "memory" else _FILE_S + params.file_scale**2 * height * width * _PIXEL_S


def lint(params: InputPipelineParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    of_device = []
    if device is not None:
        work = params.network.work(params.as_training)
        of_device = step_warnings(cost.estimate_step(params.as_training, device, work, 1), device)
    of_images = data_warnings(params.data, "its images may decode faster or slower")
    return [*of_images, *batch_warnings(params.batch_size, 1), *of_device]


def build(params: InputPipelineParams, context: contract.BuildContext) -> contract.Built:
    return FedTraining(params, params.network, context)


WORKLOAD = contract.Workload(
    name="input_pipeline",
    description="Cost of the input: the same training step fed by an image pipeline and from a resident batch",
    params=InputPipelineParams,
    metrics=(
        contract.MetricSpec("throughput", "samples/s", "higher", "Images trained on per second, fed by the pipeline"),
        contract.MetricSpec("time_per_sample", "s", "lower", "Time of one image in steady steps"),
        contract.MetricSpec("step_time", "s", "lower", "Time of one step, its input included", amount="step"),
        contract.MetricSpec(
            "input_slowdown",
            "times",
            "lower",
            "Time of a fed step divided by that of a step on a resident batch",
            against=RESIDENT,
        ),
        contract.MetricSpec(
            "input_wait_share",
            "1",
            "lower",
            "Share of the fed steps' time spent waiting for the batch after the previous step",
            each_run=True,
        ),
        contract.MetricSpec(
            "input_core_share",
            "1",
            "lower",
            "Processor time spent on making batches, as a share of the worker's cores during the fed steps",
            each_run=True,
        ),
    ),
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    datasets=("mnist", "cifar10"),
    cases_of=lambda params: ("fed", RESIDENT),
    executions=lambda params: f"a training step on a full batch of {params.batch_size} images",
    smoke=contract.Smoke(
        {"batch_size": 8, "train_samples": 32, "file_scale": 32, "prefetch": 0, "data": "sample"},
        details=frozenset({"source", "file_scale", "input_threads", "prefetch", "held_bytes", "data"}),
        warnings=frozenset({"INPUT_BOUND"}),
    ),
    bench={"source": "png", "file_scale": 4, "train_samples": 4096},
    options="image files, or images in memory; a number of threads; how long the step waits for its input",
)
