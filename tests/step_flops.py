"""TensorFlow's own FLOP count of a training step's graph. It counts a loop's body once, so unroll loops."""


def step_flops(model, inputs, targets):
    """FLOP of the matrix products of one step of a compiled Keras model on that batch."""
    import tensorflow as tf
    from tensorflow.python.framework import ops

    batch = tf.constant(inputs), tf.constant(targets)
    graph = tf.function(model.train_step, autograph=False).get_concrete_function(batch).graph
    products = [node.node_def for node in graph.get_operations() if node.type in {"MatMul", "BatchMatMulV2"}]
    return float(sum(ops.get_stats_for_node_def(graph, node, "flops").value for node in products))
