"""How many samples a training sees, known from its params before any data is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from dyno.workloads._holdout import held_out_count
from dyno.workloads._training_params import TrainingParams

_FORWARD = 1 / 3  # of a training step: the forward pass alone


@dataclass(frozen=True)
class Schedule:
    """`steps` make one execution, each on a full `batch`; an epoch has `trained` samples, then come the `validated`."""

    batch: int
    steps: int
    trained: int
    validated: int
    tested: int  # after the last epoch

    @property
    def execution(self) -> int:
        """Samples of one execution."""
        return self.batch * self.steps

    def in_all(self, params: TrainingParams) -> float:
        """Samples of all trainings of a job; what is only evaluated counts as the share of a step that it takes."""
        of_epochs = params.epochs * (self.trained + _FORWARD * self.validated)
        return params.trials * (of_epochs + _FORWARD * self.tested)


def of_set(params: TrainingParams, samples: int, tested: int) -> Schedule:
    """An epoch sees each of `samples` once, but for the share held out; no execution goes past its end."""
    held_out = held_out_count(samples, params.validation_share)
    trained = max(1, samples - held_out)
    batch = min(params.batch_size, trained)
    return Schedule(batch, min(params.steps_per_execution, trained // batch), trained, held_out, tested)


def of_steps(params: TrainingParams, steps_per_epoch: int, validated: int, tested: int) -> Schedule:
    """An epoch is so many steps, on samples drawn from more than it sees."""
    steps = min(params.steps_per_execution, steps_per_epoch)
    return Schedule(params.batch_size, steps, steps_per_epoch * params.batch_size, validated, tested)
