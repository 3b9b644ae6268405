"""The two cores that tests measure on: of two pytest processes side by side (`pytest -n 2`) each has one to itself."""

from __future__ import annotations

import os

CORE, OTHER_CORE = (1, 0) if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" else (0, 1)
HERE, THERE = f"cpu:{CORE}-{CORE}", f"cpu:{OTHER_CORE}-{OTHER_CORE}"
