"""Product chains with deliberate errors, one kind per class."""

import time
from contextlib import contextmanager

from dyno.bench.workloads.matmul import Chain


class Unread(Chain):
    """Doesn't wait for the results."""

    def execute(self, count):
        for _ in range(count):
            self._product, _ = self._compiled(self._start, self._factor)


class Folded(Chain):
    """Its operands are constants of the graph, so the compiler multiplies them once."""

    def _of(self, repeats):
        framework = self._framework
        start, factor = (framework.numpy(each) for each in (self._start, self._factor))

        def chain(ignored, too):
            constant = framework.array(factor, "float32")
            multiplied = framework.repeat(repeats, lambda value: framework.matmul(value, constant), start)
            return multiplied, framework.total(multiplied)

        return framework.compile(chain, self._start, self._factor)


class Dropped(Chain):
    """Its product is unused, so the compiler may drop it."""

    def _of(self, repeats):
        framework = self._framework

        def chain(start, factor):
            framework.repeat(repeats, lambda value: framework.matmul(value, factor), start)
            return start, framework.total(start)

        return framework.compile(chain, self._start, self._factor)


class Once(Chain):
    """Executes once and then only returns the old product."""

    def execute(self, count):
        if self._product is None:
            super().execute(1)
        time.sleep(0.06)


class Recompiling(Chain):
    def execute(self, count):
        self.compile()
        super().execute(count)


class Shorter(Chain):
    """Computes one product too few."""

    def _of(self, repeats):
        return super()._of(repeats - 1)


class _Changed(Chain):
    """Changes its operands once they are on the device."""

    def compile(self):
        self._change()
        super().compile()

    def _change(self):
        raise NotImplementedError


class Constant(_Changed):
    def _change(self):
        self._start = self._start * 0 + 1


class Overflowing(_Changed):
    def _change(self):
        self._factor = self._factor * 1e12


class Coarse(Chain):
    """The compiled chain computes in bfloat16 instead of float32. A single product is still in float32."""

    def _of(self, repeats):
        framework = self._framework

        def chain(start, factor):
            first, narrow = (framework.array(each, "bfloat16") for each in (start, factor))
            product = framework.repeat(repeats, lambda value: framework.matmul(value, narrow), first)
            wide = framework.array(product, "float32")
            return wide, framework.total(wide)

        return framework.compile(chain, self._start, self._factor)


@contextmanager
def in_the_background(framework):
    """Run calls asynchronously. On a CPU, TensorFlow waits for each call by default; the other frameworks never do."""
    if framework.name != "tensorflow":
        yield
        return
    import tensorflow as tf

    tf.config.experimental.set_synchronous_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.set_synchronous_execution(True)
