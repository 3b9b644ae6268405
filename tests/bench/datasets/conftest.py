import os
from pathlib import Path

import pytest

from dyno.settings import Settings

REAL = os.environ.get("DYNO_DATA_DIR")


@pytest.fixture(autouse=True)
def keras_home(tmp_path, monkeypatch):
    """An empty cache instead of this machine's own."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    for name in ("DYNO_DATA_DIR", "DYNO_DOWNLOAD"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "keras"


@pytest.fixture
def real_data():
    if REAL is None:
        pytest.skip("DYNO_DATA_DIR names no folder with the real data sets")
    return Settings(data_dir=Path(REAL))
