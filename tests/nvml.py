"""NVML's recorded answers: tests run without a GPU."""

import types


def recorded_nvml(**answers):
    """The package pynvml on a host with one H200 that isn't divided. `answers` replace or add functions."""
    h200 = {
        "NVMLError": RuntimeError,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"570.86.15",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12080,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}b7e8a1c-3d21-4f0a-9c55-7a2f10d4e6b3".encode(),
        "nvmlDeviceGetName": lambda handle: b"NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(total=150_754_820_096, used=0),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetMigMode": lambda handle: [0, 0],
    }
    return types.SimpleNamespace(**h200 | answers)
