"""The naive way to a fresh process per job: Celery's `worker_max_tasks_per_child=1`, import in the task."""

from __future__ import annotations

import os
import time

from celery import Celery

_url = os.environ["NAIVE_REDIS_URL"].replace("unix://", "redis+socket://")
app = Celery("naive", broker=_url, backend=_url)
app.conf.update(worker_max_tasks_per_child=1, worker_concurrency=1, broker_connection_retry_on_startup=True)


@app.task  # type: ignore[untyped-decorator]  # Celery has no types
def first_op() -> float:
    """When the first TensorFlow operation was finished, as time.time()."""
    import tensorflow as tf

    tf.square(tf.constant(1.0)).numpy()  # as in dyno.bench.frameworks.tensorflow
    return time.time()
