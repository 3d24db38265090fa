from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import keras
import pytest
import yaml

from keras_vit.runs.named_recipes import FINETUNE
from keras_vit.training import Recipe, Run, RunConfig, read_config, recipe

pytestmark = pytest.mark.tensorflow

CONFIGS = [
    RunConfig("digits", "ViTMicro4"),
    RunConfig(
        data="photos/\udce9t\u00e9",  # a folder name need not be Unicode
        model="ViTB16",
        weights="ViT-B_16.npz",
        validation_fraction=0.3,
        split_seed=5,
        on_bad_image="skip",
        strategy="mirrored",
        save_steps=7,
        recipe=recipe("deit").replace(
            flip=False, crop_area=(0.3, 0.9), seed=11, optimizer="sgd", image_size=(48, 80)
        ),
    ),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_config_survives_the_round_trip(tmp_path: Path, config: RunConfig) -> None:
    run = Run(tmp_path / "runs" / "new")
    run.write_config(config, {"precision": "float32"})
    assert run.read_config() == config
    assert isinstance(run.read_config().recipe, Recipe)


def test_config_names_versions_and_what_defaults_came_to(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write_config(CONFIGS[0], {"precision": "mixed_bfloat16", "flip": False})
    content = yaml.safe_load(run.config.read_text())
    assert content["resolved"] == {"precision": "mixed_bfloat16", "flip": False}
    assert content["versions"] == {
        "python": platform.python_version(),
        "keras-vit-toolkit": metadata.version("keras-vit-toolkit"),
        "keras": metadata.version("keras"),
        "tensorflow": metadata.version("tensorflow"),
        "jax": metadata.version("jax"),
        "numpy": metadata.version("numpy"),
    }


def test_version_of_a_missing_package_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "distributions", lambda name: iter(()))
    run = Run(tmp_path)
    run.write_config(CONFIGS[0], {})
    assert yaml.safe_load(run.config.read_text())["versions"]["keras"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validation_fraction": 0.0}, r"`validation_fraction` must be in \(0, 1\).*=0.0"),
        ({"validation_fraction": 2.0}, r"`validation_fraction` must be in \(0, 1\).*=2.0"),
        ({"on_bad_image": "ignore"}, "`on_bad_image` must be one of 'fail', 'skip'"),
        ({"strategy": "miror"}, "`strategy` must be one of .* Did you mean 'mirrored'"),
        ({"keep": 0}, "`keep` must be a positive integer"),
        ({"save_steps": -1}, "`save_steps` must be"),
        ({"split_seed": "abc"}, "`split_seed` must be a non-negative integer"),
        ({"save_minutes": -1}, "`save_minutes` must be a non-negative number.*=-1"),
        ({"teacher": "runs/x"}, "`teacher` must be given if,"),
        (
            {"recipe": Recipe(distillation="hard")},
            "if, and only if, the recipe uses distillation..*teacher=None",
        ),
    ],
)
def test_run_config_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunConfig("digits", "ViTMicro4", **changes)


def test_augmentation_layers_survive_the_round_trip(tmp_path: Path) -> None:
    layers = (keras.layers.RandomContrast(0.3), keras.layers.RandomRotation(0.1))
    config = RunConfig("digits", "ViTMicro4", recipe=Recipe().replace(layers=layers))
    run = Run(tmp_path)
    run.write_config(config, {})
    found = run.read_config().recipe.augmentation.layers
    assert [layer["class_name"] for layer in found] == ["RandomContrast", "RandomRotation"]
    assert found[0]["config"]["factor"] == [0, 0.3]


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_config_can_be_written_by_hand(tmp_path: Path) -> None:
    text = (
        "data: photos\nmodel: ViTB16\n"
        "recipe:\n  epochs: 3\n  learning_rate: 1e-3\n  augmentation: {mixup: 2e-1}\n"
    )
    found = read_config(written(tmp_path, text))
    recipe = FINETUNE.replace(epochs=3, learning_rate=0.001, mixup=0.2)
    assert found == RunConfig("photos", "ViTB16", recipe=recipe)


def test_removed_fields_of_a_recipe_are_ignored_if_0(tmp_path: Path) -> None:
    recipe = "{clip_variable_norm: 0.0, sam_radius: 0, epochs: 3}"
    found = read_config(written(tmp_path, f"data: photos\nmodel: ViTB16\nrecipe: {recipe}"))
    assert found == RunConfig("photos", "ViTB16", recipe=FINETUNE.replace(epochs=3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (
                f"data: a\nmodel: b\nrecipe: {{{name}: 0.1}}",
                f"recipe field `{name}` was removed and must be 0 or left out. Received: .*=0.1",
            )
            for name in ("clip_variable_norm", "sam_radius")
        ),
        ("data: [", "must be a readable YAML file"),
        ("just words", "must map fields to values. Received: 'just words'"),
        ("model: ViTB16", "must have `data` and `model`. Received: no `data`"),
        ("data: a\nmodel: b\nepochs: 3", "'epochs' is not a field of the configuration"),
        (
            "data: a\nmodel: b\nrecipe: {epoch: 3}",
            "'epoch' is not a field of its recipe.* Did you mean 'epochs'",
        ),
        (
            "data: a\nmodel: b\nrecipe: {augmentation: {mixpu: 3}}",
            "'mixpu' is not a field of its augmentation.* Did you mean 'mixup'",
        ),
        ("data: a\nmodel: b\nrecipe: {epochs: 0}", "`epochs` must be 1 or more"),
        (
            "data: a\nmodel: b\nrecipe: {learning_rate: fast}",
            "`learning_rate` must be .*'fast'",
        ),
    ],
)
def test_wrong_config_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_config(written(tmp_path, text))


def test_missing_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none.yaml must be a readable YAML file"):
        read_config(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{data: a, model: ViTB16, recipe: [1, 2]}", r"map fields of `recipe` to values.*\[1, 2\]"),
        ("{data: a, model: ViTB16, recipe: {augmentation: 5}}", "map fields of `augmentation`.* 5"),
        ("{data: 5, model: ViTB16}", "`data` must be text. Received: data=5"),
        ("{data: a, model: ViTB16, settings: [1]}", "`settings` must be a mapping"),
        ("[" * 100_000, "must be a readable YAML file"),
        ("{data: &a [x], keep: [*a, *a]}", "an alias"),
        ("{data: a, model: ViTB16, keep: !!timestamp abc}", "must be a readable YAML file"),
        ("a: !!python/object/apply:os.system [ls]", "must be a readable YAML file"),
    ],
)
def test_config_of_another_form_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_config(path)


def test_large_config_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a file of 300,0\d\d bytes, more than 262,144"):
        read_config(written(tmp_path, "a: [" + "1, " * 100_000 + "]"))
