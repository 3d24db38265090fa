from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from keras_vit import accelerators, training
from keras_vit.cli.backend import prefer_jax_on_tpu
from tests.cli.commands import Call


@pytest.fixture
def tpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a TPU and JAX for it, where nobody has chosen a backend."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "")
    monkeypatch.setattr(accelerators, "detect", lambda: "tpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in ("jax", "libtpu"))


@pytest.mark.usefixtures("tpu")
@pytest.mark.parametrize("strategy", [None, "auto", "jax"])
def test_jax_is_taken_on_a_tpu(strategy: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    prefer_jax_on_tpu(strategy)
    assert os.environ["KERAS_BACKEND"] == "jax"
    assert capsys.readouterr().err == (
        "This machine has a TPU, so training uses JAX. Set KERAS_BACKEND=tensorflow to use "
        "TensorFlow instead.\n"
    )


@pytest.mark.usefixtures("tpu")
@pytest.mark.parametrize("content", ['{"backend": "tensorflow"}', "{}", "[]", "{"])
def test_what_keras_wrote_itself_is_no_choice(tmp_path: Path, content: str) -> None:
    (tmp_path / "keras.json").write_text(content)
    prefer_jax_on_tpu(None)
    assert os.environ["KERAS_BACKEND"] == "jax"


@pytest.mark.usefixtures("tpu")
@pytest.mark.parametrize(
    "case", ["variable", "keras.json", "strategy", "config", "no TPU", "no JAX", "no libtpu"]
)
def test_a_choice_is_kept(
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen, strategy, config = "", None, None
    if case == "variable":
        chosen = "tensorflow"
        monkeypatch.setenv("KERAS_BACKEND", chosen)
    elif case == "keras.json":
        (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    elif case == "strategy":
        strategy = "tpu"
    elif case == "config":
        config = tmp_path / "config.yaml"
        config.write_text("model: ViTB16\nstrategy: mirrored\n")
    elif case == "no TPU":
        monkeypatch.setattr(accelerators, "detect", lambda: "gpu")
    else:
        there = "libtpu" if case == "no JAX" else "jax"
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == there)
    prefer_jax_on_tpu(strategy, config)
    assert os.environ["KERAS_BACKEND"] == chosen
    assert capsys.readouterr().err == ""


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tpu")
@pytest.mark.parametrize(
    "command",
    [
        ("train", "--data", "digits", "--recipe", "none"),
        ("pretrain", "--data", "digits", "--recipe", "none"),
        ("compare", "--models", "A,B", "--data", "digits", "--recipe", "none"),
    ],
    ids=" ".join,
)
def test_commands_that_train_ask(call: Call, command: tuple[str, ...]) -> None:
    assert "training uses JAX." in call(*command)[2]


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tpu")
def test_strategy_of_a_resumed_cross_validation_is_kept(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(training, "train_folds", lambda *arguments, **options: None)
    config = tmp_path / "folds" / "fold_1" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("strategy: cpu\n")
    code, _, message = call("train", "--resume", "--out", tmp_path / "folds")
    assert code == 0
    assert "training uses JAX." not in message
