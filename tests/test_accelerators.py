from __future__ import annotations

from pathlib import Path

import pytest

from keras_vit import accelerators

PCI = "sys/bus/pci/devices/0000:00:04.0"


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, "cpu"),
        ({"dev/accel0": ""}, "tpu"),
        ({"dev/accel/accel0": ""}, "cpu"),  # Linux has other accelerators there
        ({f"{PCI}/vendor": "0x1ae0\n", f"{PCI}/class": "0xff0000\n"}, "tpu"),
        ({f"{PCI}/vendor": "0x1ae0\n", f"{PCI}/class": "0x020000\n"}, "cpu"),  # a network card
        ({f"{PCI}/vendor": "0x1ae0\n", f"{PCI}/class": "0x010802\n"}, "cpu"),  # a disk
        ({f"{PCI}/vendor": "0x8086\n", f"{PCI}/class": "0xff0000\n"}, "cpu"),
        ({f"{PCI}/vendor": "0x1ae0\n"}, "cpu"),
        ({"dev/nvidia0": ""}, "gpu"),
        ({"dev/nvidiactl": ""}, "cpu"),  # the driver without a GPU
        ({"proc/driver/nvidia/gpus/0000:01:00.0/information": ""}, "gpu"),
        ({"dev/dxg": ""}, "gpu"),  # Windows' driver under WSL2
        ({"dev/kfd": ""}, "amd"),
        ({"dev/kfd": "", "dev/nvidia0": ""}, "gpu"),
        ({"dev/nvidia0": "", "dev/accel3": ""}, "tpu"),
    ],
)
def test_found_tells_the_accelerator(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert accelerators.detect(tmp_path) == kind
