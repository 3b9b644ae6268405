"""A training step for Keras on JAX that takes each batch from the host: one compiled function a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dyno.frameworks.jax_count import counted_flops
from dyno.frameworks.jax_state import State, bring_back, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class JaxFedStep:
    """See `dyno.frameworks.contract.FedStep`. XLA compiles it whatever the model's `jit_compile` says."""

    def __init__(self, jax: Any, device: Any, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        self.jit_compile = True
        self._jax, self._device, self._model = jax, device, model
        self._examples = tuple(jax.ShapeDtypeStruct(each.shape, each.dtype) for each in (inputs, targets))
        self._compiled: Callable[..., Any] | None = None
        self._jaxpr: Any = None
        model._symbolic_build(data_batch=self._examples)
        model.reset_metrics()
        self._state = jax.device_put(values_of(model), device)

    def compile(self) -> None:
        if self._compiled is not None:
            return

        def fed(state: State, inputs: Any, targets: Any) -> tuple[Any, State]:
            logs, after = self._model.train_step(state, (inputs, targets))
            return logs["loss"], after

        traced = self._jax.jit(fed, donate_argnums=0).trace(self._state, *self._examples)
        self._jaxpr = traced.jaxpr
        self._compiled = traced.lower().compile()

    def placed(self, inputs: NDArray[Any], targets: NDArray[Any]) -> Any:
        return self._jax.block_until_ready(self._jax.device_put((inputs, targets), self._device))

    def train(self, batch: Any) -> float:
        self.compile()
        assert self._compiled is not None
        loss, self._state = self._compiled(self._state, *batch)
        return float(loss)

    def sync(self) -> None:
        bring_back(self._model, self._state)

    def counted_flops(self) -> float | None:
        return None if self._jaxpr is None else counted_flops(self._jaxpr)
