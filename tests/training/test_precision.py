from __future__ import annotations

import dataclasses
import types
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from keras_vit import accelerators
from keras_vit.runs.config import CommonConfig
from keras_vit.training import PretrainConfig, Recipe, RunConfig, pretrain, train
from keras_vit.training import precision as module
from keras_vit.training.precision import precision_of

ON_TENSORFLOW = pytest.mark.tensorflow


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_accelerator", lambda: ("cpu", ()))


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
    assert module.best_precision() == precision


@pytest.mark.usefixtures("no_gpu")
def test_cpu_without_flags_gets_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_info(monkeypatch, "processor\t: 0\nFeatures\t: fp asimd bf16\n")
    assert module.best_precision() == "float32"


@pytest.mark.usefixtures("no_gpu")
def test_cpu_without_cpuinfo_gets_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Path, **options: str) -> str:
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", missing)
    assert module.best_precision() == "float32"


@ON_TENSORFLOW
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
    assert module.best_precision() == precision
    assert module.best_precision("cpu") == "mixed_bfloat16"


@ON_TENSORFLOW
def test_tpu_multiplies_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_info(monkeypatch, "flags\t\t: fpu\n")
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    assert module.best_precision() == "mixed_bfloat16"


@pytest.mark.parametrize(
    ("platform", "capability", "precision"),
    [
        ("tpu", None, "mixed_bfloat16"),
        ("gpu", "9.0", "mixed_bfloat16"),
        ("gpu", "7.5", "float32"),
        ("gpu", "gfx90a", "float32"),  # AMD's
        ("cpu", None, "float32"),
    ],
)
def test_jax_is_asked_for_its_device(
    monkeypatch: pytest.MonkeyPatch, platform: str, capability: str | None, precision: str
) -> None:
    jax = pytest.importorskip("jax", reason="needs the extra jax")
    device = types.SimpleNamespace(platform=platform)
    if capability:
        device.compute_capability = capability
    monkeypatch.setattr(jax, "devices", lambda: [device])
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    cpu_info(monkeypatch, "flags\t\t: fpu\n")
    assert module.best_precision() == precision


@pytest.mark.parametrize(
    ("kind", "backend", "remedy"),
    [
        ("gpu", "tensorflow", 'in your keras_vit checkout, run: pip install -e ".[gpu]"'),
        (
            "amd",
            "tensorflow",
            "tensorflow-rocm; see https://rocm.docs.amd.com",
        ),
        (
            "amd",
            "jax",
            "install JAX for ROCm; see https://docs.jax.dev/en/latest/installation.html",
        ),
        ("gpu", "jax", 'pip install -U "jax[cuda12]"'),
        ("tpu", "tensorflow", 'pip install -U "jax[tpu]", and set KERAS_BACKEND=jax'),
        ("tpu", "jax", 'pip install -U "jax[tpu]"'),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_an_accelerator_that_the_backend_does_not_see_is_said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    backend: str,
    remedy: str,
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(accelerators, "detect", lambda: kind)
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    module.report_unused_accelerator()
    name = "AMD GPU" if kind == "amd" else kind.upper()
    assert capsys.readouterr().out == (
        f"Training on the CPU: {backend} does not detect the {name} of this machine. "
        f"To enable it: {remedy}\n"
    )


@pytest.mark.parametrize(
    "case",
    [
        "no accelerator",
        "in use",
        "cpu",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "JAX_PLATFORMS",
    ],
)
def test_nothing_is_said_where_the_cpu_is_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    for name, value in hidden.items():
        monkeypatch.setenv(name, value if name == case else "0")
    kind = {"no accelerator": "cpu", "HIP_VISIBLE_DEVICES": "amd"}.get(case, "gpu")
    monkeypatch.setattr(accelerators, "detect", lambda: kind)
    seen = ("gpu" if case == "in use" else "cpu", ())
    monkeypatch.setattr(module, "_accelerator", lambda: seen)
    module.report_unused_accelerator("cpu" if case == "cpu" else "auto")
    assert capsys.readouterr().out == ""


@ON_TENSORFLOW
@pytest.mark.parametrize(
    ("learn", "config"), [(train, RunConfig), (pretrain, PretrainConfig)], ids=["train", "pretrain"]
)
@pytest.mark.usefixtures("no_gpu")
def test_runs_say_it_before_they_start(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    learn: Any,
    config: Any,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(accelerators, "detect", lambda: "gpu")
    with pytest.raises(ValueError, match="`data` must be a folder"):
        learn(config(str(tmp_path / "none"), "ViTMicro4"), tmp_path / "run")
    assert "tensorflow does not detect the GPU of this machine" in capsys.readouterr().out


def test_precision_of_a_recipe_is_the_machine_s_only_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    best = {"auto": "mixed_bfloat16", "cpu": "mixed_float16"}
    monkeypatch.setattr(module, "best_precision", best.__getitem__)
    config = CommonConfig("photos", "ViTMicro4", recipe=Recipe())
    assert precision_of(config) == "mixed_bfloat16"
    assert precision_of(dataclasses.replace(config, strategy="cpu")) == "mixed_float16"
    config = dataclasses.replace(config, recipe=Recipe(precision="float32"))
    assert precision_of(config) == "float32"
    assert keras.config.dtype_policy().name == "float32"
