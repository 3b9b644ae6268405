"""What TensorFlow itself counts in a traced graph: the FLOP of its products, those of a loop once for each round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_PRODUCTS = frozenset(
    {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}
)
# Products that TensorFlow has no figure for: with one of these inside, a count would be too low.
_OPAQUE = ("Cudnn", "Einsum", "Xla", "Conv3D", "DepthwiseConv2dNative", "Quantized", "Uniform", "SparseMatMul")
_LOOPS = frozenset({"While", "StatelessWhile"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_BRANCHES = {"If": ("then_branch", "else_branch"), "StatelessIf": ("then_branch", "else_branch")}


def counted_flops(graph: Any, rounds: int | None = None) -> float | None:
    """FLOP of the products of one execution, multiply-add = 2. None where they can't be counted.

    `rounds`: of the outermost loops that don't tell how often they go round. How often is read from a loop's
    condition, a counter compared with a constant; where it has several, the first to end it counts.
    """
    total = 0.0
    for operation in graph.get_operations():
        flops = _of_operation(graph, operation, rounds)
        if flops is None:
            return None
        total += flops
    return total


def _of_operation(graph: Any, operation: Any, rounds: int | None) -> float | None:
    kind = operation.type
    if kind in _PRODUCTS:
        return _of_product(graph, operation)
    if kind.startswith(_OPAQUE):
        return None
    if kind in _CALLS:
        return counted_flops(_inner(graph, operation, "f"), rounds)
    if kind in _LOOPS:
        return _of_loop(graph, operation, rounds)
    if kind in _BRANCHES:
        return _most(counted_flops(_inner(graph, operation, name), rounds) for name in _BRANCHES[kind])
    return 0.0


def _of_product(graph: Any, operation: Any) -> float | None:
    from tensorflow.python.framework import ops

    try:
        value = ops.get_stats_for_node_def(graph, operation.node_def, "flops").value
    except (AssertionError, TypeError, ValueError):  # a shape that isn't known before it runs
        return None
    return None if value is None else float(value)


def _of_loop(graph: Any, loop: Any, rounds: int | None) -> float | None:
    body = counted_flops(_inner(graph, loop, "body"))
    if body == 0.0 or body is None:
        return body
    times = _rounds(graph, loop)
    times = rounds if times is None else times
    return None if times is None else times * body


def _rounds(graph: Any, loop: Any) -> int | None:
    """How often it goes round at most, by the counters that its condition compares; None if none tells."""
    condition = _inner(graph, loop, "cond")
    places = {tensor.name: place for place, tensor in enumerate(condition.inputs)}
    bounds = []
    for compared in condition.get_operations():
        if compared.type == "Less":
            first, end = (_value(graph, loop, places, tensor) for tensor in compared.inputs)
            if first is not None and end is not None:
                bounds.append(max(0, end - first))
    return min(bounds, default=None)


def _value(graph: Any, loop: Any, places: dict[str, int], tensor: Any) -> int | None:
    """Of a whole number in a loop's condition, when the loop starts."""
    from tensorflow.python.framework import tensor_util

    outside = loop.inputs[places[tensor.name]] if tensor.name in places else tensor
    if outside.op.type in _LOOPS and outside.value_index == 0:  # the rounds of another loop, as gradients count them
        return _rounds(graph, outside.op)
    value = tensor_util.constant_value(outside) if outside.dtype.is_integer else None
    return None if value is None else int(value)


def _inner(graph: Any, operation: Any, attribute: str) -> Any:
    return graph._get_function(operation.get_attr(attribute).name).graph


def _most(counts: Iterator[float | None]) -> float | None:
    known = list(counts)
    return None if None in known else max(count for count in known if count is not None)
