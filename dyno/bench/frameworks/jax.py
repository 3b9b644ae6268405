"""Run Keras on JAX. Only methods import JAX."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dyno.bench.frameworks.interface import (
    STREAM,
    Collective,
    CompiledCollective,
    Dataset,
    FedStep,
    Step,
    StreamCall,
    StreamKernel,
    StreamOperands,
    Trainer,
    split_state,
)
from dyno.bench.frameworks.jax_collectives import JaxCollective
from dyno.bench.frameworks.jax_trainer import JaxFedStep, JaxTrainer, counted_flops, values_of
from dyno.bench.frameworks.keras import KerasFramework, load_keras
from dyno.bench.frameworks.plain_step import PlainStep, mean_of
from dyno.errors import DeviceUnavailable

_UNROLL = 20  # calls of the body per iteration of the loop, to spread the loop's own cost
_COMPILING = "/jax/core/compile/"  # prefix of JAX' duration events for tracing, lowering and compiling
# LLVM's optimisation and, on a GPU (an H100), kernel tuning take longer than the few steps that `plain_step` makes.
_LITTLE = {"cpu": {"xla_backend_optimization_level": 0}, "gpu": {"xla_gpu_autotune_level": 0}}
_NOT_CHEAP = 32  # side of a product that XLA's CPU client queues instead of computing immediately

# The platforms that JAX may start for each kind of device, best first. By default it starts all platforms that it
# finds: for a CPU device, it would take memory from the jobs of the host's accelerators, or wait for a busy TPU. For
# accelerators, JAX also starts the host's processor, as it does by default.
JAX_PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}


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
        """Import JAX, which looks for devices and starts threads only with the first array."""
        # By default JAX preallocates three quarters of a GPU's memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self._keras = load_keras("jax")
        import jax

        self._jax = jax
        # Override the environment: compile times must not measure a cache lookup.
        self._jax.config.update("jax_enable_compilation_cache", False)
        self._jax.monitoring.register_event_duration_secs_listener(self._record_compile)

    def start(self, kind: str, cores: int, replicas: int = 1) -> None:
        jax = self._jax
        # The number of XLA's threads on a CPU; the default is one per allowed core. The threads of virtual devices wait
        # for each other, so they get extra threads that can work at the same time.
        os.environ["NPROC"] = str(cores if replicas == 1 else cores + replicas)
        if kind == "cpu":
            jax.config.update("jax_num_cpu_devices", replicas)
        jax.config.update("jax_platforms", JAX_PLATFORMS[kind])
        devices = self._found(kind)
        if len(devices) < replicas:
            raise DeviceUnavailable(f"{replicas} replicas need {replicas} {kind}s; JAX sees {len(devices)}: {devices}")
        self._devices = devices[:replicas]
        if replicas > 1:
            # Set for the whole process, so that metrics and the optimiser's variables share the devices of the weights.
            distribution = self._keras.distribution
            names = [f"{device.platform}:{device.id}" for device in self._devices]
            distribution.set_distribution(distribution.DataParallel(devices=names, auto_shard_dataset=False))
        ones = self.array([[1.0, 1.0], [1.0, 1.0]], "float32")
        self.scalar(self.compile(lambda a: self.total(self.matmul(a, a)), ones)(ones))

    def _found(self, kind: str) -> list[Any]:
        """The devices of this host; on a slice of several TPU hosts, `jax.devices` lists the devices of all hosts."""
        jax = self._jax
        try:
            devices = list(jax.local_devices())
        except RuntimeError as error:
            raise DeviceUnavailable(f"JAX can't start a {kind} on this host: {error}") from error
        if devices[0].platform != kind:
            raise DeviceUnavailable(f"JAX sees no {kind} on this host; it sees {devices}")
        return devices

    def compile(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        """Trace and compile; XLA leaves no work for the first call."""
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

    def _record_compile(self, event: str, duration_s: float, **attributes: Any) -> None:
        if event.startswith(_COMPILING):
            self._traced.append(str(attributes.get("fun_name", "")).removeprefix("jit(").removesuffix(")"))

    def drain(self) -> None:
        """Wait for all live results, then for a product queued behind work whose results were dropped."""
        jax = self._jax
        if self._last is None:
            zeros = self.array([[0.0] * _NOT_CHEAP] * _NOT_CHEAP, "float32")
            self._last = functools.partial(self.compile(self.matmul, zeros, zeros), zeros, zeros)
        for array in jax.live_arrays():
            array.block_until_ready()
        jax.block_until_ready(self._last())

    def array(self, value: Any, dtype: str) -> Any:
        return self._jax.numpy.array(value, dtype)

    def numpy(self, value: Any) -> Any:
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
        has_tf32 = self._devices[0].platform == "gpu"  # on other devices "high" has another meaning
        self._float32 = "high" if allowed and has_tf32 else "highest"

    def total(self, value: Any) -> Any:
        return self._jax.numpy.sum(value, dtype="float32")

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        unroll = min(count, _UNROLL)
        return self._jax.lax.fori_loop(0, count, lambda _, value: body(value), start, unroll=unroll)

    def stream(self, kernel: StreamKernel, times: int, operands: StreamOperands) -> StreamCall:
        """XLA writes y to the array that the call takes: the pages of a new array would cost time."""
        jax, apply = self._jax, STREAM[kernel]

        def loop(y: Any, x: Any, z: Any, scale: Any, step: Any) -> Any:
            return jax.lax.fori_loop(
                0, times, lambda _, state: (apply(x, z, state[1]), state[1] + step), (y, scale), unroll=1
            )[0]

        def once(y: Any, x: Any, z: Any, scale: Any, step: Any) -> Any:
            return apply(x, z, scale)

        in_loop = self._devices[0].platform == "cpu" and times > 1
        jitted = jax.jit(loop if in_loop else once, donate_argnums=0, keep_unused=True)
        compiled = jitted.lower(operands.x, *operands).compile()

        def calls(y: Any) -> Any:
            scale = operands.scale
            for number in range(times):
                scale = scale + operands.step if number else scale
                y = compiled(y, operands.x, operands.z, scale, operands.step)
            return y

        return (lambda y: compiled(y, *operands)) if in_loop else calls

    def collective(self, name: Collective, rows: NDArray[np.float32]) -> CompiledCollective:
        return JaxCollective(self._jax, self._devices, name, rows)

    def trainer(
        self, model: Any, samples: Dataset, batch_size: int, seed: int, steps_per_execution: int = 1
    ) -> Trainer:
        if self._devices[0].platform == "cpu":
            # Inside a loop, XLA's CPU compiler doesn't optimise convolutions: their gradients took 30 times as long
            # (jax-ml/jax#12868). A call costs only 0.1 ms, so each step is a separate call.
            steps_per_execution = 1
        return JaxTrainer(self._jax, self._devices, model, samples, batch_size, seed, steps_per_execution)

    def plain_step(self, model: Any, *, exact: bool) -> PlainStep:
        """A compiled step: on a CPU at XLA's lowest optimisation level, on a GPU without trying out kernels.

        Without compilation, the step would take minutes to prepare.
        """
        jax = self._jax
        options = _LITTLE.get(self._devices[0].platform)

        def loss_of(weights: Any, fixed: Any, metrics: Any, optimizer: Any, inputs: Any, targets: Any) -> Any:
            return model.compute_loss_and_updates(
                weights, fixed, metrics, inputs, targets, None, training=True, optimizer_variables=optimizer
            )

        compiled = jax.jit(jax.value_and_grad(loss_of, has_aux=True), compiler_options=options)
        applied = jax.jit(model.optimizer.stateless_apply, compiler_options=options)

        def gradients(inputs: NDArray[Any], targets: NDArray[Any]) -> tuple[float, Sequence[Any]]:
            weights, fixed, optimizer, metrics = values_of(model)
            with jax.default_matmul_precision("highest" if exact else None):
                (_, (loss, *_)), values = compiled(weights, fixed, metrics, optimizer, inputs, targets)
            return float(loss), values

        def apply(by_part: Sequence[Sequence[Any]]) -> None:
            weights, _, optimizer, _ = values_of(model)
            after, _ = applied(optimizer, mean_of(by_part), weights)
            for variable, value in zip(model.trainable_variables, after, strict=True):
                variable.assign(value)

        return PlainStep(model, gradients, apply, exact=exact)

    def fed_step(self, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> FedStep:
        return JaxFedStep(self._jax, self._devices[0], model, inputs, targets)

    def forward(self, model: Any, example: Any) -> Callable[[Any], Any]:
        variables = (model.trainable_variables, model.non_trainable_variables)
        state = [[variable.value for variable in group] for group in variables]
        outputs = self._jax.jit(lambda *arguments: model.stateless_call(*arguments, training=False)[0])
        return self._compiled(outputs.trace(*state, example), *state)

    def step(self, model: Any, inputs: Sequence[Any], state: Sequence[Any]) -> Step:
        variables = [
            [each.value for each in group] for group in (model.trainable_variables, model.non_trainable_variables)
        ]

        def outputs(trained: Any, others: Any, inputs: Any, state: Any) -> Any:
            return split_state(model.stateless_call(trained, others, [*inputs, *state], training=False)[0], len(state))

        compiled = self._jax.jit(outputs, donate_argnums=3)
        return self._compiled(compiled.trace(*variables, list(inputs), list(state)), *variables)

    def out_of_memory(self, error: BaseException) -> bool:
        if self._jax is None or not isinstance(error, self._jax.errors.JaxRuntimeError):
            return False
        # "Out of memory" comes from computations on a CPU, with the code INTERNAL.
        return any(mark in str(error) for mark in ("RESOURCE_EXHAUSTED", "Out of memory"))

    def visible_devices(self) -> list[dict[str, Any]]:
        return [
            {
                "name": str(device),
                "kind": device.platform,
                "model": device.device_kind,
                "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
                "coords": getattr(device, "coords", None),  # TPU only: the chip; core_on_chip below is the core
                "core": getattr(device, "core_on_chip", None),
            }
            for device in self._jax.local_devices()
        ]

    def device_peak_bytes(self, kind: str) -> int | None:
        """The peak of the fullest device in use; CPU devices have no count."""
        counts = [device.memory_stats() or {} for device in self._devices]
        peaks = [int(count["peak_bytes_in_use"]) for count in counts if "peak_bytes_in_use" in count]
        return max(peaks, default=None)
