"""The run of `quantized_inference`: train or load, convert, then four cases, each format in batches and one by one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from dyno.frameworks.contract import Samples, Trainer
from dyno.measure.result_checks import output_nonfinite, synthetic_data
from dyno.measure.statistics import wilson_interval
from dyno.measure.warnings import OUTPUT_CODES
from dyno.models.result import DataOrigin, Precision, Training
from dyno.settings import Settings
from dyno.workloads._images import Network
from dyno.workloads._quantized import Float32, Ready, engine_for, ready
from dyno.workloads._recognition import judged, recognised
from dyno.workloads._training import ModelTraining, Outcome, Plan
from dyno.workloads._weights import load_weights
from dyno.workloads.contract import BuildContext, Case, Verification

if TYPE_CHECKING:
    from dyno.workloads.quantized_inference import QuantizedInferenceParams

_TOLD = "int8 gives other outputs than float32: how far they differ, and which are right, is told and not judged"
_CALIBRATION = 128  # training images that int8's ranges are taken from


class QuantizedRun:
    """One execution is one batch through the int8 model. Run 0 alone trains and evaluates: speed needs neither."""

    def __init__(
        self, params: QuantizedInferenceParams, network: Network, image_flops: float, context: BuildContext
    ) -> None:
        self._params, self._network, self._context = params, network, context
        self._engine = engine_for(params.engine, context)
        with context.phase("data"):
            data = network.load(Settings(data_dir=context.data_dir), params.data)
            self._data = data.limited(params.train_samples, params.test_samples)
        self._trained: Training | None = None
        self._details: dict[str, JsonValue] = {}
        self._figures: dict[str, float] = {}
        model = self._model()
        with context.phase("build"):
            calibration = _scaled(self._data.train_images[:_CALIBRATION])
            self._float32, self._int8 = ready(model, self._engine, calibration, context)
        self.work = float(params.batch_size)
        self.cases = self._cases(image_flops)

    def compile(self) -> None:
        """Nothing: the conversion did."""

    def execute(self, count: int) -> None:
        self.cases[0].execute(count)

    def complete(self, compile_s: float, first_execution_s: float) -> Training | None:
        """Evaluate both on the test set, and leave their files; the training was made before."""
        truth = self._data.test_labels
        self._context.report("evaluation", 0, 2 * len(truth), "samples")
        probabilities = self._outputs(self._float32)
        by_float32, by_int8 = probabilities.argmax(-1), self._outputs(self._int8).argmax(-1)
        right = {"float32": int((by_float32 == truth).sum()), "int8": int((by_int8 == truth).sum())}
        for name, count in right.items():
            found = wilson_interval(count, len(truth))
            self._details[f"accuracy_{name}_interval"] = [found.low, found.high]
        self._figures = {
            **{f"accuracy_{name}": count / len(truth) for name, count in right.items()},
            "agreement": float((by_float32 == by_int8).mean()),
        }
        if self._params.recognise is not None:
            self._details["recognised"] = recognised(self._data, probabilities, self._params.recognise)
        if self._context.artifacts is not None:
            for name, content in (self._float32.file, self._int8.file):
                (self._context.artifacts / name).write_bytes(content)
        return self._trained

    def verify(self) -> Verification:
        """Both give finite outputs for the batch that was timed; how far they differ is told, not judged."""
        batch = self._batch(self._params.batch_size)
        floats, integers = self._float32.predict(batch), self._int8.predict(batch)
        difference, outputs = float(np.abs(floats - integers).max()), np.concatenate([floats, integers])
        nonfinite = output_nonfinite(int((~np.isfinite(outputs)).sum()), outputs.size)
        origin = self._origin()
        return Verification(
            warnings=[each for each in (nonfinite, synthetic_data(origin)) if each is not None],
            verified=frozenset({"OUTPUT_NONFINITE"}),
            unchecked=dict.fromkeys(OUTPUT_CODES - {"OUTPUT_NONFINITE"}, _TOLD),
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
            figures=self._sizes() | self._figures,
        )

    def _model(self) -> Any:
        """The trained model, of float32 inputs: 0 to 1."""
        context, params = self._context, self._params
        whole: Any = None
        if context.weights is not None or context.run > 0:
            whole = self._network.model(context.framework.keras, params.learning_rate, False)
            if context.weights is not None:
                load_weights(whole, context.weights)
        else:
            whole = self._train()
        keras = context.framework.keras
        return keras.Sequential([keras.Input(self._network.shape), *whole.layers[1:]])  # without the rescaling

    def _train(self) -> Any:
        keras, params, context = self._context.framework.keras, self._params, self._context
        kept: list[Any] = []

        def judge(model: Any, trainer: Trainer) -> Outcome:
            kept.append(model)
            return judged(self._data, self._network.noun, trainer, context, None)

        one_hot = np.eye(len(self._data.classes), dtype=np.float32)[self._data.train_labels]
        training = ModelTraining(
            params,
            Plan(
                make=lambda jit: self._network.model(keras, params.learning_rate, jit, params.optimizer),
                train=Samples(self._data.train_images, one_hot),
                data=self._data.origin,
                judge=judge,
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

    def _cases(self, image_flops: float) -> list[Case]:
        found = []
        for size in (self._params.batch_size, 1):
            batch = self._batch(size)
            for name, dtype, model in (
                ("int8", self._int8_dtype, self._int8),
                ("float32", "float32", self._float32),
            ):
                execute = model.timed(batch)
                label = f"{name}_batch_{size}"
                found.append(Case(label, float(size), image_flops * size, dtype, execute, {"call": float(size)}))
        return found

    def _batch(self, size: int) -> Float32:
        """So many test images, again from the first where there are fewer."""
        return _scaled(np.resize(self._data.test_images, (size, *self._network.shape)))

    def _outputs(self, model: Ready) -> Float32:
        """Of the whole test set."""
        size = self._params.batch_size
        starts = range(0, len(self._data.test_images), size)
        batches = (_scaled(self._data.test_images[start : start + size]) for start in starts)
        return np.concatenate([model.predict(batch) for batch in batches])

    def _sizes(self) -> dict[str, float]:
        return {"size_float32": float(len(self._float32.file[1])), "size_int8": float(len(self._int8.file[1]))}

    def _origin(self) -> DataOrigin:
        """Of the data, claiming no training where there was none."""
        origin = self._data.origin
        if self._context.weights is None:
            return origin
        note = "nothing was trained here: the weights are another job's"
        if self._engine == "litert":
            note += f"; the first {min(_CALIBRATION, len(self._data.train_images))} training images calibrated int8"
        notes = [each for each in (origin.note, note) if each]
        return origin.model_copy(update={"train_samples": 0, "note": "; ".join(notes)})

    def _int8_note(self) -> str:
        if self._int8_share == 1.0:
            return "all layers compute in int8"
        return f"{1 - self._int8_share:.0%} of the multiplications stay in float32: these are no speeds of int8 alone"

    @property
    def _int8_dtype(self) -> str:
        return "int8" if self._int8_share == 1.0 else "int8+float32"

    @property
    def _int8_share(self) -> float:
        """Of the multiplications: all, or those of the dense layers."""
        if self._engine == "litert":
            return 1.0
        dense = sum(2.0 * into * out for into, out in self._network.dense)
        return dense / (self._network.flops_per_sample / 3)


def _scaled(images: NDArray[np.uint8]) -> Float32:
    return images.astype(np.float32) / np.float32(255)
