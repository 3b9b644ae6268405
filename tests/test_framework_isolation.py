"""Only a runner loads a framework: importing any other module loads none."""

import subprocess
import sys

WALK = """
import importlib, pkgutil, sys
for package in ("dyno", "service", "workers"):
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            count = globals().get("count", 0) + 1
print(count, *sorted({"tensorflow", "keras", "jax", "torch"} & set(sys.modules)))
"""


def test_no_module_of_dyno_service_or_workers_imports_a_framework():
    done = subprocess.run([sys.executable, "-P", "-c", WALK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, *frameworks = done.stdout.split()
    assert int(count) > 50
    assert frameworks == []


INSTRUMENT = """
import importlib, pkgutil, sys
import dyno.bench
assert callable(dyno.bench.run) and callable(dyno.bench.Bench)
for module in pkgutil.walk_packages(dyno.bench.__path__, "dyno.bench."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
service = {"redis", "celery", "kombu", "fastapi", "starlette", "uvicorn", "httpx", "typer", "rich", "fsspec", "jinja2"}
print(*sorted(service & set(sys.modules)), *sorted(name for name in sys.modules if name.startswith("dyno.store")))
"""


def test_the_instrument_imports_no_part_of_the_service():
    done = subprocess.run([sys.executable, "-P", "-c", INSTRUMENT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
