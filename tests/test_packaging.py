"""`pip install` of a checkout installs all files of the packages, and a command that starts."""

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution, distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PACKAGES = ("dyno", "service", "workers")
DYNO = "import sys; from dyno.cli import main; sys.argv[0] = 'dyno'; main()"


def unpacked_wheel(folder):
    """The files of a wheel, built in `folder` with pip's back end and without a package index."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", folder, ROOT], check=True, timeout=120)
    [wheel] = folder.glob("tensordyno-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    return unpacked_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def client_alone(installed, tmp_path_factory):
    return bare_environment(installed, tmp_path_factory.mktemp("needed"))


def bare_environment(installed, folder, extras=()):
    """The environment of a Python that finds the wheel, what it needs with these extras, and nothing else."""
    [metadata] = installed.glob("*.dist-info")
    for name in needed(PathDistribution(metadata), extras):
        for top in {
            file.parts[0] for file in distribution(name).files or () if file.parts[0] not in ("..", "__pycache__")
        }:
            there = folder / top
            if not there.exists():
                there.symlink_to(distribution(name).locate_file(top))
    outside = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    return outside | {"PYTHONPATH": f"{installed}:{folder}", "COLUMNS": "200"}


def needed(of, extras=()):
    """The names of all distributions that it requires, directly or not."""
    found = set[str]()
    for each in map(Requirement, of.requires or ()):
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found |= {each.name} | needed(distribution(each.name), each.extras)
    return found


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["--help"], 0, "Usage: dyno", marks=pytest.mark.verify),
        (["run", "matmul", "--n", "64", "--url", "http://127.0.0.1:9"], 4, "127.0.0.1:9"),
        (["up"], 2, "pip install '.[demo,cpu]'"),
        pytest.param(["worker"], 2, "pip install '.[demo,cpu]'", marks=pytest.mark.verify),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_without_extras_the_client_and_the_command_work(client_alone, tmp_path, words, code, said):
    command = [sys.executable, "-S", "-P", "-c", DYNO, *words]
    done = subprocess.run(
        command, env=client_alone, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr


TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
IN_USE = """
import tensorflow as tf
tf.linalg.matmul(tf.ones((8, 8)), tf.ones((8, 8))).numpy()  # the calling process uses the framework itself
"""
ALONE = """
import importlib.util
assert not [name for name in ("redis", "celery", "fastapi", "uvicorn") if importlib.util.find_spec(name)]
assert len(result.runs) >= 5 and "RESULT_INCORRECT" not in result.unchecked
"""


@pytest.mark.verify
def test_the_instrument_measures_where_no_service_is_installed(installed, tmp_path):
    (tmp_path / "needed").mkdir()
    env = bare_environment(installed, tmp_path / "needed", ("cpu",))
    [code] = [block.partition("```")[0] for block in TUTORIAL.split("```python")[1:]]
    core = min(os.sched_getaffinity(0))
    code = code.replace('device="cpu"', f'device="cpu:{core}-{core}"').replace('"budget_s": 5', '"budget_s": 0.1')
    command = [sys.executable, "-S", "-P", "-c", IN_USE + code + ALONE]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"(trusted|indicative) \d+ GFLOP/s\n", done.stdout), done.stdout


def test_the_wheel_contains_every_file_of_the_packages(installed):
    there = {path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()}
    ours = {path for path in there if "__pycache__" not in path.parts}
    packaged = {path.relative_to(installed) for name in PACKAGES for path in (installed / name).rglob("*")}
    assert ours - packaged == set()
    assert {".lua", ".json", ".csv", ".gz"} <= {path.suffix for path in ours}


def test_the_installed_command_runs_without_the_checkout(installed, tmp_path):
    outside = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    env = outside | {"PYTHONPATH": str(installed)}
    where = [sys.executable, "-P", "-c", "import dyno; print(dyno.__file__)"]
    found = subprocess.run(where, env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.startswith(str(installed))
    command = [sys.executable, "-P", "-c", DYNO, "--version"]
    printed = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout == f"dyno {version('tensordyno')}\n"
    assert "dyno = dyno.cli:main" in next(installed.glob("*.dist-info/entry_points.txt")).read_text()
