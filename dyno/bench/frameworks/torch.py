"""Run Keras on PyTorch. Only methods import PyTorch."""

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from dyno.bench.frameworks.interface import Dataset, FedStep, Trainer
from dyno.bench.frameworks.keras import KerasFramework, load_keras
from dyno.bench.frameworks.plain_step import PlainStep, mean_of
from dyno.bench.frameworks.torch_trainer import TorchFedStep, TorchTrainer
from dyno.errors import DeviceUnavailable, FrameworkMissing


class Torch(KerasFramework):
    """Executes operation by operation, without graphs, on one device."""

    name = "torch"

    def __init__(self) -> None:
        super().__init__()
        self._torch: Any = None
        self._device = "cpu"
        self._scope: Any = None

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
        # For the whole process: by default Keras uses any GPU that it sees. A scope without a reference ends at once.
        self._scope = self._keras.device(kind)
        self._scope.__enter__()
        ones = torch.ones((2, 2), device=self._device)
        self.scalar(self.total(self.matmul(ones, ones)))

    def compile(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        """The function itself, without gradient recording: PyTorch has no graph."""
        without: Callable[..., Any] = self._torch.no_grad()(function)
        return without

    def counted_flops(self, compiled: Callable[..., Any]) -> float | None:
        """None: PyTorch has no graph to count in."""
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
        return self._torch._int_mm(a, b)  # the only int8 product summed in int32; PyTorch has no public function for it

    def allow_tf32(self, allowed: bool) -> None:
        self._torch.backends.cuda.matmul.allow_tf32 = allowed

    def total(self, value: Any) -> Any:
        return value.sum(dtype=self._torch.float32)

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        for _ in range(count):
            start = body(start)
        return start

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

        return outputs

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
