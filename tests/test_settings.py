from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from dyno.settings import Settings, WrongSettings, load_settings

DYNO = Path(sys.executable).with_name("dyno")
NUMBERS = {"runner_memory_bytes"}  # an empty value is an error
FOLDERS = ["spool_dir", "artifact_dir"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_persistent_folders_are_in_the_home_not_in_the_working_directory(
    folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(f"DYNO_{folder.upper()}", raising=False)
    assert getattr(Settings(), folder).is_absolute()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(f"DYNO_{folder.upper()}", "~/kept")
    assert getattr(Settings(), folder) == tmp_path / "kept"


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_unknown_home_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DYNO_{folder.upper()}", "~nobody-of-that-name/kept")
    with pytest.raises(ValidationError, match="name the folder in full"):
        Settings()


WRONG = {
    "PORT": "HIDDEN",
    "REDIS_URL": "127.0.0.1:6379/HIDDEN",
    "NAMESPACE": "",
    "SPOOL_DIR": "~HIDDEN/kept",
    "WEBHOOK_SECRET": "HIDDEN",
    "WEBHOOK_RETRY_S": "1, HIDDEN",
    "WEBHOOK_ALLOWED_HOSTS": "http://user:HIDDEN@host",
    "CORS_ORIGINS": "https://HIDDEN/",
    "LEASE_S": "-1",
    "HEARTBEAT_S": "0",
    "SHUTDOWN_S": "nan",
    "WEBHOOK_TIMEOUT_S": "inf",
    "MAX_QUEUED": "-5",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_named_and_not_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DYNO_{name}", WRONG[name])
    with pytest.raises(WrongSettings) as raised:
        load_settings()
    assert raised.value.detail.startswith(f"DYNO_{name}: ")
    assert "HIDDEN" not in raised.value.detail
    assert "Value error" not in raised.value.detail


@pytest.mark.parametrize("url", ["redis://host:HIDDEN", "rediss://user:word@host:99999/0", "redis://[HIDDEN"])
def test_an_invalid_redis_url_is_a_wrong_setting(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNO_REDIS_URL", url)
    with pytest.raises(WrongSettings, match=r"^DYNO_REDIS_URL: ") as raised:
        load_settings()
    assert "HIDDEN" not in raised.value.detail


def test_all_wrong_settings_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PORT", "LEASE_S"):
        monkeypatch.setenv(f"DYNO_{name}", WRONG[name])
    with pytest.raises(WrongSettings, match=r"DYNO_PORT: .*; DYNO_LEASE_S: "):
        load_settings()


NAMES = [name for name, field in Settings.model_fields.items() if field.default is None and name not in NUMBERS]


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_variable_is_unset(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DYNO_{name.upper()}", "")
    assert getattr(load_settings(), name) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "service"),
        ("-m", "service.openapi"),
        ("-m", "workers"),
        (DYNO, "doctor"),
        (DYNO, "keys", "list"),
        (DYNO, "up"),
    ],
    ids=lambda arguments: " ".join(arguments[1:]),
)
def test_no_process_starts_with_a_wrong_setting_and_each_prints_one_line(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env=os.environ | {"DYNO_LEASE_S": "soon"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("dyno: DYNO_LEASE_S: Input should be a valid number")
    assert len(done.stderr.splitlines()) == 1


def test_prices_are_read_from_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNO_PRICES", '{"gpu:0@host": 2.5, "NVIDIA H200": 3}')
    assert dict(load_settings().prices) == {"gpu:0@host": 2.5, "NVIDIA H200": 3.0}
    assert isinstance(hash(load_settings()), int)
    monkeypatch.setenv("DYNO_PRICES", "")
    assert load_settings().prices == ()


@pytest.mark.parametrize(
    "wrong", ["{", "[]", "2.5", '{"gpu:0": 0}', '{"gpu:0": -1}', '{"gpu:0": "much"}', '{"a": NaN}']
)
def test_a_wrong_price_prevents_the_start(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("DYNO_PRICES", wrong)
    with pytest.raises(WrongSettings, match="DYNO_PRICES"):
        load_settings()
