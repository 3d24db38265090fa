from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from keras_vit import accelerators
from keras_vit.accelerators import ONEDNN

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


@pytest.mark.parametrize(
    ("features", "limit", "lacks"),
    [
        ({"avx2"}, None, True),
        ({"avx2", "avx512f"}, None, False),
        ({"avx2", "avx512f"}, "avx2", True),
        ({"avx2", "avx512f"}, "ALL", False),
        ({"asimd"}, None, False),
    ],
)
def test_lack_of_avx512(
    features: set[str], limit: str | None, lacks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerators, "cpu_features", lambda: features)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if limit:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert accelerators.lacks_avx512() is lacks


def onednn_after(code: str, **environment: str) -> str:
    """What TensorFlow uses in a process that runs `code` on a processor with AVX2 alone."""
    limited = {"ONEDNN_MAX_CPU_ISA": "AVX2", "TF_CPP_MIN_LOG_LEVEL": "2", **environment}
    inherited = {name: value for name, value in os.environ.items() if name != ONEDNN}
    code += f"; import os; from keras_vit import accelerators; value = os.environ.get('{ONEDNN}')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(value, accelerators.onednn())"],
        env={**inherited, **limited},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


avx2 = pytest.mark.skipif("avx2" not in accelerators.cpu_features(), reason="no AVX2 here")


@pytest.mark.slow
@avx2
@pytest.mark.tensorflow
def test_importing_the_package_enables_onednn_before_tensorflow_reads_it() -> None:
    assert onednn_after("import keras_vit") == "1 on"


@pytest.mark.slow
@avx2
@pytest.mark.tensorflow
def test_tensorflow_follows_a_value_of_the_user() -> None:
    assert onednn_after("import keras_vit", **{ONEDNN: "0"}).startswith("0 off; with TF_ENABLE_ONE")


@pytest.mark.slow
@pytest.mark.tensorflow
def test_tensorflow_that_is_imported_first_follows_its_default() -> None:
    assert onednn_after("import keras, keras_vit").startswith("None o")


@pytest.mark.parametrize(
    ("features", "value"), [({"avx2"}, "1"), ({"avx2", "avx512_vnni"}, "1"), ({"asimd"}, None)]
)
def test_processors_that_gain_by_onednn(
    monkeypatch: pytest.MonkeyPatch, features: set[str], value: str | None
) -> None:
    monkeypatch.setattr(accelerators, "cpu_features", lambda: features)
    without_tensorflow(monkeypatch)
    monkeypatch.delenv(ONEDNN, raising=False)
    accelerators.enable_onednn()
    assert os.environ.get(ONEDNN) == value


def without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorflow"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_value_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerators, "cpu_features", lambda: {"avx2"})
    without_tensorflow(monkeypatch)
    monkeypatch.setenv(ONEDNN, "0")
    accelerators.enable_onednn()
    assert os.environ[ONEDNN] == "0"


def test_nothing_is_set_after_tensorflows_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerators, "cpu_features", lambda: {"avx2"})
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    monkeypatch.delenv(ONEDNN, raising=False)
    accelerators.enable_onednn()
    assert ONEDNN not in os.environ


def test_a_processor_that_gains_nothing_gets_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    port = pytest.importorskip("tensorflow.python.util._pywrap_util_port")
    monkeypatch.setattr(port, "IsMklEnabled", lambda: False)
    monkeypatch.setattr(accelerators, "cpu_features", lambda: {"asimd"})
    assert accelerators.onednn() == "off"
