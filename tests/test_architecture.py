"""The import rules: which part may import which, without cycles."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("dyno", "service", "workers")
FRAMEWORKS = {"tensorflow", "keras", "jax", "torch"}

# Modules that every part may import.
SHARED = {
    *("models", "errors", "folders", "settings", "validation_messages", "webhook_url"),
}
# part of dyno -> the parts that it may import besides itself
ALLOWED = {
    "models": SHARED,
    "artifact_store": SHARED,
    "bench": SHARED | {"artifact_store", "formatting", "logging", "processes", "tracing"},
    "store": SHARED | {"bench", "asyncio_tasks"},
    "client": SHARED,
    "celery_app": SHARED | {"store"},
    "webhook_delivery": SHARED | {"store", "asyncio_tasks"},
}
# part of the instrument -> the parts of it that it may import besides itself
BENCH = {
    "devices": set[str](),
    "datasets": set[str](),
    "frameworks": set[str](),
    "contract": {"frameworks"},
    "measure": {"contract", "devices"},
    "estimates": {"contract", "datasets", "measure"},
    "references": set[str](),
    "training": {"contract", "datasets", "devices", "estimates", "frameworks", "measure", "references"},
    "workloads": {"contract", "datasets", "devices", "estimates", "frameworks", "measure", "references", "training"},
    "registry": {"contract", "workloads"},
    "runner": {"contract", "devices", "frameworks", "measure", "registry"},
    "bench": {"contract", "devices", "frameworks", "measure", "registry", "runner"},
}
# feature of the service -> the other features that it may import; all may import what is beside them
FEATURES = {
    **{name: set[str]() for name in ("artifacts", "baselines", "comparisons", "history", "keys")},
    **{name: set[str]() for name in ("results", "schedules", "webhooks")},
    "advice": {"workloads"},
    "fleet": {"keys"},
    "home": {"jobs"},
    "jobs": {"baselines", "comparisons"},
    "sweeps": {"workloads"},
    "workloads": {"schedules"},
}
# what assembles the features; no feature may import it
ASSEMBLING = {"app", "pages", "openapi.__main__"}
# file of the service below the features -> the parts that it may import
BELOW_FEATURES = {
    "problems": set[str](),
    "server": {"middleware", "problems"},
    "validation": {"problems"},
    "admission": {"problems", "state", "validation"},
    "submission": {"admission", "problems", "state", "validation"},
}


def _modules():
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()
# packages with packages in them; `service` has a test of its own
NESTED = {module.rpartition(".")[0] for module, path in MODULES.items() if path.name == "__init__.py"} - {"", "service"}


def _statements(node, *, inside_functions):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not inside_functions:
            continue
        yield child
        yield from _statements(child, inside_functions=inside_functions)


@cache
def imports(path, *, inside_functions):
    """Every module that `path` imports, as dotted names; also those that only a type checker imports."""
    names = set()
    for node in _statements(ast.parse(path.read_text()), inside_functions=inside_functions):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                names.add(inner if inner in MODULES else node.module)
    return frozenset(names)


def _part(module):
    return module.split(".")[1] if module.count(".") else ""


def test_service_and_workers_never_import_each_other_and_dyno_imports_neither():
    for module, path in MODULES.items():
        package = module.split(".")[0]
        others = {name.split(".")[0] for name in imports(path, inside_functions=True)} & set(PACKAGES)
        assert others <= {package, "dyno"}, f"{module} imports {others}"


def test_chaos_imports_only_the_names_of_the_store_and_nothing_imports_chaos():
    """The chaos run checks the service's promises, so it shares no code with it except the store's key names."""
    inside = {name.split(".")[0] for path in MODULES.values() for name in imports(path, inside_functions=True)}
    assert not inside & {"chaos", "benchmarks", "tests"}
    used = {name for path in (ROOT / "chaos").rglob("*.py") for name in imports(path, inside_functions=True)}
    assert not {name.split(".")[0] for name in used} & {"service", "workers", "tests", "api_tests"}
    assert "dyno.models.job" not in used
    assert {name for name in used if name.startswith("dyno.store")} <= {"dyno.store.redis", "dyno.store.embedded"}
    assert _taken_by_chaos("dyno.store.redis") == {"JOB_ID", "Keys"}


def _taken_by_chaos(module):
    trees = [ast.parse(path.read_text()) for path in (ROOT / "chaos").rglob("*.py")]
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in found if node.module == module for alias in node.names}


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_each_part_of_dyno_imports_only_what_it_may(part):
    for module, path in MODULES.items():
        if not module.startswith("dyno.") or _part(module) != part:
            continue
        for name in imports(path, inside_functions=True):
            if name.startswith("dyno."):
                inner = name.removeprefix("dyno.")
                fits = inner.split(".")[0] in ALLOWED[part] | {part} or inner in ALLOWED[part]
                assert fits, f"{module} may not import {name}"


def test_each_part_of_the_instrument_imports_only_what_it_may():
    for part, names in _parts_of("dyno.bench").items():
        strange = {_first(name) for name in names} - BENCH.get(part, set()) - {part}
        assert not strange or part == "dyno.bench", f"dyno.bench.{part} may not import {strange}"


@pytest.mark.parametrize("package", sorted(NESTED))
def test_packages_have_no_import_cycle(package):
    _assert_no_cycle({part: {_first(name) for name in names} - {part} for part, names in _parts_of(package).items()})


def _parts_of(package):
    """Part of a package (package or file) -> its imports from that package, without the package's name."""
    found = {}
    for module, path in MODULES.items():
        if module.startswith(f"{package}."):
            names = {name for name in imports(path, inside_functions=True) if name.startswith(f"{package}.")}
            part = _first(module.removeprefix(f"{package}."))
            found.setdefault(part, set()).update(name.removeprefix(f"{package}.") for name in names)
    return found


