"""Run Keras on PyTorch, and make training steps on resident data and on batches from the host.

Each step calls Keras' own `train_step`, without a compiler. Only methods import PyTorch.

FLOP are PyTorch's own count of the products that it dispatches: of a training, in its first step; of other functions,
in a call with tensors that have shapes but no values.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.bench.frameworks.interface import (
    Dataset,
    FedStep,
    Step,
    StreamCall,
    StreamKernel,
    StreamOperands,
    Trainer,
    Transfer,
    full_batch,
    split_state,
)
from dyno.bench.frameworks.keras import KerasFramework, load_keras
from dyno.bench.frameworks.plain_step import PlainStep, mean_of
from dyno.errors import DeviceUnavailable, FrameworkMissing

# Layers in one operation, which PyTorch can't count. The count of a step with such an operation would be too low.
_OPAQUE = ("_cudnn_rnn", "mkldnn_rnn_layer", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")


def _counting(function: Callable[[], Any]) -> tuple[Any, float | None]:
    """The function's result, and the FLOP of its products, multiply-add = 2; None if they can't be counted."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    def of_integers(a: Sequence[int], b: Sequence[int], **_: Any) -> int:
        return 2 * a[0] * a[1] * b[1]

    aten = torch.ops.aten
    uncounted = {getattr(aten, name): lambda *_, **__: math.nan for name in _OPAQUE}
    counter = FlopCounterMode(display=False, custom_mapping={aten._int_mm: of_integers, **uncounted})
    with counter:
        result = function()
    flops = float(counter.get_total_flops())
    return result, None if math.isnan(flops) else flops


class _CountedStep:
    """A function of a batch. `flops`: FLOP of its first call."""

    def __init__(self, step: Callable[[Any], Any]) -> None:
        self._step, self._called = step, False
        self.flops: float | None = None

    def __call__(self, batch: Any) -> Any:
        if self._called:
            return self._step(batch)
        self._called = True
        result, self.flops = _counting(lambda: self._step(batch))
        return result


