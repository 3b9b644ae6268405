"""The run of `input_pipeline`: one compiled training step, fed by a pipeline and then from a batch that stays there."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.errors import RunFailed
from dyno.frameworks.contract import Samples
from dyno.measure.result_checks import INPUT_LIMIT, input_bound, loss_nonfinite, synthetic_data
from dyno.models.result import DataOrigin
from dyno.settings import Settings
from dyno.workloads._fed_checks import LOOKED_AT, unfed
from dyno.workloads._feed import Feed
from dyno.workloads._image_source import stored
from dyno.workloads._images import Network
from dyno.workloads._reference_step import Timed
from dyno.workloads._timed_steps import TimedSteps
from dyno.workloads._training_checks import checked
from dyno.workloads._training_details import of_model
from dyno.workloads.contract import BuildContext, Case, Verification

if TYPE_CHECKING:
    from dyno.workloads.input_pipeline import InputPipelineParams

RESIDENT = "resident"
_DECODING = "whose images may take longer or shorter to decode"


@dataclass(frozen=True)
class _Call:
    """`made_in_s`: the processor time of the threads that made its batches."""

    took_s: float
    waited_s: float
    made_in_s: float


class FedTraining:
    """One execution is one step on a full batch; its loss is read back before the next batch is taken.

    So whatever the step waits for its batch the device waits too, in every framework. Only the fed steps say what was
    learned: a batch that stays is learned by heart.
    """

    def __init__(self, params: InputPipelineParams, network: Network, context: BuildContext) -> None:
        self._params, self._network, self._context, self._shape = params, network, context, network.shape
        with context.phase("data"):
            self._train, self._origin = _loaded(params, network, context)
            self._stored = stored(
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
        self._timed = TimedSteps.of(self._model)
        self._calls: list[_Call] = []
        self._fed_loss = self._unfit_loss = 0.0
        self.work = float(params.batch_size)
        flops = network.flops_per_sample * self.work
        self.cases = [
            Case(name, self.work, flops, "float32", execute, counted_flops=self._step.counted_flops)
            for name, execute in (("fed", self.execute), (RESIDENT, self._execute_resident))
        ]

    def compile(self) -> None:
        self._step.compile()

    def execute(self, count: int) -> None:
        """Every batch from the pipeline, which is left with as many batches ready as it was found with."""
        self._timed.asked += count
        step, waited_s, made_before_s, began_s = self._step, 0.0, self._feed.made_in_s, time.perf_counter()
        with self._feed as feed:
            for _ in range(count):
                asked_s = time.perf_counter()
                batch = step.placed(*feed.take())
                waited_s += time.perf_counter() - asked_s
                self._fed_loss = step.train(batch)
            asked_s = time.perf_counter()
            feed.settle()
            waited_s += time.perf_counter() - asked_s
        self._calls.append(_Call(time.perf_counter() - began_s, waited_s, self._feed.made_in_s - made_before_s))
        self._note(self._fed_loss)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> Verification:
        wait_share, core_share = self._shares()
        on_cpu = self._context.device is None or self._context.device.driven_as == "cpu"
        pipeline = self._pipeline()
        bound = input_bound(wait_share, core_share if on_cpu else None, pipeline)
        step = self._one_step() if self._context.run == 0 else None
        found = checked(self._context, self._model, self._step, self._train, self._timed, step)
        of_run = (
            bound,
            unfed(self._few_batches(), len(self._train)),
            loss_nonfinite(self._unfit_loss),
            synthetic_data(self._origin, _DECODING),
        )
        return Verification(
            warnings=[*found.warnings, *(each for each in of_run if each is not None)],
            verified=frozenset(found.verified),
            unchecked=found.unchecked,
            precision=found.precision,
            details={
                **pipeline,
                "input_limit": INPUT_LIMIT,
                "held_bytes": self._stored.held_bytes,
                "batch_bytes": int(self.work) * 4 * math.prod(self._shape),
                "batch_size": int(self.work),
                "jit_compile": self._step.jit_compile,
                "data": self._origin.model_dump(mode="json"),
                **of_model(self._model),
                **found.details,
            },
            amounts={"step": self.work},
            figures={"input_wait_share": wait_share, "input_core_share": core_share},
        )

    def _execute_resident(self, count: int) -> None:
        self._timed.asked += count
        loss = 0.0
        for _ in range(count):
            loss = self._step.train(self._resident)
        self._note(loss)

    def _few_batches(self) -> list[tuple[NDArray[Any], ...]]:
        """The next ones, as they lie on the device."""
        framework = self._context.framework
        with self._feed as feed:
            placed = [self._step.placed(*feed.take()) for _ in range(LOOKED_AT)]
            feed.settle()
        return [tuple(framework.numpy(part) for part in batch) for batch in placed]

    def _note(self, loss: float) -> None:
        if not math.isfinite(loss):
            self._unfit_loss = loss

    def _new_model(self) -> Any:
        keras, params = self._context.framework.keras, self._params
        return self._network.model(keras, params.learning_rate, params.jit_compile, scaled_inputs=True)

    def _new_feed(self, threads: int = 1, ahead: int = 0) -> Feed:
        seed, size = self._context.seed, self._params.batch_size
        return Feed(self._stored.fill, self._train.targets, self._shape, size, seed, threads, ahead)

    def _shares(self) -> tuple[float, float]:
        """Of the fed steps' time: waited for batches; of the cores' time in it: spent on making them.

        Warm-up included; the first call, which may compile, only where there is no other.
        """
        counted = self._calls[1:] or self._calls
        took_s = sum(call.took_s for call in counted)
        waited_s, made_in_s = sum(call.waited_s for call in counted), sum(call.made_in_s for call in counted)
        return waited_s / took_s, made_in_s / (took_s * self._context.cores)

    def _one_step(self) -> Timed:
        """Fed with a batch of the pipeline, and held against the labels that the data have for its images."""

        def step() -> tuple[NDArray[Any], NDArray[Any], None]:
            with self._feed as feed:
                inputs, targets = feed.take()
                feed.settle()
            self._timed.asked += 1
            self._step.train(self._step.placed(inputs, targets))
            return inputs, self._train.targets[self._feed.taken], None

        return Timed(self._model, self._new_model, step, self._step.sync)

    def _pipeline(self) -> dict[str, JsonValue]:
        params = self._params
        return {name: getattr(params, name) for name in ("source", "file_scale", "input_threads", "prefetch")}


def _loaded(params: InputPipelineParams, network: Network, context: BuildContext) -> tuple[Samples, DataOrigin]:
    data = network.load(Settings(data_dir=context.data_dir), params.data).limited(params.train_samples, 1)
    if len(data.train_images) < params.batch_size:
        told = f"a batch of {params.batch_size} can't be drawn from {len(data.train_images)} images"
        raise RunFailed("benchmark", "too_few_samples", told)
    one_hot = np.eye(len(data.classes), dtype=np.float32)[data.train_labels]
    return Samples(data.train_images, one_hot), data.origin.model_copy(update={"test_samples": 0})
