"""The two cores that tests measure on. Parallel pytest processes (`pytest -n 3`) alternate between them.

If this process may use only one core, both names stand for it, and tests marked `two_cores` are skipped.
"""

import os

import pytest

_MINE = sorted(os.sched_getaffinity(0))
_ENDS = (_MINE[1 % len(_MINE)], _MINE[0])
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
CORE, OTHER_CORE = _ENDS if _PROCESS % 2 else _ENDS[::-1]
HERE, THERE = f"cpu:{CORE}-{CORE}", f"cpu:{OTHER_CORE}-{OTHER_CORE}"
two_cores = pytest.mark.skipif(CORE == OTHER_CORE, reason="one core here: no second device")
