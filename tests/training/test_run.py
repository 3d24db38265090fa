from __future__ import annotations

import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from keras_vit.training import FROM_SCRATCH, Recipe, Run, RunConfig

pytestmark = pytest.mark.tensorflow

CONFIGS = [
    RunConfig("digits", "ViTMicro4"),
    RunConfig(
        data="photos/\udce9t\u00e9",  # a folder name need not be Unicode
        model="ViTB16",
        weights="ViT-B_16.npz",
        image_size=(48, 80),
        validation_fraction=0.3,
        split_seed=5,
        on_bad_image="skip",
        recipe=FROM_SCRATCH.replace(flip=False, crop_area=(0.3, 0.9), seed=11, optimizer="sgd"),
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
    content = json.loads(run.config.read_text())
    assert content["resolved"] == {"precision": "mixed_bfloat16", "flip": False}
    assert content["versions"] == {
        "python": platform.python_version(),
        "keras-vit-toolkit": metadata.version("keras-vit-toolkit"),
        "keras": metadata.version("keras"),
        "tensorflow": metadata.version("tensorflow"),
        "numpy": metadata.version("numpy"),
    }


def test_version_of_a_missing_package_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    run = Run(tmp_path)
    run.write_config(CONFIGS[0], {})
    assert json.loads(run.config.read_text())["versions"]["keras"] is None


def test_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"`run` must be a folder that `keras-vit train --out` has.*no config.json"
    ):
        Run(tmp_path).read_config()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validation_fraction": 0.0}, r"`validation_fraction` must be in \(0, 1\).*=0.0"),
        ({"validation_fraction": 2.0}, r"`validation_fraction` must be in \(0, 1\).*=2.0"),
        ({"on_bad_image": "ignore"}, "`on_bad_image` must be one of 'fail', 'skip'"),
    ],
)
def test_run_config_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunConfig("digits", "ViTMicro4", **changes)
