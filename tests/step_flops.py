"""TensorFlow's own FLOP count of a training step's graph. It counts a loop's body once, so unroll loops."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def step_flops(model: Any, inputs: NDArray[Any], targets: NDArray[Any]) -> float:
    """FLOP of the matrix products of one step of a compiled Keras model on that batch."""
    import tensorflow as tf
    from tensorflow.python.framework import ops

    batch = tf.constant(inputs), tf.constant(targets)
    graph = tf.function(model.train_step, autograph=False).get_concrete_function(batch).graph
    products = [node.node_def for node in graph.get_operations() if node.type in {"MatMul", "BatchMatMulV2"}]
    return float(sum(ops.get_stats_for_node_def(graph, node, "flops").value for node in products))
