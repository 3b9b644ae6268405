"""A real, private server and a real TensorFlow for the whole test session, and a namespace for every test."""

import gc
import os
import sys
import tempfile
import uuid
from pathlib import Path

import certifi
import hypothesis
import pytest
from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import assertstate_key
from xdist.scheduler import LoadFileScheduling

from dyno.bench.frameworks.tensorflow import TensorFlow
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import sync_client

# Tests of programs that check Dyno from outside. They run in `make verify` only.
PROOFS = ("tests/benchmarks/", "tests/chaos/", "tests/fuzz/")

# Folders and files whose tests share something that takes seconds to start: a fleet, or TensorFlow.
SHARING = {
    "api_tests/": "fleet",
    **dict.fromkeys(("tests/bench/frameworks/", "tests/bench/runner/", "tests/bench/workloads/"), "framework"),
    "tests/artifacts/test_malicious_weights.py": "framework",
    "tests/bench/measure/test_correctness.py": "framework",
}

LONG = ("api_tests/", "tests/bench/", "tests/cli/test_up.py", "tests/test_style.py", "tests/workers/")

# Every client of httpx reads all authorities that it trusts, for 20 ms. No test needs one of them.
_AUTHORITY = tempfile.NamedTemporaryFile("w", suffix=".pem")  # noqa: SIM115 - until the process ends
_AUTHORITY.write("".join(Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----\n")[:2]))
_AUTHORITY.flush()
Path(_AUTHORITY.name).chmod(0o644)  # some tests start programs as another user
os.environ["SSL_CERT_FILE"] = _AUTHORITY.name

# pytest-xdist sets COLUMNS for its processes, and rich's consoles keep the width that they find at their creation.
os.environ.pop("COLUMNS", None)

# With this package, `import jsonschema` compiles grammars for 6 s. Only the formats of IRIs need it.
sys.modules["rfc3987_syntax"] = None

# The time of one example depends on the machine; pytest's time limit covers all examples of a test.
hypothesis.settings.register_profile("dyno", deadline=None)
hypothesis.settings.load_profile("dyno")


class _ByFile(LoadFileScheduling):
    """Run a file's tests in one process, and those of SHARING folders that share the same thing."""

    def _split_scope(self, nodeid):
        shared = (what for folder, what in SHARING.items() if nodeid.startswith(folder))
        return next(shared, super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config, log):
    """`make matrix`, with --dist loadscope, has too few other tests beside those that share a framework."""
    return _ByFile(config, log) if config.option.dist == "loadfile" else None


def pytest_ignore_collect(collection_path, config):
    """Without `verify`, don't even import PROOFS."""
    is_proof = collection_path in {config.rootpath / each for each in PROOFS}
    return True if is_proof and "not verify" in config.option.markexpr else None


def _rewrite_assertions(config, number, processes):
    """Rewrite every `processes`-th test file as an import would. Otherwise each process rewrites all files, for 5 s."""
    state = config.stash[assertstate_key]
    for path in sorted(config.rootpath.glob("*tests/**/test_*.py"))[number::processes]:
        compiled = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite.try_makedirs(compiled.parent) and rewrite._read_pyc(path, compiled) is None:
            stat, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(state, code, stat, compiled)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect no garbage meanwhile, which takes a quarter of the time, and never look at the 8,000 tests again.

    From then on, collect less often than by default: frameworks and models are large, and looking at them all again
    takes a tenth of the tests' time.
    """
    gc.disable()
    if xdist := getattr(session.config, "workerinput", None):
        _rewrite_assertions(session.config, int(xdist["workerid"].removeprefix("gw")), xdist["workercount"])
    yield
    gc.enable()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items):
    """Long files come first, so that no process works on one of them when the others have nothing left to do."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
    for item in items:
        if item.nodeid.startswith(PROOFS):
            item.add_marker(pytest.mark.verify)


@pytest.fixture(scope="session")
def redis_url():
    with EmbeddedServer() as server:
        yield server.url


@pytest.fixture
def short_folder():
    """A folder for a socket, whose path has 107 bytes at most: that of `tmp_path` can be longer."""
    with tempfile.TemporaryDirectory(prefix="dyno-test-") as folder:
        yield Path(folder)


@pytest.fixture
def namespace():
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def settings(redis_url, namespace, tmp_path):
    return Settings(redis_url=redis_url, namespace=namespace, run_dir=tmp_path / "run", spool_dir=tmp_path / "spool")


@pytest.fixture
def client(settings):
    with sync_client(settings) as client:
        yield client


# Types whose products crash TensorFlow 2.21 under a limit of oneDNN: TensorFlow chooses operations by the processor
# but oneDNN can't compute them then. A real processor with only these instructions doesn't get them.
CRASHING = {"AVX2": ("bfloat16", "float16"), "AVX512_CORE": ("float16",)}


@pytest.fixture(scope="session", autouse=True)
def skip_products_that_crash():
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    if limit not in CRASHING or os.environ.get("CASES_FRAMEWORK", "tensorflow") != "tensorflow":
        yield
        return
    from tensorflow.python.ops import gen_math_ops, gen_nn_ops

    def skipping(operation):
        def guarded(*operands, **options):
            dtypes = {getattr(getattr(each, "dtype", None), "name", "") for each in (*operands, *options.values())}
            if not dtypes.isdisjoint(CRASHING[limit]):
                pytest.skip(
                    f"TensorFlow can't compute {', '.join(sorted(filter(None, dtypes)))} with oneDNN limited to {limit}"
                )
            return operation(*operands, **options)

        return guarded

    with pytest.MonkeyPatch.context() as patch:
        products = ((gen_math_ops, "mat_mul"), (gen_math_ops, "batch_mat_mul_v2"), (gen_math_ops, "batch_mat_mul_v3"))
        for module, name in (*products, (gen_nn_ops, "conv2d"), (gen_nn_ops, "softmax")):
            patch.setattr(module, name, skipping(getattr(module, name)))
        yield


@pytest.fixture(scope="session")
def tensorflow():
    """The real TensorFlow, started once per process, since its threads can't be set twice."""
    framework = TensorFlow()
    gc.disable()  # as a zygote does
    framework.load()
    gc.enable()
    framework.start("cpu", len(os.sched_getaffinity(0)))
    return framework
