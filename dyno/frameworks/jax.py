"""JAX, with Keras on it. Imports JAX inside methods only."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dyno.errors import DeviceUnavailable
from dyno.frameworks.jax_trainer import JaxFedStep, JaxTrainer, counted_flops, values_of
from dyno.frameworks.keras import KerasFramework, load_keras, number_gpus_like_nvml
from dyno.frameworks.plain_step import PlainStep, mean_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dyno.frameworks.contract import Dataset, FedStep, Trainer

# What JAX may use for each kind, the best first; with an accelerator the host's processor too, as is JAX' default.
_PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}
_UNROLL = 20  # a loop's own cost is spread over so many calls of its body
_COMPILING = "/jax/core/compile/"  # of tracing, lowering and compiling, in JAX' own account of what took how long
_LITTLE = {"xla_backend_optimization_level": 0}  # what LLVM does takes longer than such a step
_NOT_CHEAP = 32  # side of a product that XLA's CPU client doesn't compute at once, past what is queued


class Jax(KerasFramework):
    name = "jax"

    def __init__(self) -> None:
        super().__init__()
        self._jax: Any = None
        self._devices: list[Any] = []
        self._float32 = "highest"
        self._integer_matmul: Any = None
        self._traced: list[str] = []
        self._jaxprs: WeakKeyDictionary[Callable[..., Any], Any] = WeakKeyDictionary()
        self._last: Callable[[], Any] | None = None

    def load(self) -> None:
        """JAX looks for devices, and starts threads, only when the first array is made."""
        number_gpus_like_nvml()
        # Otherwise three quarters of a GPU's memory are taken at once, whatever the job needs.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self._keras = load_keras("jax")
        import jax

        self._jax = jax
        # Whatever the environment says: a time to compile is to be that of compiling, not of finding a file.
        self._jax.config.update("jax_enable_compilation_cache", False)
        self._jax.monitoring.register_event_duration_secs_listener(self._took)

    def start(self, kind: str, cores: int, replicas: int = 1) -> None:
        jax = self._jax
        # XLA's threads on a CPU; its own default is every core it may run on. A virtual device's thread may have to
        # wait for the others, so there are enough to work meanwhile.
        os.environ["NPROC"] = str(cores if replicas == 1 else cores + replicas)
        if kind == "cpu":
            jax.config.update("jax_num_cpu_devices", replicas)
        jax.config.update("jax_platforms", _PLATFORMS[kind])
        found = self._found(kind)
        if len(found) < replicas:
            raise DeviceUnavailable(f"{replicas} replicas need as many {kind}s; JAX sees {len(found)}: {found}")
        self._devices = found[:replicas]
        if replicas > 1:
            # For the whole process, so that metrics and an optimiser's variables lie where the weights do.
            distribution = self._keras.distribution
            names = [f"{device.platform}:{device.id}" for device in self._devices]
            distribution.set_distribution(distribution.DataParallel(devices=names, auto_shard_dataset=False))
        one = self.array([[1.0, 1.0], [1.0, 1.0]], "float32")
        self.scalar(self.compile(lambda a: self.total(self.matmul(a, a)), one)(one))

    def _found(self, kind: str) -> list[Any]:
        jax = self._jax
        try:
            found = list(jax.devices())
        except RuntimeError as error:
            raise DeviceUnavailable(f"JAX can't start a {kind} here: {error}") from error
        if found[0].platform != kind:
            raise DeviceUnavailable(f"JAX sees no {kind} here; it sees {found}")
        return found

    def compile(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        """XLA compiles here too: nothing is left to the first call."""
        return self._compiled(self._jax.jit(function).trace(*examples))

    def _compiled(self, traced: Any, *bound: Any) -> Callable[..., Any]:
        compiled: Callable[..., Any] = traced.lower().compile()
        function = functools.partial(compiled, *bound) if bound else compiled
        self._jaxprs[function] = traced.jaxpr
        return function

    def counted_flops(self, compiled: Callable[..., Any]) -> float | None:
        return counted_flops(self._jaxprs[compiled])

    def traced(self) -> Sequence[str]:
        return self._traced

    def _took(self, event: str, duration_s: float, **told: Any) -> None:
        if event.startswith(_COMPILING):
            self._traced.append(str(told.get("fun_name", "")).removeprefix("jit(").removesuffix(")"))

    def drain(self) -> None:
        """Work whose results are kept, then, for what nobody keeps, a product that is queued behind it."""
        jax = self._jax
        if self._last is None:
            one = self.array([[0.0] * _NOT_CHEAP] * _NOT_CHEAP, "float32")
            self._last = functools.partial(self.compile(self.matmul, one, one), one, one)
        for array in jax.live_arrays():
            array.block_until_ready()
        jax.block_until_ready(self._last())

    def array(self, value: Any, dtype: str) -> Any:
        return self._jax.numpy.array(value, dtype)

    def numpy(self, value: Any) -> Any:
        import numpy as np

        return np.asarray(value.astype("float32") if value.dtype.itemsize < 4 else value)

    def scalar(self, value: Any) -> float:
        return float(value)

    def matmul(self, a: Any, b: Any) -> Any:
        # By default a TPU multiplies float32 as bfloat16, and a GPU as tf32.
        return self._jax.numpy.matmul(a, b, precision=self._float32 if a.dtype == "float32" else None)

    def integer_matmul(self, a: Any, b: Any) -> Any:
        if self._integer_matmul is None:
            jax = self._jax
            dot = functools.partial(jax.lax.dot, preferred_element_type=jax.numpy.int32)
            self._integer_matmul = jax.jit(dot)
        return self._integer_matmul(a, b)

    def allow_tf32(self, allowed: bool) -> None:
        has_tf32 = self._devices[0].platform == "gpu"  # elsewhere "high" is something else
        self._float32 = "high" if allowed and has_tf32 else "highest"

    def total(self, value: Any) -> Any:
        return self._jax.numpy.sum(value, dtype="float32")

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        unroll = min(count, _UNROLL)
        return self._jax.lax.fori_loop(0, count, lambda _, value: body(value), start, unroll=unroll)

    def trainer(
        self, model: Any, samples: Dataset, batch_size: int, seed: int, steps_per_execution: int = 1
    ) -> Trainer:
        if self._devices[0].platform == "cpu":
            # Inside a loop XLA's CPU compiler leaves convolutions as they are written: their gradients took 30 times
            # as long (jax-ml/jax#12868). A call costs 0.1 ms, so nothing is lost by a call for each step.
            steps_per_execution = 1
        return JaxTrainer(self._jax, self._devices, model, samples, batch_size, seed, steps_per_execution)

    def plain_step(self, model: Any, *, exact: bool) -> PlainStep:
        """Compiled all the same, and as little as XLA can: without that, a step takes minutes to prepare."""
        jax = self._jax
        options = _LITTLE if self._devices[0].platform == "cpu" else None

        def loss_of(weights: Any, fixed: Any, metrics: Any, optimizer: Any, inputs: Any, targets: Any) -> Any:
            return model.compute_loss_and_updates(
                weights, fixed, metrics, inputs, targets, None, training=True, optimizer_variables=optimizer
            )

        compiled = jax.jit(jax.value_and_grad(loss_of, has_aux=True), compiler_options=options)
        applied = jax.jit(model.optimizer.stateless_apply, compiler_options=options)

        def gradients(inputs: NDArray[Any], targets: NDArray[Any]) -> tuple[float, Sequence[Any]]:
            weights, fixed, optimizer, metrics = values_of(model)
            with jax.default_matmul_precision("highest" if exact else None):
                (_, (loss, *_)), found = compiled(weights, fixed, metrics, optimizer, inputs, targets)
            return float(loss), found

        def apply(found: Sequence[Sequence[Any]]) -> None:
            weights, _, optimizer, _ = values_of(model)
            after, _ = applied(optimizer, mean_of(found), weights)
            for variable, value in zip(model.trainable_variables, after, strict=True):
                variable.assign(value)

        return PlainStep(model, gradients, apply, exact=exact)

    def fed_step(self, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> FedStep:
        return JaxFedStep(self._jax, self._devices[0], model, inputs, targets)

    def forward(self, model: Any, example: Any) -> Callable[[Any], Any]:
        variables = (model.trainable_variables, model.non_trainable_variables)
        state = [[variable.value for variable in each] for each in variables]
        outputs = self._jax.jit(lambda *arguments: model.stateless_call(*arguments, training=False)[0])
        return self._compiled(outputs.trace(*state, example), *state)

    def out_of_memory(self, error: BaseException) -> bool:
        if self._jax is None or not isinstance(error, self._jax.errors.JaxRuntimeError):
            return False
        # The second is what a computation on a CPU says, under the code INTERNAL.
        return any(mark in str(error) for mark in ("RESOURCE_EXHAUSTED", "Out of memory"))

    def seen(self) -> list[dict[str, Any]]:
        return [
            {
                "name": str(device),
                "kind": device.platform,
                "model": device.device_kind,
                "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
                "coords": getattr(device, "coords", None),  # a TPU's: which chip, and which core of it
                "core": getattr(device, "core_on_chip", None),
            }
            for device in self._jax.devices()
        ]

    def device_peak_bytes(self, kind: str) -> int | None:
        """Of the fullest device in use; a CPU device has no count."""
        counts = [device.memory_stats() or {} for device in self._devices]
        peaks = [int(count["peak_bytes_in_use"]) for count in counts if "peak_bytes_in_use" in count]
        return max(peaks, default=None)
