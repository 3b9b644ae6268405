"""Set environment variables that show only the worker's device to the frameworks of its runners.

Set them before a framework is imported: CUDA, XLA and TensorFlow read them once. UUIDs don't change with the order in
which CUDA or NVML numbers the GPUs, and are the only way to choose a slice of a divided GPU (MIG). CUDA numbers the
devices that it sees from 0, in the order of the list.
"""

from collections.abc import Sequence

# The platforms that JAX may start for each kind of device, best first. By default it starts all that it finds. On a
# CPU device of a host with accelerators, JAX would then take memory from their jobs, or wait for a TPU that is in use.
# Accelerators also get the host's processor, as by default.
JAX_PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}
_NO_GPU = "-1"


def isolating_variables(kind: str, uuids: Sequence[str] = ()) -> dict[str, str]:
    """The variables for runners on a device of `kind`, in place of the worker's own values.

    `uuids`: the UUIDs of its GPUs, or of its slice.
    """
    gpus, torch_device = (",".join(uuids), "cuda") if kind == "gpu" else (_NO_GPU, "cpu")
    return {
        "CUDA_VISIBLE_DEVICES": gpus,
        "JAX_PLATFORMS": JAX_PLATFORMS[kind],
        # Without it, Keras looks for a GPU at its import. If it asks CUDA, forked children can't use GPUs. If it
        # asks NVML, a thread stays, and a zygote with a thread doesn't fork.
        "KERAS_TORCH_DEVICE": torch_device,
    }
