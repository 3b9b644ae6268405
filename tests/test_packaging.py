"""`pip install` of a checkout installs all files of the packages, and a command that starts."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("dyno", "service", "workers")
DYNO = "import sys; from dyno.cli import main; sys.argv[0] = 'dyno'; main()"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a wheel, built with pip's back end and without a package index."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", folder, ROOT], check=True, timeout=120)
    [wheel] = folder.glob("tensordyno-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_contains_every_file_of_the_packages(installed: Path) -> None:
    there = {path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()}
    ours = {path for path in there if "__pycache__" not in path.parts}
    packaged = {path.relative_to(installed) for name in PACKAGES for path in (installed / name).rglob("*")}
    assert ours - packaged == set()
    assert {".lua", ".json", ".csv", ".gz"} <= {path.suffix for path in ours}


def test_the_installed_command_runs_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    env = outside | {"PYTHONPATH": str(installed)}
    where = [sys.executable, "-P", "-c", "import dyno; print(dyno.__file__)"]
    found = subprocess.run(where, env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.startswith(str(installed))
    command = [sys.executable, "-P", "-c", DYNO, "--version"]
    printed = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout == f"dyno {version('tensordyno')}\n"
    assert "dyno = dyno.cli:main" in next(installed.glob("*.dist-info/entry_points.txt")).read_text()