class Torch(KerasFramework):
    """Executes operation by operation, without graphs, on one device."""

    name = "torch"

    def __init__(self) -> None:
        super().__init__()
        self._torch: Any = None
        self._device = "cpu"
        self._scope: Any = None
        self._examples: dict[Callable[..., Any], Any] = {}  # arguments of the functions that were made

    def load(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise FrameworkMissing(f"can't import torch: {error}") from error
        self._keras = load_keras("torch")
        self._torch = torch

    def start(self, kind: str, cores: int, replicas: int = 1) -> None:
        torch = self._torch
        if replicas > 1:
            raise DeviceUnavailable(f"Keras trains on one device under PyTorch, not on {replicas} replicas")
        if kind != "cpu" and not (kind == "gpu" and torch.cuda.is_available()):
            raise DeviceUnavailable(f"PyTorch {torch.__version__} sees no {kind} on this host")
        torch.set_num_threads(cores)
        torch.set_num_interop_threads(cores)
        self._device = "cpu" if kind == "cpu" else "cuda"
        # For the whole process: by default Keras uses any GPU that it sees. A scope ends when nothing refers to it.
        self._scope = self._keras.device(kind)
        self._scope.__enter__()
        ones = torch.ones((2, 2), device=self._device)
        self.scalar(self.total(self.matmul(ones, ones)))

    def compile(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        """The function itself, without gradient recording: PyTorch has no graph."""
        without: Callable[..., Any] = self._torch.no_grad()(function)
        self._examples[without] = examples
        return without

    def counted_flops(self, compiled: Callable[..., Any]) -> float | None:
        """None for a function that needs the values of tensors."""
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.utils import _pytree

        with FakeTensorMode(allow_non_fake_inputs=True) as shapes:
            examples = _pytree.tree_map(shapes.from_tensor, self._examples[compiled])
            try:
                return _counting(lambda: compiled(*examples))[1]
            except RuntimeError:  # the function reads a value, which these tensors lack
                return None

    def traced(self) -> Sequence[str] | None:
        """None: Dyno compiles nothing here, and PyTorch doesn't report other compilations."""
        return None

    def drain(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def array(self, value: Any, dtype: str) -> Any:
        """The tensor keeps the order of the elements in memory: by rows, or by columns (`numpy.asfortranarray`)."""
        return self._torch.from_numpy(value).to(self._device, getattr(self._torch, dtype), copy=True)

    def numpy(self, value: Any) -> Any:
        value = value.detach().cpu()
        return (value.float() if value.is_floating_point() and value.itemsize < 4 else value).numpy()

    def scalar(self, value: Any) -> float:
        return float(value.item())

    def matmul(self, a: Any, b: Any) -> Any:
        return self._torch.matmul(a, b)

    def integer_matmul(self, a: Any, b: Any) -> Any:
        """By the only int8 product summed in int32; PyTorch has no public function for it.

        Without VNNI, oneDNN sums pairs of products in 16 bits: with oneDNN limited to AVX2 or to AVX512_CORE, products
        of large values were wrong. Results say RESULT_INCORRECT then.
        """
        return self._torch._int_mm(a, b)

    def allow_tf32(self, allowed: bool) -> None:
        self._torch.backends.cuda.matmul.allow_tf32 = allowed

    def total(self, value: Any) -> Any:
        return value.sum(dtype=self._torch.float32)

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        for _ in range(count):
            start = body(start)
        return start

    def stream(self, kernel: StreamKernel, times: int, operands: StreamOperands) -> StreamCall:
        torch, x, z = self._torch, operands.x, operands.z
        first, step = float(operands.scale), float(operands.step)
        writers: dict[StreamKernel, Callable[[Any, float], Any]] = {
            "copy": lambda y, scale: y.copy_(x),
            "scale": lambda y, scale: torch.mul(x, scale, out=y),
            "add": lambda y, scale: torch.add(x, z, out=y),
            "triad": lambda y, scale: torch.add(z, x, alpha=scale, out=y),
        }
        write = writers[kernel]

        def calls(y: Any) -> Any:
            for number in range(times):
                write(y, first + number * step)
            return y

        return calls

    def transfer(self, values: NDArray[np.float32], *, to_host: bool, pinned: bool) -> Transfer:
        return TorchTransfer(self._torch, self._device, values, to_host=to_host, pinned=pinned)

    def trainer(
        self, model: Any, samples: Dataset, batch_size: int, seed: int, steps_per_execution: int = 1
    ) -> Trainer:
        return TorchTrainer(self._torch, self._device, model, samples, batch_size, seed, steps_per_execution)

    def plain_step(self, model: Any, *, exact: bool) -> PlainStep:
        torch = self._torch

        def gradients(inputs: NDArray[Any], targets: NDArray[Any]) -> tuple[float, Sequence[Any]]:
            allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
            both = (False, False) if exact else allowed
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = both
            try:
                batch, labels = (torch.tensor(array, device=self._device) for array in (inputs, targets))
                model.zero_grad()
                loss = model.compute_loss(batch, labels, model(batch, training=True), training=True)
                model.optimizer.scale_loss(loss).backward()
                return float(loss.detach()), [var.value.grad.detach().clone() for var in model.trainable_variables]
            finally:
                torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = allowed

        def apply(by_part: Sequence[Sequence[Any]]) -> None:
            with torch.no_grad():
                model.optimizer.apply(mean_of(by_part), model.trainable_variables)

        return PlainStep(model, gradients, apply, exact=exact)

    def fed_step(self, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> FedStep:
        return TorchFedStep(self._torch, self._device, model, inputs, targets)

    def forward(self, model: Any, example: Any) -> Callable[[Any], Any]:
        """The model without gradient recording and without compilation."""

        def outputs(batch: Any) -> Any:
            with self._torch.no_grad():
                return model(batch, training=False)

        self._examples[outputs] = (example,)
        return outputs

    def step(self, model: Any, inputs: Sequence[Any], state: Sequence[Any]) -> Step:
        """Without gradient recording and without compilation."""

        def step(inputs: Sequence[Any], state: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            with self._torch.no_grad():
                return split_state(model([*inputs, *state], training=False), len(state))

        self._examples[step] = (list(inputs), list(state))
        return step

    def out_of_memory(self, error: BaseException) -> bool:
        if self._torch is None:
            return False
        # On a CPU, PyTorch raises a plain RuntimeError; only its message identifies it.
        return isinstance(error, self._torch.OutOfMemoryError) or (
            isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
        )

    def visible_devices(self) -> list[dict[str, Any]]:
        cuda = self._torch.cuda
        gpus = [
            {"name": f"cuda:{number}", "kind": "gpu", "model": cuda.get_device_name(number)}
            for number in range(cuda.device_count())
        ]
        return [{"name": "cpu", "kind": "cpu"}, *gpus]

    def device_peak_bytes(self, kind: str) -> int | None:
        return int(self._torch.cuda.max_memory_allocated()) if self._device == "cuda" else None


class TorchTransfer:
    """See `dyno.bench.frameworks.interface.Transfer`. Before the first copy, the target's values are NaN."""

    def __init__(self, torch: Any, device: str, values: NDArray[np.float32], *, to_host: bool, pinned: bool) -> None:
        self._torch, self._device = torch, device
        on_host = torch.empty(values.shape, pin_memory=pinned)
        on_device = torch.empty(values.shape, device=device)
        self._source, self._target = (on_device, on_host) if to_host else (on_host, on_device)
        self._source.copy_(torch.from_numpy(values))
        self._target.fill_(math.nan)

    @property
    def bytes(self) -> int:
        return int(self._target.nbytes)

    @property
    def route(self) -> str:
        names = (f"{'pinned ' if each.is_pinned() else ''}{each.device.type}" for each in (self._source, self._target))
        return " to ".join(names)

    def execute(self, count: int) -> None:
        for _ in range(count):
            self._target.copy_(self._source, non_blocking=True)
            if self._device == "cuda":
                self._torch.cuda.synchronize()

    def arrived(self) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self._target.cpu().numpy()
        return values


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
        self._train_step = _CountedStep(model.train_step)
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
        """Do nothing, for the reason in `sync`."""

    def counted_flops(self) -> float | None:
        flops = self._train_step.flops
        return None if flops is None else flops * self.steps_per_execution

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
        return self._train_step(self._batch(chosen))["loss"]


class TorchFedStep:
    """See `dyno.bench.frameworks.interface.FedStep`. Compiles nothing, regardless of the model's `jit_compile`."""

    def __init__(self, torch: Any, device: str, model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> None:
        self.jit_compile = False
        self._torch, self._device, self._model = torch, device, model
        self._train_step = _CountedStep(model.train_step)
        model._symbolic_build(data_batch=self.placed(inputs[:1], targets[:1]))
        model.reset_metrics()

    def compile(self) -> None:
        """Do nothing: each step runs operation by operation."""

    def placed(self, inputs: NDArray[Any], targets: NDArray[Any]) -> Any:
        return tuple(self._torch.tensor(array, device=self._device) for array in (inputs, targets))

    def train(self, batch: Any) -> float:
        return float(self._train_step(batch)["loss"])

    def sync(self) -> None:
        """Do nothing: the step trains the Keras model's own variables."""

    def counted_flops(self) -> float | None:
        return self._train_step.flops
