"""Compile collective operations over the devices of JAX' process. Only functions import JAX."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.bench.frameworks.interface import Collective

_AXIS = "unit"


class JaxCollective:
    """`name` over `devices`: device r holds row r of `rows` (float32). See `CompiledCollective`."""

    def __init__(self, jax: Any, devices: Sequence[Any], name: Collective, rows: NDArray[np.float32]) -> None:
        mesh = jax.sharding.Mesh(np.array(devices), (_AXIS,))
        split = jax.sharding.PartitionSpec(_AXIS)
        sharding = jax.sharding.NamedSharding(mesh, split)
        self._rows = jax.device_put(rows, sharding)
        operation = _operations(jax.lax, len(devices))[name]
        over_units = jax.shard_map(
            lambda row: operation(row[0])[np.newaxis], mesh=mesh, in_specs=split, out_specs=split, check_vma=False
        )
        self._call = jax.jit(over_units).trace(self._rows).lower().compile()
        self._outputs = jax.device_put(np.zeros(self._call.out_info.shape, np.float32), sharding)
        self._read()  # compiles the reading
        # On a CPU, the virtual devices of several operations under way wait for each other's threads for ever.
        self._waits = devices[0].platform == "cpu"

    @property
    def bytes(self) -> int:
        return sum(int(array.nbytes) for array in (self._rows, self._outputs))

    def execute(self, count: int) -> None:
        for _ in range(count):
            self._outputs = self._call(self._rows)
            if self._waits:
                self._outputs.block_until_ready()
        self._read()

    def _read(self) -> None:
        for shard in self._outputs.addressable_shards:
            float(shard.data[0, 0])

    def outputs(self) -> NDArray[np.float32]:
        return np.asarray(self._outputs)


def _operations(lax: Any, units: int) -> dict[Collective, Callable[[Any], Any]]:
    """What each unit computes from its row."""
    to_the_next = [(unit, (unit + 1) % units) for unit in range(units)]
    return {
        "all_reduce": lambda row: lax.psum(row, _AXIS),
        "all_gather": lambda row: lax.all_gather(row, _AXIS, tiled=True),
        "reduce_scatter": lambda row: lax.psum_scatter(row, _AXIS, tiled=True),
        "broadcast": lambda row: lax.pbroadcast(row, (_AXIS,), 0),
        "send_receive": lambda row: lax.ppermute(row, _AXIS, to_the_next),
        "all_to_all": lambda row: lax.all_to_all(row, _AXIS, 0, 0, tiled=True),
    }
