"""Detection of GPUs, TPUs and CPU instruction sets, without importing a framework."""

from __future__ import annotations

import re
from pathlib import Path

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


def proc_field(file: str, name: str) -> str:
    """Returns the first value of a field in a file in /proc; empty if there is none."""
    try:
        text = Path("/proc", file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(re.findall(rf"^{name}\s*:\s*(.*)", text, re.MULTILINE)[:1])


def _is_tpu(device: Path) -> bool:
    try:
        vendor, kind = ((device / name).read_text("ascii") for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor.strip() == _GOOGLE and not kind.startswith(_DISKS_AND_NETWORK)
