"""Command `keras-vit env`."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter

from keras_vit import accelerators
from keras_vit.accelerators import proc_field
from keras_vit.startup import start_keras

_PACKAGES = "keras-vit-toolkit keras tensorflow tensorflow-datasets tensorboard numpy jax pillow "
_PACKAGES += "pillow-heif ai-edge-litert onnxruntime openvino"


def env() -> None:
    """Print the facts that a bug report needs (versions, hardware), and nothing private.

    keras-vit env
    """
    from importlib import metadata

    _print("python", platform.python_version())
    _print("system", platform.platform())
    model = proc_field("cpuinfo", "model name") or platform.processor() or platform.machine()
    flags = re.findall(r"avx2|avx512f|avx512_bf16|amx_\w+", proc_field("cpuinfo", "flags"))
    _print("processor", ", ".join([f"{model}, {os.cpu_count()} cores", *flags]))
    sizes = [proc_field("meminfo", name).split() for name in ("MemTotal", "MemAvailable")]
    _print("memory, free", ", ".join(f"{int(s[0]) / 2**20:.1f} GiB" if s else "-" for s in sizes))
    for name in _PACKAGES.split():
        _print(name, next((package.version for package in metadata.distributions(name=name)), "-"))
    start_keras()
    import keras

    _print("backend", keras.backend.backend())
    devices, accelerator = _devices(keras.backend.backend()), accelerators.detect()
    _print("devices", ", ".join(f"{count} x {device}" for device, count in devices.items()))
    unused = ", not used" * all(device.startswith("CPU") for device in devices)
    if keras.backend.backend() == "tensorflow":
        _print("onednn", accelerators.onednn())
    _print("accelerator", "none found" if accelerator == "cpu" else accelerator + unused)


def _devices(backend: str) -> Counter[str]:
    """Counts the backend's devices by kind and name."""
    if backend == "jax":
        import jax

        return Counter(f"{d.platform.upper()} {d.device_kind}" for d in jax.devices())
    from tensorflow import config

    name = config.experimental.get_device_details  # which has none for a CPU
    pairs = [(d.device_type, name(d).get("device_name")) for d in config.list_physical_devices()]
    return Counter(" ".join(filter(None, pair)) for pair in pairs)


def _print(name: str, value: str) -> None:
    print(f"{name:<20} {value}", flush=True)
