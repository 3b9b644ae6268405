"""How many connections the limit on open files allows.

Beyond that limit nothing could be accepted, and what is under way couldn't open a file or a connection to Redis.
"""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

FILES_EACH = 2  # its own, and a file that is sent or received, or a share of what else the process has open


def places(wanted: int) -> int:
    """As many connections as `wanted`, or as the system lets this process have; raises its soft limit for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_EACH * wanted
    if _below(soft, needed):
        soft = hard if _below(hard, needed) else needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if not _below(soft, needed):
        return wanted
    log.warning("%d open files are allowed, so at most %d connections, not %d", soft, soft // FILES_EACH, wanted)
    return soft // FILES_EACH


def _below(limit: int, files: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < files
