from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from keras_vit.training import machine

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])


def cpu_info(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self, **options: text)


@pytest.mark.parametrize(
    ("flags", "precision"),
    [
        ("fpu avx512f amx_bf16 amx_tile", "mixed_bfloat16"),
        ("fpu avx512f avx512_bf16 amx_tile", "float32"),
        ("fpu amx_bf16_of_another_kind", "float32"),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_cpu_is_asked_for_amx(monkeypatch: pytest.MonkeyPatch, flags: str, precision: str) -> None:
    cpu_info(monkeypatch, f"processor\t: 0\nmodel name\t: X amx_bf16\nflags\t\t: {flags}\n")
    assert machine.best_precision() == precision


@pytest.mark.usefixtures("no_gpu")
def test_cpu_without_flags_gets_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_info(monkeypatch, "processor\t: 0\nFeatures\t: fp asimd bf16\n")
    assert machine.best_precision() == "float32"


@pytest.mark.usefixtures("no_gpu")
def test_cpu_without_cpuinfo_gets_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Path, **options: str) -> str:
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", missing)
    assert machine.best_precision() == "float32"


@pytest.mark.parametrize(
    ("details", "precision"),
    [
        ({"compute_capability": (9, 0)}, "mixed_bfloat16"),
        ({"compute_capability": (8, 0)}, "mixed_bfloat16"),
        ({"compute_capability": (7, 5)}, "float32"),
        ({}, "float32"),
    ],
)
def test_gpu_is_asked_for_its_generation(
    monkeypatch: pytest.MonkeyPatch, details: dict[str, tuple[int, int]], precision: str
) -> None:
    # The processor's abilities do not count beside a GPU.
    cpu_info(monkeypatch, "flags\t\t: amx_bf16\n")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["gpu"])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: details)
    assert machine.best_precision() == precision
