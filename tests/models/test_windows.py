"""Encoders with windows compute as ViTDet does in timm and in transformers (`windows/`)."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.models.counting import count_flops, count_parameters
from keras_vit.weights import load_weights
from keras_vit.weights.containers.safetensors import write_safetensors
from tests.helpers import JIT, normal, numpy, tiny_config

CASES = sorted((Path(__file__).parent / "windows").glob("*.npz"))
TOLERANCE = 2e-5  # of the largest output; largest difference seen: 2e-7


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_tokens_are_those_of_the_library(case: Path, tmp_path: Path) -> None:
    with np.load(case) as stored:
        content = dict(stored)
    tensors = {k.removeprefix("tensor/"): v for k, v in content.items() if k.startswith("tensor/")}
    write_safetensors(tmp_path / "model.safetensors", tensors, {"format": "pt"})
    images, expected = content["images"], content["tokens"]
    config = models.ViTConfig(
        **{"hidden_size": 24, "num_layers": 4, "num_heads": 2, "mlp_dim": 96, "patch_size": 4},
        **{"image_size": images.shape[1:3], "class_token": False, "pooling": "none", "classes": 0},
        **{"gelu": "exact", "epsilon": 1e-6 if case.stem == "transformers" else 1e-5},
        **{"window_size": 3, "global_blocks": 2},
    )
    assert config.windows == (3, None, 3, None)
    model = models.build(config)
    load_weights(model, tmp_path / "model.safetensors")
    found = numpy(keras.Model(model.input, model.get_layer("block_03").output)(images))
    difference = np.abs(found.reshape(expected.shape) - expected).max()
    print(case.stem, difference / np.abs(expected).max())
    assert difference <= TOLERANCE * np.abs(expected).max()


@pytest.mark.slow
def test_patches_are_those_of_the_image_whatever_grid_is_stored() -> None:
    stored = tiny_config(image_size=(32, 32), window_size=2, pooling="none", classes=0)
    stored = stored.replace(position_grid=(4, 4))
    blocks = [layer for layer in models.build(stored).layers if layer.name.startswith("block")]
    grids = {block.position_grid for block in blocks if block.window_size}
    assert grids == {stored.image_grid} != {stored.grid}
    dense = tiny_config(image_size=(32, 32), position_grid=(4, 4), pooling="none", classes=0)
    assert models.Segmenter(models.build(dense), 3).output_shape == (None, 32, 32, 3)


def test_model_with_windows_trains_every_variable_and_reloads(tmp_path: Path) -> None:
    config = tiny_config(window_size=2, global_blocks=1)
    assert config.windows == (2, None)
    model = models.build(config)
    images = normal(4, 15, 14, 3)
    before = [numpy(variable) for variable in model.trainable_variables]
    model.compile(keras.optimizers.SGD(1.0), "sparse_categorical_crossentropy", jit_compile=JIT)
    model.fit(images, np.arange(4), epochs=2, verbose=0)
    pairs = zip(model.trainable_variables, before, strict=True)
    assert not [variable.path for variable, old in pairs if (numpy(variable) == old).all()]
    model.save(tmp_path / "m.keras")
    copy = keras.models.load_model(tmp_path / "m.keras")
    assert (copy.predict(images, verbose=0) == model.predict(images, verbose=0)).all()
    assert models.config_of(copy) == config
    faster = models.optimize_for_inference(model).predict(images, verbose=0)
    assert np.abs(faster - model.predict(images, verbose=0)).max() < 1e-6


def test_windows_cost_less_and_have_no_parameters() -> None:
    whole = models.size("Ti/16").replace(image_size=(1024, 1024), classes=0)
    windows = whole.replace(window_size=16)
    assert count_parameters(windows) == count_parameters(whole)
    assert count_flops(windows) < 0.6 * count_flops(whole)
    memory = [models.count_memory(config, 1).activations for config in (windows, whole)]
    assert memory[0] < 0.6 * memory[1]


def test_windows_are_refused_where_they_do_not_fit() -> None:
    with pytest.raises(ValueError, match="`global_blocks` must be in"):
        tiny_config(window_size=2, global_blocks=0)
    with pytest.raises(ValueError, match="positions that do not act in attention"):
        tiny_config(window_size=2, global_blocks=1, hidden_size=32, position_embedding="rotary")
    model = models.build(tiny_config(window_size=2, global_blocks=1))
    for refuses in (models.FeatureExtractor, models.reduce_tokens):
        with pytest.raises(ValueError, match="attend among all tokens"):
            refuses(model)
