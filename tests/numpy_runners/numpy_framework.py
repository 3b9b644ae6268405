"""A framework that multiplies with NumPy, under TensorFlow's name: a worker's processes without TensorFlow's import.

It runs `matmul` in float32, which is what tests of workers ask for. Zygote, runner, samples and checks are the real
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dyno.errors import DeviceUnavailable


class TensorFlow:
    name = "tensorflow"
    keras = None

    def load(self) -> None:
        import numpy  # noqa: F401

    def start(self, kind: str, cores: int, replicas: int = 1) -> None:
        import numpy as np

        if kind != "cpu":
            raise DeviceUnavailable(f"NumPy sees no {kind}")
        one = np.ones((2, 2), np.float32)
        assert (one @ one).sum() == 8

    def scope(self) -> AbstractContextManager[object]:
        return nullcontext()

    def versions(self) -> dict[str, str]:
        import numpy as np

        return {"numpy": np.__version__}

    def visible_devices(self) -> list[dict[str, Any]]:
        return []

    def seed(self, seed: int) -> None:
        """Nothing here draws."""

    def compile(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        return function

    def counted_flops(self, compiled: Callable[..., Any]) -> None:
        return None

    def traced(self) -> None:
        return None

    def drain(self) -> None:
        """A call returns when it is done."""

    def array(self, value: Any, dtype: str) -> Any:
        import numpy as np

        return np.asarray(value, dtype)

    def numpy(self, value: Any) -> Any:
        return value

    def scalar(self, value: Any) -> float:
        return float(value)

    def matmul(self, a: Any, b: Any) -> Any:
        return a @ b

    def allow_tf32(self, allowed: bool) -> None:
        """There is none."""

    def total(self, value: Any) -> Any:
        return value.sum()

    def repeat(self, count: int, body: Callable[[Any], Any], start: Any) -> Any:
        for _ in range(count):
            start = body(start)
        return start

    def out_of_memory(self, error: BaseException) -> bool:
        return False

    def device_peak_bytes(self, kind: str) -> None:
        return None