def test_there_is_no_import_cycle():
    graph = {
        module: {name for name in imports(path, inside_functions=False) if name in MODULES and name != module}
        for module, path in MODULES.items()
    }
    _assert_no_cycle(graph)


def _assert_no_cycle(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_every_package_of_the_service_is_a_feature_or_shared():
    packages = {path.parent.name for path in (ROOT / "service").glob("*/__init__.py")}
    assert packages == FEATURES.keys() | {"dashboard", "docs", "openapi"}


def test_each_part_of_the_service_imports_only_what_it_may():
    for part, names in _service().items():
        used = {_first(name) for name in names} - {part}
        if part in BELOW_FEATURES:
            strange = used - BELOW_FEATURES[part]
        else:
            allowed = FEATURES.keys() | {"app"} if part in ASSEMBLING | {"__main__"} else FEATURES.get(part, set())
            strange = used & (FEATURES.keys() | ASSEMBLING) - allowed - ({"pages"} if part == "app" else set())
        assert not strange, f"service.{part} may not import {strange}"


def test_the_parts_of_the_service_have_no_import_cycle():
    _assert_no_cycle({part: {_first(name) for name in names} - {part} for part, names in _service().items()})


def _service():
    """As `_parts_of`, with the commands of packages apart."""
    found = {}
    for module, path in MODULES.items():
        if module.startswith("service."):
            inner = module.removeprefix("service.")
            part = inner if inner.endswith("__main__") else _first(inner)
            names = {name for name in imports(path, inside_functions=True) if name.startswith("service.")}
            found.setdefault(part, set()).update(name.removeprefix("service.") for name in names)
    return found


def _first(inner):
    return inner.split(".")[0]


def test_celery_is_imported_by_celery_app_and_workers_alone():
    users = {m for m, path in MODULES.items() if _uses(path, {"celery", "kombu"})}
    assert users <= {"dyno.celery_app"} | {m for m in MODULES if m.startswith("workers")}


def test_no_web_framework_in_the_library():
    assert not {m for m, path in MODULES.items() if m.startswith("dyno") and _uses(path, {"fastapi", "starlette"})}


def test_frameworks_are_imported_inside_functions_only():
    assert not {
        m
        for m, path in MODULES.items()
        if FRAMEWORKS & {name.split(".")[0] for name in imports(path, inside_functions=False)}
    }


def _uses(path, packages):
    return bool(packages & {name.split(".")[0] for name in imports(path, inside_functions=True)})
