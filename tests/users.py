"""Another user of this host. Only root can become one, so other users skip these tests."""

import os

import pytest

NOBODY = 65534
BECOME_NOBODY = f"""
import os
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
"""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run something as another user")
