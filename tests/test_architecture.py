"""The arrows of the house: who may import whom, and that nobody goes round in circles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("dyno", "service", "workers")
FRAMEWORKS = {"tensorflow", "keras", "jax", "torch"}

# part of the house -> the parts it may import besides itself and the contract's words
WORDS = {
    *("access", "errors", "sentences", "spec", "job", "result", "comparison", "peers", "readings", "samples"),
    *("settings", "frames", "events", "receiver", "delivery", "catalogue", "fleet", "rows"),
}
ALLOWED = {
    "artifacts": WORDS | {"durable"},
    "measure": WORDS | {"devices", "workloads.contract"},
    "devices": WORDS,
    "datasets": WORDS,
    "frameworks": WORDS,
    "workloads": WORDS | {"measure", "devices", "datasets", "frameworks"},
    "store": WORDS | {"devices", "tasks"},
    "client": WORDS,
    "wake": WORDS | {"store"},
    "webhooks": WORDS | {"store", "tasks"},
}


def _modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _statements(node: ast.AST, *, inside_functions: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if _is_type_checking(child):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not inside_functions:
            continue
        yield child
        yield from _statements(child, inside_functions=inside_functions)


def imports(path: Path, *, inside_functions: bool) -> set[str]:
    """Every module that `path` imports when it runs, as dotted names."""
    names: set[str] = set()
    for node in _statements(ast.parse(path.read_text()), inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.add(inner if inner in MODULES else node.module)
    return names


def _part(module: str) -> str:
    return module.split(".")[1] if module.count(".") else ""


def test_service_and_workers_never_import_each_other_and_dyno_imports_neither() -> None:
    for module, path in MODULES.items():
        package = module.split(".")[0]
        others = {name.split(".")[0] for name in imports(path, inside_functions=True)} & set(PACKAGES)
        assert others <= {package, "dyno"}, f"{module} imports {others}"


def test_a_chaos_run_knows_the_house_from_outside_and_the_house_knows_no_chaos() -> None:
    """What proves the promise shares no code with what has to keep it, but the store's names; no table either."""
    inside = {name.split(".")[0] for path in MODULES.values() for name in imports(path, inside_functions=True)}
    assert not inside & {"chaos", "benchmarks", "tests"}
    used = {name for path in (ROOT / "chaos").rglob("*.py") for name in imports(path, inside_functions=True)}
    assert not {name.split(".")[0] for name in used} & {"service", "workers", "tests", "api_tests"}
    assert "dyno.job" not in used
    assert {name for name in used if name.startswith("dyno.store")} <= {"dyno.store.keys", "dyno.store.server"}


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_each_part_of_dyno_imports_only_what_the_house_allows(part: str) -> None:
    for module, path in MODULES.items():
        if not module.startswith("dyno.") or _part(module) != part:
            continue
        for name in imports(path, inside_functions=True):
            if name.startswith("dyno."):
                inner = name.removeprefix("dyno.")
                fits = inner.split(".")[0] in ALLOWED[part] | {part} or inner in ALLOWED[part]
                assert fits, f"{module} may not import {name}"


def test_there_is_no_import_cycle() -> None:
    graph = {
        module: {name for name in imports(path, inside_functions=False) if name in MODULES and name != module}
        for module, path in MODULES.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_celery_is_imported_by_wake_and_workers_alone() -> None:
    users = {m for m, path in MODULES.items() if _uses(path, {"celery", "kombu"})}
    assert users <= {"dyno.wake"} | {m for m in MODULES if m.startswith("workers")}


def test_no_web_framework_in_the_library() -> None:
    assert not {m for m, path in MODULES.items() if m.startswith("dyno") and _uses(path, {"fastapi", "starlette"})}


def test_frameworks_are_imported_inside_functions_only() -> None:
    assert not {
        m
        for m, path in MODULES.items()
        if FRAMEWORKS & {name.split(".")[0] for name in imports(path, inside_functions=False)}
    }


def _uses(path: Path, packages: set[str]) -> bool:
    return bool(packages & {name.split(".")[0] for name in imports(path, inside_functions=True)})
