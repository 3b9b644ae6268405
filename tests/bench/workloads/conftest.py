import os
from contextlib import nullcontext
from dataclasses import replace

import pytest

from dyno.bench.contract import BuildContext
from dyno.models.device import Device

CORES = sorted(os.sched_getaffinity(0))
PRODUCTS = {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul"}


@pytest.fixture(scope="session")
def device():
    """A CPU with a small cache, so that rotating operands stay few, and too little memory for plain training steps.

    Those take a third of a training's time here; `with_room` has them.
    """
    return Device(
        id="cpu:0", kind="cpu", model="test", host="here", cores=CORES, memory_bytes=1 << 30, last_cache_bytes=1 << 20
    )


@pytest.fixture(scope="session")
def context(tensorflow, device):
    """Makes a context, optionally with `framework`, `run` and folders."""

    def make(framework=tensorflow, run=0, data_dir=None, artifacts=None):
        framework.seed(5)
        return BuildContext(
            framework=framework,
            seed=5,
            run=run,
            cores=len(CORES),
            phase=lambda name: nullcontext(),
            report=_unheard,
            device=device,
            data_dir=data_dir,
            artifacts=artifacts,
            tuned={"jit_compile": False},  # as a first run chose: measuring it takes seconds, see test_jit
        )

    return make


@pytest.fixture(scope="session")
def with_room(context, device):
    """Like `context`, on a device with enough memory for plain steps."""
    roomy = device.model_copy(update={"memory_bytes": 64 << 30})
    return lambda *given, **named: replace(context(*given, **named), device=roomy)


@pytest.fixture(scope="session")
def graph_flops(tensorflow):
    """Counts the FLOP per sample of an image model's training step in TensorFlow's own graph."""

    def counted(model, batch=10):
        import tensorflow as tf
        from tensorflow.python.framework import ops

        images, labels = tf.zeros((batch, *model.input_shape[1:]), tf.uint8), tf.zeros((batch, 10))
        graph = tf.function(model.train_step, autograph=False).get_concrete_function((images, labels)).graph
        nodes = [node for node in graph.get_operations() if node.type in PRODUCTS]
        return sum(float(ops.get_stats_for_node_def(graph, node.node_def, "flops").value) for node in nodes) / batch

    return counted


def _unheard(phase, completed, total, unit):
    return None
