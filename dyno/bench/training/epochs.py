"""Run the epochs of one training, with validation and Keras' callbacks at the end of each epoch.

Dyno doesn't use `model.fit`, whose epochs include validation and whose measured times were bimodal.
"""

import math
import tempfile
import time
from pathlib import Path
from typing import Any

from dyno.bench.contract import BuildContext
from dyno.bench.frameworks.interface import Dataset, Trainer
from dyno.bench.measure.host_noise import HostNoise
from dyno.bench.measure.sampling import HostClock
from dyno.bench.training.evaluation import evaluate
from dyno.bench.training.workload import TrainingParams
from dyno.errors import RunFailed
from dyno.models.result import CallbackEvent, Epoch

_FACTOR = 0.1  # the factor of ReduceLROnPlateau; Keras' default
_MONITOR = "val_loss"


class Callbacks:
    """Call `after` for each epoch and `finish` at the end. `events` lists the callbacks that acted."""

    def __init__(
        self,
        params: TrainingParams,
        context: BuildContext,
        model: Any,
        trainer: Trainer,
        validation: Dataset | None,
        test: Dataset | None = None,
    ) -> None:
        """`test`: samples to test on after each epoch; no callback uses the result."""
        self._params, self._context, self._model, self._trainer = params, context, model, trainer
        self._validation, self._test = validation, test
        self.events: list[CallbackEvent] = []
        self.best_epoch: int | None = None
        self._best_loss = float("inf")
        self._folder = tempfile.TemporaryDirectory(prefix="dyno-best-")
        self._best = Path(self._folder.name) / "best.weights.h5"
        model.stop_training = False
        self._keras = self._made(context.framework.keras.callbacks)
        self._keras.on_train_begin()

    @property
    def stop(self) -> bool:
        return bool(getattr(self._model, "stop_training", False))

    def after(self, epoch: Epoch) -> Epoch:
        """Test and validate the epoch, run the callbacks and return the completed epoch."""
        rate = self._rate()
        epoch = epoch.model_copy(update={"learning_rate": rate, "test_accuracy": self._test_accuracy()})
        if self._validation is None:
            return epoch
        began_s = time.perf_counter()
        self._trainer.sync()
        figures = evaluate(self._context.framework.keras, self._model, self._trainer, self._validation)
        self._keras.on_epoch_end(epoch.index, {"loss": epoch.loss, _MONITOR: figures["loss"]})
        self._note(epoch.index, figures["loss"], rate)
        self._trainer.refresh()
        return epoch.model_copy(
            update={
                "validation_loss": figures["loss"] if math.isfinite(figures["loss"]) else None,
                "validation_accuracy": figures.get("accuracy"),
                "validation_s": time.perf_counter() - began_s,
            }
        )

    def _test_accuracy(self) -> float | None:
        if self._test is None:
            return None
        self._trainer.sync()
        figures = evaluate(self._context.framework.keras, self._model, self._trainer, self._test)
        self._trainer.refresh()
        return figures.get("accuracy")

    def finish(self) -> None:
        """Update the Keras model; restore the best weights if the params request it."""
        self._keras.on_train_end()
        self._trainer.sync()
        if self._params.best_weights and self.best_epoch is not None:
            self._model.load_weights(self._best)
            self._trainer.refresh()
        self._folder.cleanup()

    def _made(self, callbacks: Any) -> Any:
        params = self._params
        made = []
        if params.best_weights:
            made.append(callbacks.ModelCheckpoint(self._best, _MONITOR, save_best_only=True, save_weights_only=True))
        if params.reduce_lr_patience is not None:
            # ReduceLROnPlateau's default min_delta of 1e-4 is large for a low loss; EarlyStopping's default is 0.
            patience = params.reduce_lr_patience
            made.append(callbacks.ReduceLROnPlateau(_MONITOR, factor=_FACTOR, patience=patience, min_delta=0.0))
        if params.early_stopping_patience is not None:
            made.append(callbacks.EarlyStopping(_MONITOR, patience=params.early_stopping_patience))
        return callbacks.CallbackList(made, add_history=False, model=self._model)

    def _rate(self) -> float:
        # With several replicas, the variable doesn't convert to float directly.
        return float(self._model.optimizer.learning_rate.numpy())

    def _note(self, epoch: int, loss: float, rate: float) -> None:
        if loss < self._best_loss:
            self._best_loss = loss
            if self._params.best_weights:
                self.best_epoch = epoch
                self._add(epoch, "checkpoint", f"saved weights: validation loss {loss:.4g} is the lowest so far")
        if (new_rate := self._rate()) != rate:
            self._add(epoch, "reduce_lr", f"reduced the learning rate from {rate:.3g} to {new_rate:.3g}")
        if self.stop:
            patience = self._params.early_stopping_patience
            self._add(epoch, "early_stopping", f"stopped: no lower validation loss for {patience} epochs")

    def _add(self, epoch: int, callback: str, message: str) -> None:
        self.events.append(CallbackEvent(epoch=epoch, callback=callback, message=message))


