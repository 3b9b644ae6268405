"""What is on this host: its devices, their peaks and sensors."""

from dyno.devices.discover import discover, host_name
from dyno.devices.environment import context_id, environment, hardware_id
from dyno.devices.frameworks import installed_frameworks
from dyno.devices.locks import hold, lock_paths, shared_lock_paths

__all__ = [
    "context_id",
    "discover",
    "environment",
    "hardware_id",
    "hold",
    "host_name",
    "installed_frameworks",
    "lock_paths",
    "shared_lock_paths",
]
