"""Detection of GPUs, TPUs and CPU instruction sets without a framework, and use of oneDNN."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

#: Read when TensorFlow is imported. By default it uses oneDNN on processors with AVX512-VNNI,
#: AVX-VNNI or AMX: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/util/util.cc
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"

_GOOGLE = "0x1ae0"  # PCI vendor
_DISKS_AND_NETWORK = ("0x01", "0x02")  # PCI classes of Google's other devices


def detect(root: Path = Path("/")) -> str:
    """Returns the fastest kind of device on this machine (Linux only)."""
    devices = root.glob("sys/bus/pci/devices/*")
    if any(root.glob("dev/accel[0-9]*")) or any(_is_tpu(device) for device in devices):
        return "tpu"
    nvidia = (*root.glob("dev/nvidia[0-9]*"), *root.glob("proc/driver/nvidia/gpus/*"))
    if nvidia or (root / "dev/dxg").exists():  # WSL2 does not reveal the vendor of the GPU
        return "gpu"
    return "amd" if (root / "dev/kfd").exists() else "cpu"


def cpu_features() -> frozenset[str]:
    """Returns the CPU's instruction sets by Linux name, for example `"amx_bf16"`."""
    return frozenset(proc_field("cpuinfo", "flags").split())


def lacks_avx512() -> bool:
    """Returns whether an x86 processor with AVX2 has no AVX-512, or oneDNN must not use it."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
    return {"avx2", "avx512f"} & cpu_features() == {"avx2"} or limit in ("AVX2", "AVX2_VNNI")


def enable_onednn() -> None:
    """Sets `ONEDNN` on x86 processors with AVX2, which become faster with it (docs/performance.md).

    An existing value is not changed, and nothing is set after TensorFlow's import.
    """
    if "tensorflow" not in sys.modules and "avx2" in cpu_features():
        os.environ.setdefault(ONEDNN, "1")


def onednn() -> str:
    """Returns `"on"` or `"off"` for TensorFlow's use of oneDNN, with advice if it would help."""
    from tensorflow.python.util import _pywrap_util_port

    if _pywrap_util_port.IsMklEnabled():
        return "on"
    if "avx2" not in cpu_features():
        return "off"
    return (
        f"off; with {ONEDNN}=1, which importing keras_vit before keras sets, this CPU computes "
        "up to 1.5 times as fast (docs/performance.md)"
    )


def proc_field(file: str, name: str) -> str:
    """Returns the first value of a field in a file in /proc; empty if there is none."""
    try:
        text = Path("/proc", file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(re.findall(rf"^{name}\s*:\s*(.*)", text, re.MULTILINE)[:1])


def _is_tpu(device: Path) -> bool:
    try:
        vendor, device_class = ((device / name).read_text("ascii") for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor.strip() == _GOOGLE and not device_class.startswith(_DISKS_AND_NETWORK)
