"""Workers whose runners multiply with NumPy: for tests of everything around a runner, without the seconds that
importing TensorFlow takes.

Python imports `sitecustomize.py` from PYTHONPATH at its start, in a worker, its zygotes and its runners alike.
"""

import os
from pathlib import Path

ON_NUMPY = {"PYTHONPATH": os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))}
