"""Settings: what docs/settings.md can't show, since it shows their names, defaults, bounds and meanings."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from dyno.settings import Settings, WrongSettings, load_settings
from tests import guides

DYNO = Path(sys.executable).with_name("dyno")


@pytest.mark.parametrize("folder", ["spool_dir", "artifact_dir"])
def test_persistent_folders_are_in_the_home_not_in_the_working_directory(folder, monkeypatch, tmp_path):
    monkeypatch.delenv(f"DYNO_{folder.upper()}", raising=False)
    assert getattr(Settings(), folder).is_absolute()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(f"DYNO_{folder.upper()}", "~/kept")
    assert getattr(Settings(), folder) == tmp_path / "kept"


def test_every_setting_has_a_description():
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


WRONG = [
    ("PORT", "HIDDEN"),
    ("REDIS_URL", "127.0.0.1:6379/HIDDEN"),
    ("REDIS_URL", "redis://host:HIDDEN"),
    ("REDIS_URL", "rediss://user:HIDDEN@host:99999/0"),
    ("REDIS_URL", "redis://[HIDDEN"),
    ("NAMESPACE", ""),
    ("SPOOL_DIR", "~HIDDEN/kept"),
    ("ARTIFACT_DIR", "~HIDDEN/kept"),
    ("WEBHOOK_SECRET", "HIDDEN"),
    ("WEBHOOK_RETRY_S", "1, HIDDEN"),
    ("WEBHOOK_ALLOWED_HOSTS", "http://user:HIDDEN@host"),
    ("CORS_ORIGINS", "https://HIDDEN/"),
    ("LEASE_S", "-1"),
    ("HEARTBEAT_S", "0"),
    ("SHUTDOWN_S", "nan"),
    ("WEBHOOK_TIMEOUT_S", "inf"),
    ("MAX_QUEUED", "-5"),
    ("WORKER_START", "HIDDEN"),
    *(("PRICES", text) for text in ("{", "[]", "2.5", '{"gpu:0": 0}', '{"gpu:0": -1}', '{"gpu:0": "HIDDEN"}')),
    ("PRICES", '{"a": NaN}'),
    *(("RUNNER_ENV", text) for text in ("HF_HOME, HIDDEN=1", "*", "LAB_*_KEY", "a b", "DYNO_REDIS_URL", "DYNO_*")),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_setting_is_named_and_not_shown(name, value, monkeypatch):
    monkeypatch.setenv(f"DYNO_{name}", value)
    with pytest.raises(WrongSettings) as raised:
        load_settings()
    assert raised.value.detail.startswith(f"DYNO_{name}: ")
    assert "HIDDEN" not in raised.value.detail
    assert "Value error" not in raised.value.detail


def test_all_wrong_settings_are_named_at_once_also_those_in_files(monkeypatch, tmp_path):
    monkeypatch.setenv("DYNO_SECRETS_DIR", str(tmp_path))
    (tmp_path / "DYNO_PORT").write_text("HIDDEN")
    monkeypatch.setenv("DYNO_LEASE_S", "-1")
    with pytest.raises(WrongSettings, match=r"DYNO_PORT: .*; DYNO_LEASE_S: ") as raised:
        load_settings()
    assert "HIDDEN" not in raised.value.detail


@pytest.mark.parametrize("name", [name for name, field in Settings.model_fields.items() if field.default is None])
def test_an_empty_variable_is_unset(name, monkeypatch):
    monkeypatch.setenv(f"DYNO_{name.upper()}", "")
    assert getattr(load_settings(), name) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "service"),
        (DYNO, "up"),
        *(
            pytest.param(words, marks=pytest.mark.verify)
            for words in (("-m", "workers"), ("-m", "service.openapi"), (DYNO, "doctor"), (DYNO, "keys", "list"))
        ),
    ],
    ids=lambda arguments: " ".join(arguments[1:]),
)
def test_no_process_starts_with_a_wrong_setting_and_each_prints_one_line(arguments):
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


def test_lists_and_prices_are_read_and_settings_can_be_hashed(monkeypatch):
    monkeypatch.setenv("DYNO_PRICES", '{"gpu:0@host": 2.5, "NVIDIA H200": 3}')
    monkeypatch.setenv("DYNO_RUNNER_ENV", "HF_HOME, LAB_*")
    assert dict(load_settings().prices) == {"gpu:0@host": 2.5, "NVIDIA H200": 3.0}
    assert load_settings().runner_env == ("HF_HOME", "LAB_*")
    assert isinstance(hash(load_settings()), int)
    monkeypatch.setenv("DYNO_PRICES", "")
    assert load_settings().prices == ()


def test_the_commands_of_the_guide_make_a_valid_webhook_secret(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on this machine")
    page = guides.ROOT / "docs" / "webhooks.md"
    [block] = [block.text for block in guides.blocks(page) if "webhooks.env" in block.text]
    program = "from dyno.settings import load_settings; print(load_settings().webhook_secret is not None)"
    script = block.replace("dyno up", f"{shlex.quote(sys.executable)} -P -c '{program}'")
    env = os.environ | {"PYTHONPATH": str(guides.ROOT)}
    done = subprocess.run(["sh", "-euc", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_file_in_the_folder_of_secrets_takes_precedence(monkeypatch, tmp_path):
    monkeypatch.setenv("DYNO_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("DYNO_WEBHOOK_SECRET", "")
    monkeypatch.setenv("DYNO_NAMESPACE", "kept")
    (tmp_path / "DYNO_WEBHOOK_SECRET").write_text(f"whsec_{'A' * 32}\n")
    (tmp_path / "DYNO_NAMESPACE").write_text("\n")
    (tmp_path / "ca.crt").write_bytes(b"\xff")
    settings = load_settings()
    assert settings.webhook_secret is not None
    assert settings.webhook_secret.get_secret_value() == f"whsec_{'A' * 32}"
    assert settings.namespace == "kept"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://api@redis:6379/0", "redis://api:p%2F%40s@redis:6379/0"),
        ("rediss://redis/1", "rediss://:p%2F%40s@redis/1"),
        ("unix://worker@/run/redis.sock?db=1", "unix://worker:p%2F%40s@/run/redis.sock?db=1"),
        ("redis://api:own@redis:6379/0", "redis://api:own@redis:6379/0"),
    ],
)
def test_the_password_of_redis_goes_into_its_url(url, expected, monkeypatch):
    monkeypatch.setenv("DYNO_REDIS_URL", url)
    monkeypatch.setenv("DYNO_REDIS_PASSWORD", "p/@s")
    settings = load_settings()
    assert settings.redis_url == expected
    assert "p/@s" not in repr(settings.redis_password)
    found = redis.ConnectionPool.from_url(str(settings.redis_url)).connection_kwargs
    assert found["password"] == ("own" if "own" in url else "p/@s")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda folder: None, "No such file"),
        (lambda folder: folder.write_text("x"), "Not a directory"),
        (lambda folder: (folder / "DYNO_PORT").mkdir(parents=True), "DYNO_PORT: Is a directory"),
        (lambda folder: (folder.mkdir(), (folder / "DYNO_PORT").write_bytes(b"\xff")), "DYNO_PORT has no text"),
    ],
)
def test_secrets_that_can_not_be_read_prevent_the_start(make, expected, monkeypatch, tmp_path):
    make(tmp_path / "secrets")
    monkeypatch.setenv("DYNO_SECRETS_DIR", str(tmp_path / "secrets"))
    with pytest.raises(WrongSettings, match=f"^DYNO_SECRETS_DIR: .*{expected}"):
        load_settings()
