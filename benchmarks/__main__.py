"""`python -m benchmarks [name …]`: run the named benchmarks, or all."""

from __future__ import annotations

import sys

from benchmarks import matmul, mnist_cnn, start

ALL = {"start": start.main, "matmul": matmul.main, "mnist_cnn": mnist_cnn.main}

for name in sys.argv[1:] or ALL:
    print(f"== {name}", flush=True)
    ALL[name]()
