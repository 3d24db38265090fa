from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import keras
import numpy as np
import pytest

from keras_vit import choices, models, zoo
from keras_vit.cli.model_argument import load_given_model
from keras_vit.weights import read_checkpoint, save_weights
from keras_vit.weights.save import FORMATS
from tests.cli.commands import call_main, check_failure
from tests.helpers import randomise, tiny_model, weights_of
from tests.weights.files import official_tensors, save, save_old_h5

pytestmark = pytest.mark.tensorflow

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command; returns its exit code, its output and its messages."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = call_main(*arguments)
        return code, *capsys.readouterr()

    return run


def test_convert_takes_the_format_from_the_target(call: Call, tmp_path: Path) -> None:
    tensors = official_tensors()
    source = save(tmp_path, tensors)
    code, output, messages = call("convert", source, tmp_path / "m.keras")
    assert (code, output, messages) == (0, f"Written: {tmp_path}/m.keras\n", "")
    code, _, _ = call("convert", tmp_path / "m.keras", tmp_path / "again.npz")
    assert code == 0
    with np.load(tmp_path / "again.npz") as again:
        assert set(again) == set(tensors)
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(again[name], tensor)


def test_convert_prints_what_the_target_cannot_tell(call: Call, tmp_path: Path) -> None:
    source, target = save(tmp_path, official_tensors()), tmp_path / "m.safetensors"
    code, output, messages = call("convert", source, target, "--format", "timm")
    assert (code, output) == (0, f"Written: {target}\n")
    assert messages.startswith("Note: The format 'timm' does not record")
    assert 'act_layer="gelu_tanh"' in messages
    assert messages.count("\n") == 1
    assert read_checkpoint(target).dialect == "timm"


def test_convert_takes_heads_or_a_model(call: Call, tmp_path: Path) -> None:
    model = randomise(zoo.ViTMicro4(weights=None, input_shape=(8, 8, 3), classes=5))
    model.save_weights(tmp_path / "m.weights.h5")
    save_weights(model, tmp_path / "direct.npz")
    target = tmp_path / "m.npz"
    code, _, _ = call("convert", tmp_path / "m.weights.h5", target, "--model", "ViTMicro4")
    assert code == 0
    assert target.read_bytes() == (tmp_path / "direct.npz").read_bytes()
    other = tiny_model()  # 4 heads, which is no published size
    save_old_h5(other, tmp_path / "other.weights.h5")
    code, _, message = call(
        *("convert", tmp_path / "other.weights.h5", target, "--model", "ViTMicro4", "--heads", 4),
        "--overwrite",
    )
    check_failure(code, message, "18 values per patch instead of 16")


def test_convert_takes_the_size_of_images(call: Call, tmp_path: Path) -> None:
    model = tiny_model(image_size=(24, 12))  # 8 x 6 patches, which is no square
    save_weights(model, tmp_path / "m.npz")
    target = tmp_path / "m.keras"
    code, _, message = call("convert", tmp_path / "m.npz", target)
    check_failure(code, message, "does not contain image_size")
    assert "--image-size HEIGHTxWIDTH" in message
    assert call("convert", tmp_path / "m.npz", target, "--image-size", "24x12")[0] == 0
    again = keras.saving.load_model(target)
    assert models.config_of(again).image_size == (24, 12)
    for name, weight in weights_of(again).items():
        np.testing.assert_array_equal(weight, weights_of(model)[name])
    named = ("--model", "ViTMicro4", "--heads", models.config_of(model).num_heads)
    target.unlink()
    assert call("convert", tmp_path / "m.npz", target, "--image-size", "24x12", *named)[0] == 0
    code, _, message = call("convert", tmp_path / "m.npz", target, "--image-size", "24:12")
    check_failure(code, message, "the form 224 or 224x320. Received: --image-size 24:12")


