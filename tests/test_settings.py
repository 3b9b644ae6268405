from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from dyno.settings import Settings

FOLDERS = ["spool_dir", "artifact_dir"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_has_to_last_lies_in_the_home_and_not_where_a_process_happens_to_be(
    folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(f"DYNO_{folder.upper()}", raising=False)
    assert getattr(Settings(), folder).is_absolute()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(f"DYNO_{folder.upper()}", "~/kept")
    assert getattr(Settings(), folder) == tmp_path / "kept"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_home_that_nobody_has_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DYNO_{folder.upper()}", "~nobody-of-that-name/kept")
    with pytest.raises(ValidationError, match="name the folder in full"):
        Settings()