_REPORTS_PER_EPOCH = 10


class Epochs:
    """`count` epochs of `steps` full batches; `tail` adds the remaining samples.

    Progress is reported in steps of all `trials` together; these epochs are trial number `trial` (from 0).
    """

    def __init__(
        self, context: BuildContext, trainer: Trainer, count: int, steps: int, *, tail: bool, trial: int, trials: int
    ) -> None:
        self._context, self._trainer = context, trainer
        self._count, self._steps, self._tail = count, steps, tail
        self._before, self._all = trial * count * steps, trials * count * steps
        execution_steps = trainer.steps_per_execution
        self._chunk = math.ceil(steps / _REPORTS_PER_EPOCH / execution_steps) * execution_steps

    def train(
        self, callbacks: Callbacks, done: int = 0, spent_s: float = 0.0, noise: HostNoise | None = None
    ) -> list[Epoch]:
        """Train all epochs. The first `done` steps were made earlier, in `spent_s`, while `noise` watched the cores."""
        epochs: list[Epoch] = []
        for number in range(self._count):
            noise = noise or watch_cores(self._context)
            epoch = self._epoch(number, done, spent_s)
            epochs.append(callbacks.after(epoch.model_copy(update={"core_shares": noise.shares()})))
            done, spent_s, noise = 0, 0.0, None
            if callbacks.stop:
                break
        callbacks.finish()
        return epochs

    def _epoch(self, number: int, done: int, spent_s: float) -> Epoch:
        used_s, when = sum(HostClock().cpu_s()), f"in epoch {number + 1}"
        began_s = time.perf_counter()
        if number > 0:
            self._trainer.shuffle()
        while done < self._steps:
            self._context.report("training", self._before + number * self._steps + done, self._all, "steps")
            count = min(self._chunk, self._steps - done)
            finite(self._trainer.steps(count), when)
            done += count
        if self._tail:
            finite(self._trainer.tail(), when)
        figures = self._trainer.finish_epoch()
        return Epoch(
            index=number,
            time_s=spent_s + time.perf_counter() - began_s,
            cpu_s=sum(HostClock().cpu_s()) - used_s,
            loss=finite(figures["loss"], when),
            accuracy=figures.get("accuracy"),
            includes_compile=number == 0,
        )


def watch_cores(context: BuildContext) -> HostNoise:
    """Watch the device's cores from now on."""
    device = context.device
    if device is None:
        return HostNoise((), HostClock())
    return HostNoise(device.cores, HostClock(), package=device.driven_as == "cpu")


def finite(loss: float, when: str) -> float:
    """Return the loss. Raises RunFailed (benchmark, nonfinite_loss) if it isn't finite."""
    if not math.isfinite(loss):
        raise RunFailed("benchmark", "nonfinite_loss", f"the loss became {loss} {when}")
    return loss
