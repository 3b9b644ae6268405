"""Workers whose runners multiply with NumPy, for tests of everything around a runner. No TensorFlow, no seconds of import.

Python imports `sitecustomize.py` from PYTHONPATH at its start, in a worker, its zygotes and its runners alike.
"""

from pathlib import Path

ON_NUMPY = ("PYTHONPATH", str(Path(__file__).parent))  # a variable of the environment and what is put before its value
