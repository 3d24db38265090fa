"""What the machine at hand does best."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

# NVIDIA's Ampere, the first with bfloat16 matrix units.
_BFLOAT16_CAPABILITY = (8, 0)


def best_precision() -> str:
    """Returns the Keras dtype policy that trains fastest here without losing accuracy.

    bfloat16 pays where the hardware multiplies it: GPUs from compute capability 8.0 on, and
    CPUs with AMX. A CPU without AMX emulates it, and takes two to three times as long as
    in float32 (`benchmarks/results/`).

    Returns:
        `"mixed_bfloat16"` or `"float32"`.

    Example:
        >>> best_precision() in ("mixed_bfloat16", "float32")
        True
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        capable = details.get("compute_capability", (0, 0)) >= _BFLOAT16_CAPABILITY
    else:
        capable = "amx_bf16" in _cpu_flags()
    return "mixed_bfloat16" if capable else "float32"


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return set()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return set(flags.partition(":")[2].split())
