"""A training step for Keras on PyTorch that takes each batch from the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TorchFedStep:
    """See `dyno.frameworks.contract.FedStep`. Nothing is compiled, whatever the model's `jit_compile` says."""

    def __init__(self, torch: Any, device: str, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        self.jit_compile = False
        self._torch, self._device, self._model = torch, device, model
        model._symbolic_build(data_batch=self.placed(inputs[:1], targets[:1]))
        model.reset_metrics()

    def compile(self) -> None:
        """Nothing: each step is executed operation by operation."""

    def placed(self, inputs: NDArray[Any], targets: NDArray[Any]) -> Any:
        return tuple(self._torch.tensor(each, device=self._device) for each in (inputs, targets))

    def train(self, batch: Any) -> float:
        return float(self._model.train_step(batch)["loss"])

    def sync(self) -> None:
        """Nothing: the step trains the Keras model's own variables."""

    def counted_flops(self) -> float | None:
        """None: there is no graph to count in."""
        return None
