"""Hardware-dependent choice of the precision, and a notice about unused accelerators."""

from __future__ import annotations

import os

import keras
import tensorflow as tf

from keras_vit import accelerators, arguments
from keras_vit.runs.config import CommonConfig

# NVIDIA Ampere, the first architecture with bfloat16 matrix units.
_BFLOAT16_CAPABILITY = (8, 0)

# Installation that makes an accelerator visible to a backend; more in docs/scaling.md.
_REMEDIES = {
    ("gpu", "tensorflow"): arguments.install_hint("gpu"),
    ("gpu", "jax"): 'pip install -U "jax[cuda12]"',
    ("amd", "tensorflow"): "tensorflow-rocm; see https://rocm.docs.amd.com",
    ("amd", "jax"): "install JAX for ROCm; see https://docs.jax.dev/en/latest/installation.html",
    ("tpu", "tensorflow"): 'pip install -U "jax[tpu]", and set KERAS_BACKEND=jax',
    ("tpu", "jax"): 'pip install -U "jax[tpu]"',
}
_DISPLAY_NAMES = {"gpu": "GPU", "amd": "AMD GPU", "tpu": "TPU"}
_VISIBILITY_VARIABLES = {"gpu": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}


def best_precision(strategy: str = "auto") -> str:
    """Returns the dtype policy that is fastest on this machine without loss of accuracy.

    bfloat16 is faster with hardware support: on TPUs, GPUs from compute capability 8.0 on, and
    CPUs with AMX. A CPU without AMX emulates bfloat16, which takes two to three times as long as
    float32 (`benchmarks/results/`).
    """
    device, capability = ("cpu", ()) if strategy == "cpu" else _accelerator()
    supports_bfloat16 = device == "tpu" or "amx_bf16" in accelerators.cpu_features()
    if device == "gpu":
        supports_bfloat16 = capability >= _BFLOAT16_CAPABILITY
    return "mixed_bfloat16" if supports_bfloat16 else "float32"


def report_unused_accelerator(strategy: str = "auto") -> None:
    """Prints a note if this machine has a GPU or TPU that the backend does not detect."""
    accelerator, backend = accelerators.detect(), keras.backend.backend()
    remedy = _REMEDIES.get((accelerator, backend))
    hidden = os.environ.get(_VISIBILITY_VARIABLES.get(accelerator, ""), "0") in ("", "-1")
    intended = hidden or strategy == "cpu" or os.environ.get("JAX_PLATFORMS") == "cpu"
    if remedy is None or intended or _accelerator()[0] != "cpu":
        return
    print(
        f"Training on the CPU: {backend} does not detect the {_DISPLAY_NAMES[accelerator]} of this "
        f"machine. To enable it: {remedy}",
        flush=True,
    )


def _accelerator() -> tuple[str, tuple[int, ...]]:
    """Returns the backend's device ("cpu", "gpu" or "tpu") and a GPU's compute capability."""
    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        capability = getattr(device, "compute_capability", "")  # such as "9.0"
        return device.platform, tuple(int(n) for n in capability.split(".") if n.isdigit())
    if tf.config.list_logical_devices("TPU"):
        return "tpu", ()
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return "cpu", ()
    details = tf.config.experimental.get_device_details(gpus[0])
    return "gpu", details.get("compute_capability", ())


def precision_of(config: CommonConfig) -> str:
    """Returns the Keras dtype policy with which a run trains on this machine."""
    precision = config.recipe.precision
    return best_precision(config.strategy) if precision == "auto" else precision