def test_convert_says_how_to_tell_what_is_missing(call: Call, tmp_path: Path) -> None:
    save_old_h5(tiny_model(), tmp_path / "m.weights.h5")
    code, _, message = call("convert", tmp_path / "m.weights.h5", tmp_path / "m.npz")
    check_failure(code, message, "does not contain num_heads, patch_size")
    assert message.endswith(". Options: --heads N, --model NAME, --image-size HEIGHTxWIDTH\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere.npz", "m.npz"], "`SOURCE` must be an existing file, a URL"),
        (["official.npz", "m.safetensors"], "`format` must be one of 'npz', 'timm'"),
        (["official.npz", "m.npz", "--model", "ViTB61"], "Did you mean 'ViTB16'?"),
        (["official.npz", "m.npz", "--heads", "3"], "num_heads=4 instead of 3"),
        (["imagenett", "m.npz", "--model", "ViTB16"], "Did you mean 'imagenet'?"),
    ],
)
def test_convert_refuses(
    arguments: list[str],
    expected: str,
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save(tmp_path, official_tensors())
    monkeypatch.chdir(tmp_path)
    code, _, message = call("convert", *arguments)
    check_failure(code, message, expected)
    assert [path.name for path in tmp_path.iterdir()] == ["official.npz"]


def test_a_converted_model_classifies_as_before(call: Call, tmp_path: Path) -> None:
    model = tiny_model(image_size=(15, 15), patch_size=3)
    model.save(tmp_path / "a.keras")
    assert call("convert", tmp_path / "a.keras", tmp_path / "hub")[0] == 0
    assert call("convert", tmp_path / "hub", tmp_path / "b.keras")[0] == 0
    again = keras.saving.load_model(tmp_path / "b.keras")
    assert models.config_of(again) == models.config_of(model)
    for name, weight in weights_of(again).items():
        np.testing.assert_array_equal(weight, weights_of(model)[name])


def test_evaluate_keeps_the_channels_of_a_weight_file(tmp_path: Path) -> None:
    config = models.size("Micro/4").replace(image_size=(8, 12), channels=1, classes=5)
    models.build(config).save(tmp_path / "gray.keras")
    model = load_given_model(tmp_path / "gray.keras", "ViTMicro4", (8, 12))
    assert model.input_shape == (None, 8, 12, 1)


def test_every_format_can_be_asked_for() -> None:
    assert get_args(choices.Format) == FORMATS


def test_weights_of_a_model(call: Call) -> None:
    code, output, _ = call("weights", "ViTTi16")
    lines = output.splitlines()
    assert code == 0
    assert lines[0] == "ViTTi16"
    assert lines[1].split() == ["name", "px", "classes", "top-1", "MiB", "license"]
    cells = ["augreg_in21k_ft_in1k", "224", "1000", "75.45", "-", "Apache-2.0"]
    assert cells in [line.split() for line in lines]
    assert "imagenet: augreg_in21k_ft_in1k" in lines
    assert all(len(line) <= 80 for line in lines)
    assert "ViTS16" not in output


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("DINOv3S16", "dinov3-license: https://github.com/facebookresearch/dinov3/"),
        ("EUPEB16", "fair-noncommercial-research-license: https://huggingface.co/facebook/EUPE"),
        ("ViTH14", "CC-BY-NC-4.0: https://creativecommons.org/licenses/by-nc/4.0/"),
    ],
)
def test_weights_say_where_to_read_a_license(call: Call, model: str, line: str) -> None:
    code, output, _ = call("weights", model)
    assert code == 0
    assert [found for found in output.splitlines() if found.startswith(line)]
    assert "MIT" not in output
    assert "Apache-2.0: " not in output


def test_weights_of_all_models(call: Call) -> None:
    code, output, _ = call("weights")
    assert code == 0
    assert set(output.splitlines()) >= {*zoo.CONSTRUCTORS} - {"ViTMicro4", "ViTg14", "ViTG14"}
    assert "ViTMicro4: no published weights" in output
    assert max(map(len, output.splitlines())) <= 80


def test_weights_of_an_unknown_model(call: Call) -> None:
    code, _, message = call("weights", "ViTTi61")
    check_failure(code, message, "Did you mean 'ViTTi16'?")


@pytest.mark.parametrize("command", ["convert", "weights"])
def test_help_has_an_example(call: Call, command: str) -> None:
    code, output, _ = call(command, "--help")
    lines = [line.strip() for line in output.splitlines() if "Usage:" not in line]
    assert code == 0
    assert any(line.startswith(f"keras-vit {command}") for line in lines)
