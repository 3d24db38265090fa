"""Kinds of positions in whole models, with one that only this file has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit import export, models
from keras_vit.layers.position_embedding import POSITIONS, Positions
from keras_vit.models.counting import count_parameters
from keras_vit.weights import load_weights, read_checkpoint, save_weights
from tests.helpers import JIT, normal, numpy


class Alibi2D(Positions):
    """Logits that fall with the distance of two patches, at a learned rate for each head.

    Reference: https://arxiv.org/abs/2108.12409
    """

    name = "alibi_2d"
    in_attention = True
    per_token = False

    def attention_shapes(self, grid: tuple[int, int], num_heads: int) -> dict[str, Any]:
        return {"slope": (num_heads,)}

    def attention_inputs(self, grid: Any, prefix: int, head_size: int, _: Any = None) -> Any:
        ops = keras.ops
        row, column = (ops.cast(ops.arange(side), "float32") for side in grid)
        places = ops.stack(ops.meshgrid(row, column, indexing="ij"), axis=-1)
        places = ops.reshape(places, (-1, 2))  # (N, 2)
        distance = ops.sum(ops.abs(places[:, None] - places[None]), axis=-1)  # (N, N)
        return ops.pad(distance, ((prefix, 0), (prefix, 0)))[None]  # (1, T, T)

    def logits(self, variables: Mapping[str, Any], positions: Any) -> Any:
        return -variables["slope"][None, :, None, None] * positions[:, None]


KINDS = ("rotary", "learned_rotary", "relative", Alibi2D.name)
SLOWLY = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("learned_rotary", Alibi2D.name)]
each_kind = pytest.mark.parametrize("kind", ["rotary", "relative", *SLOWLY])


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POSITIONS, Alibi2D.name, Alibi2D())


def config_with(kind: str, **fields: Any) -> models.ViTConfig:
    return models.ViTConfig(
        **{
            **{"hidden_size": 24, "num_layers": 2, "num_heads": 2, "mlp_dim": 20, "classes": 3},
            **{"patch_size": 4, "image_size": (8, 12), "position_embedding": kind},
            "pooling": "gap",
            **fields,
        }
    )


def trained(kind: str, **fields: Any) -> tuple[keras.Model, np.ndarray]:
    model = models.build(config_with(kind, **fields))
    images = normal(6, 8, 12, 3).astype("float32")
    model.compile(keras.optimizers.SGD(0.3), "sparse_categorical_crossentropy", jit_compile=JIT)
    model.fit(images, np.arange(6) % 3, epochs=2, verbose=0)
    return model, images


@pytest.mark.slow
@each_kind
def test_every_variable_is_trained_and_counted(kind: str) -> None:
    model = models.build(config_with(kind))
    before = [numpy(variable) for variable in model.trainable_variables]
    assert sum(variable.size for variable in before) == count_parameters(config_with(kind))
    model, _ = trained(kind)
    for variable in model.trainable_variables:
        if kind in variable.path or "attention" in variable.path:
            assert numpy(variable).any(), variable.path


@each_kind
def test_reload_weights_and_faster_inference(kind: str, tmp_path: Path) -> None:
    model, images = trained(kind)
    expected = model.predict(images, verbose=0)
    model.save(tmp_path / "m.keras")
    copy = keras.models.load_model(tmp_path / "m.keras")
    assert (copy.predict(images, verbose=0) == expected).all()
    save_weights(model, tmp_path / "m.weights.h5")
    other = models.build(config_with(kind))
    load_weights(other, tmp_path / "m.weights.h5")
    assert (other.predict(images, verbose=0) == expected).all()
    assert read_checkpoint(tmp_path / "m.keras").inferred["position_embedding"] == kind
    faster = models.optimize_for_inference(model).predict(images, verbose=0)
    assert np.abs(faster - expected).max() < 1e-6


@pytest.mark.slow
@each_kind
def test_rematerialization_changes_no_gradient(kind: str) -> None:
    model, images = trained(kind)
    before = model.get_weights()
    results = []
    for remat in (False, True):
        model.set_weights(before)
        for index in range(2):
            model.get_layer(f"block_{index:02d}").remat = remat
        model.compile(keras.optimizers.SGD(0.3), "sparse_categorical_crossentropy", jit_compile=JIT)
        model.fit(images, np.arange(6) % 3, verbose=0)
        results.append(model.get_weights())
    for one, other in zip(*results, strict=True):
        assert np.abs(one - other).max() < 1e-6


@pytest.mark.slow
@each_kind
def test_features_and_attention_of_the_network(kind: str) -> None:
    model, images = trained(kind)
    seen = models.FeatureExtractor(model).activations(images)
    found = models.features(model, images, layers=[-1], pool="all")[-1]
    assert seen.attention[0].shape == (6, 2, 7, 7)
    assert (
        np.abs(seen.outputs.argmax(axis=1) - model.predict(images, verbose=0).argmax(1)).max() == 0
    )
    assert found.shape == (6, 7, 24)


@each_kind
def test_merged_tokens_have_no_position(kind: str) -> None:
    with pytest.raises(ValueError, match="a merged token has no position"):
        models.reduce_tokens(models.build(config_with(kind)))


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="exports need TensorFlow")
@pytest.mark.parametrize("kind", KINDS)
def test_exported_files_compute_the_same(kind: str, tmp_path: Path) -> None:
    model, _ = trained(kind)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 12, 3), dtype=np.uint8)
    expected = model.predict(pixels / np.float32(127.5) - 1, verbose=0)
    served = export.saved_model.write(model, tmp_path / "served")
    import tensorflow as tf

    outputs = tf.saved_model.load(served).signatures["classify_pixels"](tf.constant(pixels))
    assert np.abs(outputs["probabilities"].numpy() - expected).max() < 1e-5
    path = export.tflite.write(model, tmp_path / "m.tflite", batch_size=6)
    interpreter = tf.lite.Interpreter(str(path))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], pixels)
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert np.abs(found - expected).max() < 1e-4
