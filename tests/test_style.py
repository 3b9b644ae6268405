"""Automatic style checks: ruff, mypy --strict, and names: generic, repeated or hidden ones."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN_NAMES = {"manager", "helper", "helpers", "utils", "util", "common", "misc", "core"}
TREES = ("dyno", "service", "workers", "tests", "api_tests", "benchmarks", "chaos")


def _tool(*command):
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _sources():
    return sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py"))


def _packaged():
    return [path for path in _sources() if path.relative_to(ROOT).parts[0] in ("dyno", "service", "workers")]


def test_ruff_finds_nothing():
    _tool("ruff", "check")


def test_the_code_is_formatted():
    _tool("ruff", "format", "--check")


@pytest.mark.timeout(600)  # a minute and more where nothing is cached and others use the cores
@pytest.mark.parametrize(
    "packages",
    ["--package dyno --package service --package workers", pytest.param("", marks=pytest.mark.verify, id="every")],
)
def test_mypy_passes_in_strict_mode(packages):
    _tool("mypy", *packages.split())


def test_no_file_has_a_generic_name():
    names = {part for path in _sources() for part in re.split(r"[_/.]", str(path.relative_to(ROOT)))}
    assert not names & FORBIDDEN_NAMES


def test_no_two_modules_share_a_name():
    """Except in the folders of features, which say what their modules are of, and the `app` of Typer and FastAPI."""
    paths = [path for path in _packaged() if path.parent.parent.name != "service"]
    assert _repeated(path.stem for path in paths) <= {"__init__", "__main__", "app"}


def test_no_two_public_classes_share_a_name():
    nodes = [node for path in _packaged() for node in ast.walk(ast.parse(path.read_text()))]
    names = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    assert not _repeated(name for name in names if not name.startswith("_"))


def _repeated(names):
    return {name for name, count in Counter(names).items() if count > 1}


def test_no_local_name_hides_an_imported_one():
    hiding = {str(path.relative_to(ROOT)): hidden for path in _packaged() if (hidden := _hidden(path))}
    assert hiding == {}


def _hidden(path):
    """Names that a file imports at its top and a function in it assigns to."""
    tree = ast.parse(path.read_text())
    imports = [each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)]
    imported = {(name.asname or name.name).partition(".")[0] for each in imports for name in each.names}
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    names = [name for each in functions for name in ast.walk(each) if isinstance(name, ast.Name)]
    return {name.id for name in names if isinstance(name.ctx, ast.Store)} & imported
