"""The named sweeps of `sweep_presets.json`: the tables and graphs of the reference articles.

Those with a TPU run on JAX, the only framework that Dyno runs on TPUs, so that their points differ by the device alone.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from dyno.models.sweep import Preset

_FILE = Path(__file__).with_suffix(".json")


@cache
def presets() -> Mapping[str, Preset]:
    """Every preset by name."""
    return {name: Preset.model_validate(each) for name, each in json.loads(_FILE.read_text()).items()}
