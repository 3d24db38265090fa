"""What becomes of a model in a file, in a clone, in another process, in a user's own model."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.layers import TransformerBlock
from keras_vit.models import build, config_of, preprocessing_of
from keras_vit.preprocessing import Preprocessing
from tests.helpers import JIT, normal, numpy, randomise, tiny_config, tiny_model

IMAGES = normal(2, 15, 14, 3)
LABELS = tuple(f"class {index}" for index in range(11))
PREPROCESSING = Preprocessing(
    size=(15, 14), mean=(0.1, 0.2, 0.3), interpolation="nearest", class_names=LABELS
)

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "any size": {"image_size": (None, None), "position_grid": (5, 7)},
    "map, representation": {"pooling": "map", "class_token": False, "representation_size": 13},
    "token_gap": {"pooling": "token_gap"},
    "sincos_2d, gap": {"position_embedding": "sincos_2d", "pooling": "gap"},
    "learned_2d, dropout": {"position_embedding": "learned_2d", "dropout_rate": 0.2},
    "backbone": {"classes": 0, "pooling": "none"},
}
each_variant = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)


def labeled(**changes: Any) -> keras.Model:
    return randomise(build(tiny_config(**changes), preprocessing=PREPROCESSING))


@pytest.mark.slow
@each_variant
def test_keras_file_brings_everything_back(changes: dict[str, Any], tmp_path: Path) -> None:
    model = labeled(**changes)
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras", safe_mode=True)
    np.testing.assert_array_equal(numpy(loaded(IMAGES)), numpy(model(IMAGES)))
    assert preprocessing_of(loaded) == PREPROCESSING
    assert config_of(loaded) == config_of(model)


@each_variant
def test_clone_is_the_same_architecture(changes: dict[str, Any]) -> None:
    model = labeled(**changes)
    clone = keras.models.clone_model(model)
    assert [w.path for w in clone.weights] == [w.path for w in model.weights]
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(numpy(clone(IMAGES)), numpy(model(IMAGES)))
    assert preprocessing_of(clone) == PREPROCESSING


def test_config_round_trip_needs_no_custom_objects() -> None:
    model = labeled()
    copy = keras.Model.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(numpy(copy(IMAGES)), numpy(model(IMAGES)))


def test_mixed_precision_keras_file_keeps_weights_and_policy(tmp_path: Path) -> None:
    model = tiny_model(dtype="mixed_bfloat16")
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    assert loaded.get_layer("block_00").compute_dtype == "bfloat16"
    np.testing.assert_array_equal(numpy(loaded(IMAGES)), numpy(model(IMAGES)))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_quantized_model_is_saved_again_and_again(dtype: str, mode: str, tmp_path: Path) -> None:
    model = randomise(build(tiny_config(pooling="map", class_token=False), dtype=dtype))
    before = numpy(model(IMAGES))
    with warnings.catch_warnings(action="ignore"):  # by Keras, of layers without a kernel
        model.quantize(mode)
    assert model.get_layer("block_01").mlp.expand.quantization_mode == mode
    expected = numpy(model(IMAGES))
    assert np.any(expected != before)
    for name in ("first.keras", "second.keras"):  # saves what was loaded as well
        model.save(tmp_path / name)
        model = keras.saving.load_model(tmp_path / name)
        np.testing.assert_array_equal(numpy(model(IMAGES)), expected)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(numpy(clone(IMAGES)), expected)


@pytest.mark.parametrize(
    "kind", [keras.Sequential, pytest.param(keras.Model, marks=pytest.mark.slow)]
)
def test_quantized_layer_is_saved_in_any_model(kind: Any, tmp_path: Path) -> None:
    layers = [keras.Input((5, 12)), TransformerBlock(3, 7)]
    model = kind(layers) if kind is keras.Sequential else kind(layers[0], layers[1](layers[0]))
    randomise(model)
    with warnings.catch_warnings(action="ignore"):
        model.quantize("int8")
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    tokens = normal(2, 5, 12)
    np.testing.assert_array_equal(numpy(loaded(tokens)), numpy(model(tokens)))


@pytest.mark.slow
def test_partly_quantized_model_is_saved_with_its_quantization_config(tmp_path: Path) -> None:
    images = keras.Input((15, 14, 3))
    model = keras.Sequential([images, labeled(classes=0), keras.layers.Dense(3)])
    weights_only = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=weights_only, filters="qkv|expand")
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    block = loaded.layers[0].get_layer("block_01")
    assert block.attention.qkv.quantization_mode == block.mlp.expand.quantization_mode == "int8"
    assert block.attention.out.quantization_mode is None
    assert block.attention.qkv.inputs_quantizer is None
    np.testing.assert_array_equal(numpy(loaded(IMAGES)), numpy(model(IMAGES)))


def test_weights_file_fits_a_new_model(tmp_path: Path) -> None:
    model, other = labeled(), labeled()
    other.set_weights([0 * w for w in other.get_weights()])
    model.save_weights(tmp_path / "m.weights.h5")
    other.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(numpy(other(IMAGES)), numpy(model(IMAGES)))


IN_ANOTHER_PROCESS = """
import sys
import warnings
from pathlib import Path

import numpy as np
import keras
import keras_vit

folder = Path(sys.argv[1])
model = keras.saving.load_model(folder / "m.keras")
np.save(folder / "loaded.npy", model.predict(np.load(folder / "images.npy"), verbose=0))
print(*keras_vit.models.preprocessing_of(model).class_names, sep="|")
"""


@pytest.mark.slow
def test_keras_file_predicts_the_same_in_another_process(tmp_path: Path) -> None:
    model = labeled(image_size=(None, None), position_grid=(3, 4), num_layers=3)
    model.save(tmp_path / "m.keras")
    np.save(tmp_path / "images.npy", IMAGES)
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    predictions = np.load(tmp_path / "loaded.npy")
    np.testing.assert_array_equal(predictions, model.predict(IMAGES, verbose=0))
    assert tuple(done.stdout.splitlines()[-1].split("|")) == LABELS


def with_frozen_backbone(backbone: keras.Model) -> keras.Model:
    backbone.trainable = False
    images = keras.Input((15, 14, 3))
    tokens = backbone(images, training=False)
    pooled = keras.layers.GlobalAveragePooling1D()(tokens)
    return keras.Model(images, keras.layers.Dense(5, activation="softmax", name="mine")(pooled))


@pytest.mark.slow
def test_frozen_backbone_trains_and_saves_in_a_users_model(tmp_path: Path) -> None:
    backbone = labeled(classes=0, pooling="none", stochastic_depth_rate=0.5)
    before = backbone.get_weights()
    model = with_frozen_backbone(backbone)
    assert [w.path for w in model.trainable_weights] == ["mine/kernel", "mine/bias"]
    optimizer = keras.optimizers.Adam(0.03)
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=JIT)
    images, labels = normal(5, 15, 14, 3), np.arange(5)
    losses = model.fit(images, labels, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    for weight, old in zip(backbone.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)

    model.save(tmp_path / "mine.keras")
    loaded = keras.saving.load_model(tmp_path / "mine.keras", safe_mode=True)
    np.testing.assert_array_equal(numpy(loaded(images)), numpy(model(images)))
    assert preprocessing_of(loaded) == PREPROCESSING
    assert [w.path for w in loaded.trainable_weights] == ["mine/kernel", "mine/bias"]
    assert loaded.fit(images, labels, verbose=0).history["loss"][0] < 0.7 * losses[0]
