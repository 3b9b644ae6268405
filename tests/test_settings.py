from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from dyno.settings import Settings, WrongSettings, configured

DYNO = Path(sys.executable).with_name("dyno")
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


def test_each_wrong_setting_is_named_and_none_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PORT", "over there"), ("WEBHOOK_SECRET", "my secret"), ("WEBHOOK_RETRY_S", "1, soon")):
        monkeypatch.setenv(f"DYNO_{name}", value)
    with pytest.raises(WrongSettings) as raised:
        configured()
    wrong = [each.partition(": ")[0] for each in raised.value.detail.split("; ")]
    assert wrong == ["DYNO_PORT", "DYNO_WEBHOOK_SECRET", "DYNO_WEBHOOK_RETRY_S"]
    assert not any(shown in raised.value.detail for shown in ("over there", "my secret", "soon"))


@pytest.mark.parametrize("arguments", ["-m service", "-m workers", f"{DYNO} doctor", f"{DYNO} keys list", f"{DYNO} up"])
def test_no_part_starts_with_a_wrong_setting_and_each_says_so(arguments: str) -> None:
    command = [sys.executable, "-P", *arguments.split()]
    done = subprocess.run(command, env=os.environ | {"DYNO_PORT": "over there"}, capture_output=True, text=True)
    assert done.returncode in (1, 2)
    assert "DYNO_PORT: Input should be a valid integer" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
