"""The caches of a cold start."""

import os
from pathlib import Path

import pytest

from dyno.bench.runner.run import empty_caches, warm_caches

FOLDERS = ("CUDA_CACHE_PATH", "JAX_COMPILATION_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    for name in (*FOLDERS, "NUMBA_CACHE_DIR", "XLA_FLAGS", "TF_XLA_FLAGS", "LIBTPU_INIT_ARGS"):
        monkeypatch.setenv(name, "")  # so that the test's changes are undone


@pytest.mark.parametrize("name", FOLDERS)
def test_an_empty_cache_replaces_a_filled_one_of_the_environment(name, tmp_path):
    filled = tmp_path / "filled"
    filled.mkdir()
    (filled / "kernel").write_bytes(b"compiled before")
    os.environ[name] = str(filled)
    assert (raised := warm_caches(os.environ)) is not None
    assert raised.evidence == {"caches": [name]}
    empty_caches(tmp_path / "own")
    assert warm_caches(os.environ) is None
    assert list(Path(os.environ[name]).iterdir()) == []
    assert (filled / "kernel").exists()


def test_a_cache_among_other_options_is_reported_by_option_without_its_path(tmp_path):
    tuned = tmp_path / "tuned.txt"
    tuned.write_text("best: 3")
    environ = {
        "TF_XLA_FLAGS": f"--tf_xla_auto_jit=2 --tf_xla_persistent_cache_directory={tmp_path}",
        "XLA_FLAGS": f"--xla_gpu_load_autotune_results_from={tuned} --xla_gpu_per_fusion_autotune_cache_dir=/no/such",
    }
    assert (raised := warm_caches(environ)) is not None
    assert raised.evidence["caches"] == [
        "XLA_FLAGS: --xla_gpu_load_autotune_results_from",
        "TF_XLA_FLAGS: --tf_xla_persistent_cache_directory",
    ]
    assert str(tmp_path) not in raised.model_dump_json()


@pytest.mark.silent("WARM_CACHE")
def test_an_empty_or_missing_cache_is_cold(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        assert warm_caches({"TF_XLA_FLAGS": f"--tf_xla_persistent_cache_directory={place}"}) is None
    assert warm_caches({}) is None
