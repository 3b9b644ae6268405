"""What a workload may ask of a framework. One file per framework; each imports it inside functions only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Framework(Protocol):
    name: str

    def load(self) -> None:
        """Import it (the import_s phase). Touches no device, so a zygote may do it before a fork."""

    def start(self, kind: str, cores: int) -> None:
        """Start the device with `cores` threads, finish one tiny operation on it and read its result back."""

    def versions(self) -> dict[str, str]:
        """Package name -> version."""

    @property
    def keras(self) -> Any:
        """The keras module on this framework's backend."""

    def compile(self, function: Callable[..., Any], *examples: Any) -> Callable[..., Any]:
        """Trace and compile `function` for arguments shaped like `examples`; executes nothing."""

    def array(self, value: Any, dtype: str) -> Any:
        """A device tensor of a NumPy array, cast to `dtype`."""

    def numpy(self, value: Any) -> Any:
        """A NumPy array (float32 or wider) of a device tensor."""

    def scalar(self, value: Any) -> float:
        """Read a scalar back: the synchronisation that can't lie."""
