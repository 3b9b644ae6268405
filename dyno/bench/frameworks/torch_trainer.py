"""Make Keras training steps on PyTorch, on resident data and on batches from the host.

Each step calls Keras' own `train_step`, without a compiler.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.bench.frameworks.interface import Dataset, full_batch


class TorchTrainer:
    """See `dyno.bench.frameworks.interface.Trainer`. Compiles nothing, regardless of the model's `jit_compile`."""

    def __init__(
        self,
        torch: Any,
        device: str,
        model: Any,
        samples: Dataset,
        batch_size: int,
        seed: int,
        steps_per_execution: int,
    ) -> None:
        self.jit_compile = False
        self.replicas = self.parts = 1
        self.batch_size = full_batch(batch_size, len(samples), self.replicas)
        self.steps_per_execution = steps_per_execution
        self._torch, self._device, self._model = torch, device, model
        self._inputs, self._targets = (torch.tensor(data, device=device) for data in (samples.inputs, samples.targets))
        starts = np.zeros(0, np.int32) if samples.starts is None else samples.starts
        self._starts = torch.tensor(starts, device=device, dtype=torch.int64)
        self._window = samples.window
        self._count = len(samples)
        self._random = np.random.default_rng(seed)
        self._build()
        self.shuffle()

    def compile(self) -> None:
        """Do nothing: each step runs operation by operation."""

    def shuffle(self) -> None:
        self._order = self._torch.tensor(self._random.permutation(self._count), device=self._device)
        self._next = 0

    def next_batch(self) -> NDArray[Any]:
        self._shuffle_where_used_up()
        chosen: NDArray[Any] = self._order[self._next : self._next + self.batch_size].cpu().numpy()
        return chosen

    def steps(self, count: int) -> float:
        loss = None
        for _ in range(count):
            self._shuffle_where_used_up()
            loss = self._step(self.batch_size)
        return float(loss) if loss is not None else float("nan")

    def tail(self) -> float:
        return float(self._step(self._count - self._next))

    def finish_epoch(self) -> dict[str, float]:
        # A metric with several values (for example one per class) counts as their mean.
        figures = {name: float(value.mean()) for name, value in self._model.get_metrics_result().items()}
        self._model.reset_metrics()
        return figures

    def sync(self) -> None:
        """Do nothing: the step trains the Keras model's own variables."""

    def refresh(self) -> None:
        """Do nothing, for the same reason."""

    def counted_flops(self) -> float | None:
        """None: PyTorch has no graph to count in."""
        return None

    def predict(self, inputs: NDArray[Any], batch_size: int) -> NDArray[np.float32]:
        outputs = []
        with self._torch.no_grad():
            for start in range(0, len(inputs), batch_size):
                batch = self._torch.tensor(inputs[start : start + batch_size], device=self._device)
                outputs.append(self._model(batch, training=False).float().cpu().numpy())
        return np.concatenate(outputs)

    def _shuffle_where_used_up(self) -> None:
        if self._next + self.batch_size > self._count:
            self.shuffle()

    def _build(self) -> None:
        """Create the variables of optimiser and metrics, as `fit` does before its first step."""
        self._model._symbolic_build(data_batch=self._batch(self._torch.zeros(1, dtype=self._torch.int64)))
        self._model.reset_metrics()

    def _batch(self, chosen: Any) -> tuple[Any, Any]:
        rows = chosen
        if self._window is not None:
            rows = self._starts[chosen][:, None] + self._torch.arange(self._window, device=self._device)
        return self._inputs[rows], self._targets[rows]

    def _step(self, size: int) -> Any:
        chosen = self._order[self._next : self._next + size]
        self._next += size
        return self._model.train_step(self._batch(chosen))["loss"]


class TorchFedStep:
    """See `dyno.bench.frameworks.interface.FedStep`. Compiles nothing, regardless of the model's `jit_compile`."""

    def __init__(self, torch: Any, device: str, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        self.jit_compile = False
        self._torch, self._device, self._model = torch, device, model
        model._symbolic_build(data_batch=self.placed(inputs[:1], targets[:1]))
        model.reset_metrics()

    def compile(self) -> None:
        """Do nothing: each step runs operation by operation."""

    def placed(self, inputs: NDArray[Any], targets: NDArray[Any]) -> Any:
        return tuple(self._torch.tensor(array, device=self._device) for array in (inputs, targets))

    def train(self, batch: Any) -> float:
        return float(self._model.train_step(batch)["loss"])

    def sync(self) -> None:
        """Do nothing: the step trains the Keras model's own variables."""

    def counted_flops(self) -> float | None:
        """None: PyTorch has no graph to count in."""
        return None
