"""Names, arguments and `overrides` that a constructor does not take as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import keras_vit
from keras_vit.models import config_of
from keras_vit.zoo import CONSTRUCTORS, ViTMicro4, constructor
from tests.weights.files import official_tensors, save


@pytest.mark.parametrize("name", ["vit", "ViT", "vit_base_patch16_224"])
def test_vague_name_suggests_the_usual_ones(name: str) -> None:
    message = r"Did you mean 'ViTTi16', 'ViTS16', 'ViTB16' or 'ViTL16'\? Options: 'ViTMicro4', "
    with pytest.raises(ValueError, match=f"`model` must be one of these. {message}"):
        constructor(name)
    assert all(known in CONSTRUCTORS for known in re.findall(r"ViT\w+", message))


def test_overrides_of_the_patch_size_keep_the_input_shape() -> None:
    """168 is a multiple of 12, which the 224 pixels of the size are not."""
    model = keras_vit.ViTTi16(
        weights=None, input_shape=(168, 168, 3), overrides={"patch_size": 12, "num_layers": 1}
    )
    assert config_of(model).grid == (14, 14)


@pytest.mark.parametrize(("patch", "side"), [(14, 224), (32, 224), (12, None)])
def test_overrides_of_the_patch_size_keep_the_image_size(patch: int, side: int | None) -> None:
    model = keras_vit.ViTTi16(weights=None, overrides={"patch_size": patch, "num_layers": 1})
    assert model.input_shape == (None, side, side, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"patch_size": 14},
            r"^ViTB16 has no argument `patch_size`. Pass `overrides=\{'patch_size': 14\}`. Recei",
        ),
        ({"input_shap": (32, 32, 3)}, "no argument `input_shap`. Did you mean 'input_shape'"),
    ],
)
def test_other_arguments_name_the_one_to_use(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        keras_vit.ViTB16(**arguments)


def test_overrides_go_before_everything_else() -> None:
    fields = {"register_tokens": 3, "layer_scale": 0.1, "gelu": "exact"}
    model = ViTMicro4(weights=None, input_shape=(16, 20, 3), overrides=fields)
    assert fields.items() <= config_of(model).get_config().items()
    with pytest.raises(ValueError, match=r"`overrides` must be one of .* Did you mean 'layer_sc"):
        ViTMicro4(weights=None, overrides={"layerscale": 0.1})


@pytest.mark.parametrize(("patch", "side"), [(2, 20), (10, 20), (3, 15)])
def test_another_patch_size_than_that_of_the_weights_keeps_the_image_size(
    patch: int, side: int, tmp_path: Path
) -> None:
    """Or, if the size is not a multiple of the patch, the grid of 5 x 5 patches."""
    published = ViTMicro4.config.replace(image_size=(20, 20))
    weights = save(tmp_path, official_tensors(published))
    with pytest.warns(UserWarning, match="resized"):
        model = ViTMicro4(weights=weights, overrides={"patch_size": patch})
    assert model.input_shape == (None, side, side, 3)


def test_call_on_the_recipes_page_fails_only_without_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[1] / "docs" / "recipes.md"
    calls = re.findall(r"^model = (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    for call in calls:
        with pytest.raises(ConnectionError, match="KERAS_VIT_OFFLINE forbids connections"):
            exec(call)
    assert len(calls) == 1
