"""Choose the environment variables of runners by an allow-list of the worker's variables.

A workload may be anyone's code, so a runner gets the variables that Python, the frameworks and their libraries read,
but no credentials and no addresses of services. `DYNO_RUNNER_ENV` names further variables that an operator allows.
"""

import re
from collections.abc import Iterable, Mapping

from dyno.bench.devices.environment import FLAGS

_NAMES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR", "TMPDIR", "TMP", "TEMP"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "MPLCONFIGDIR", "MPLBACKEND"),
        *("LD_LIBRARY_PATH", "GLIBC_TUNABLES", "NPROC", "CC", "CXX"),  # PyTorch compiles with CC and CXX
        *("SSL_CERT_FILE", "SSL_CERT_DIR"),  # for downloads of data sets
        *("DYNO_DATA_DIR", "DYNO_DOWNLOAD", "DYNO_RUN_DIR", "DYNO_WORKLOADS_DIR"),
        *FLAGS,  # the flags that a result records must also reach its runs
    )
)
_PREFIXES = (
    *("LC_", "PYTHON", "MALLOC_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "ONEDNN_", "DNNL_", "NUMBA_", "NUMEXPR_"),
    *("TF_", "KERAS_", "XLA_", "JAX_", "PJRT_", "LIBTPU_", "TPU_", "TORCH", "PYTORCH_", "TRITON_"),
    *("CUDA_", "CUDNN_", "CUBLAS_", "CUBLASLT_", "NVIDIA_", "NCCL_"),
)
# Terraform's variables begin like TensorFlow's, and NVIDIA_API_KEY begins like the driver's variables.
_SECRET = re.compile(
    r"^TF_(VAR|CLI)_|(^|_)(PASSWORD|PASSWD|PWD|SECRETS?|TOKENS?|CREDENTIALS?|HEADERS|(API|ACCESS|PRIVATE)?KEYS?)(_|$)",
    re.IGNORECASE,
)
_PROXY = re.compile(r"(https?|all|no)_proxy", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"://[^/\s]*@")


def runner_environment(environ: Mapping[str, str], passed: Iterable[str] = ()) -> dict[str, str]:
    """The variables of `environ` that runners get.

    `passed`: further names, or prefixes that end with "*". They can't name settings of Dyno.
    """
    allowed = re.compile("|".join(_pattern(name) for name in passed) or r"(?!)")
    return {
        name: value
        for name, value in environ.items()
        if _needed(name, value) or (allowed.fullmatch(name) and not name.startswith("DYNO_"))
    }


def _pattern(name: str) -> str:
    return re.escape(name.removesuffix("*")) + (".*" if name.endswith("*") else "")


def _needed(name: str, value: str) -> bool:
    if _PROXY.fullmatch(name):
        return "@" not in value  # a proxy's URL may contain a password
    if name in _NAMES:
        return True
    return name.startswith(_PREFIXES) and not (_SECRET.search(name) or _PASSWORD_IN_URL.search(value))
