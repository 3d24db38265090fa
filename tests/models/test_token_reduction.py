from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.layers import TokenPooling
from keras_vit.models import FeatureExtractor, rebuild, reduce_tokens
from tests.helpers import assert_close, normal, numpy, randomise, tiny_model

IMAGES = normal(3, 15, 14, 3)  # 5 x 7 patches


def tokens_of(model: keras.Model) -> list[int]:
    outputs = [model.get_layer(f"block_{i:02d}").output for i in range(2)]
    return [(x[0] if isinstance(x, (list, tuple)) else x).shape[1] for x in outputs]


@pytest.mark.parametrize("method", ["merge", "prune"])
def test_reducing_by_nothing_is_the_model(method: str) -> None:
    model = tiny_model(register_tokens=2)
    copy = keras_vit.reduce_tokens(model, 0, method)
    assert copy is not model
    assert_close(copy(IMAGES), model(IMAGES), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, [31, 26]),
        ({"class_token": False, "pooling": "gap"}, [30, 25]),
        ({"register_tokens": 3}, [34, 29]),
    ],
)
def test_tokens_go_in_every_block(changes: dict[str, Any], left: list[int]) -> None:
    model = tiny_model(**changes)
    before = numpy(model(IMAGES))
    copy = reduce_tokens(model, 5)
    assert tokens_of(copy) == left
    assert [w.path for w in copy.weights] == [w.path for w in model.weights]
    assert np.abs(numpy(copy(IMAGES)) - before).max() > 1e-4
    copy.set_weights([0 * w for w in copy.get_weights()])
    assert_close(model(IMAGES), before, 0.0)


def test_as_many_go_as_there_are() -> None:
    assert tokens_of(reduce_tokens(tiny_model(), 30, "prune")) == [19, 10]


def two_kinds_of_patches() -> np.ndarray:
    """Images (2, 15, 14, 3) of two kinds of patches, of one 9 and of the other 26."""
    kinds, images = normal(2, 2, 3, 2, 3), np.zeros((2, 15, 14, 3), "float32")
    for number in range(35):
        y, x = 3 * (number // 7), 2 * (number % 7)
        images[:, y : y + 3, x : x + 2] = kinds[:, int(number in (1, 4, 5, 9, 14, 20, 22, 30, 33))]
    return images


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pooling": "gap"},
        {"pooling": "gap", "class_token": False, "norm_after_pooling": True},
        {"pooling": "max"},
        {"distillation_token": True, "distillation_head": True, "register_tokens": 2},
    ],
)
def test_merging_equal_patches_changes_nothing(changes: dict[str, Any]) -> None:
    """Attention counts a merged token as often as it was there, and so does the mean."""
    model = tiny_model(position_embedding="none", num_layers=3, **changes)
    images = two_kinds_of_patches()
    found = reduce_tokens(model, 6)(images)
    assert_close(found, model(images), 1e-6)  # measured: 1.8e-7


def test_the_mean_weighs_tokens_by_their_sizes() -> None:
    tokens, sizes = normal(2, 5, 3), np.array([[1, 2, 1, 4, 3], [1, 1, 1, 1, 1]], "float32")
    expected = [
        np.average(z[1:], axis=0, weights=s[1:]) for z, s in zip(tokens, sizes, strict=True)
    ]
    assert_close(TokenPooling("gap")(tokens, sizes), np.stack(expected), 5e-7)
    assert_close(TokenPooling("max")(tokens, sizes), tokens[:, 1:].max(axis=1), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["merge", "prune"])
def test_reduced_model_is_saved_and_loaded(method: str, tmp_path: Path) -> None:
    copy = reduce_tokens(tiny_model(), 5, method)
    copy.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(loaded(IMAGES), copy(IMAGES), 0.0)
    assert tokens_of(loaded) == tokens_of(copy)


def test_all_tokens_come_back() -> None:
    model = tiny_model()
    copy = reduce_tokens(model, 5)
    assert_close(rebuild(copy)(IMAGES), model(IMAGES), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["merge", "prune"])
def test_reduced_model_in_mixed_precision(method: str) -> None:
    model = tiny_model()
    half = tiny_model(dtype="mixed_bfloat16")
    half.set_weights(model.get_weights())
    copy = reduce_tokens(half, 5, method)
    assert copy.get_layer("block_01").compute_dtype == "bfloat16"
    # Keys of 8 bits may choose other pairs; measured: 0.0052.
    assert_close(copy(IMAGES), reduce_tokens(model, 5, method)(IMAGES), 0.03)


@pytest.mark.slow
def test_reduced_model_within_a_users_model() -> None:
    images = keras.Input((15, 14, 3))
    model = randomise(keras.Model(images, keras.layers.Dense(5)(tiny_model(pooling="gap")(images))))
    copy, inner = reduce_tokens(model, 5), reduce_tokens(model.get_layer("tiny"), 5)
    assert_close(copy(IMAGES), copy.layers[-1](inner(IMAGES)), 1e-6)
    assert np.abs(numpy(copy(IMAGES)) - numpy(model(IMAGES))).max() > 1e-4
    sequential = keras.Sequential([keras.Input((15, 14, 3)), *model.layers[1:]])
    assert_close(reduce_tokens(sequential, 5)(IMAGES), copy(IMAGES), 1e-6)


@pytest.mark.tensorflow
@pytest.mark.parametrize("method", ["merge", pytest.param("prune", marks=pytest.mark.slow)])
def test_reduced_model_is_exported(method: str, tmp_path: Path) -> None:
    import tensorflow as tf

    copy = reduce_tokens(tiny_model(), 5, method)
    copy.export(tmp_path / "saved", verbose=False)
    served = tf.saved_model.load(tmp_path / "saved")
    for images in (IMAGES, IMAGES[:2]):
        assert_close(served.serve(images), copy(images), 2e-6)


def refused(model: keras.Model, method: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reduce_tokens(model, 5, method)


def test_reduce_tokens_checks_its_arguments() -> None:
    model = tiny_model()
    with pytest.raises(ValueError, match=r"`per_block` must be a non-negative integer\. .*=-3"):
        reduce_tokens(model, -3)
    refused(model, "pruned", "`method` must be one of these. Did you mean 'prune'")


@pytest.mark.parametrize("pooling", ["gap", "max"])
def test_pruning_needs_a_class_token_that_answers(pooling: str) -> None:
    refused(tiny_model(pooling=pooling), "prune", f"`method` must be 'merge' .*pooling='{pooling}'")
    bare = tiny_model(class_token=False, register_tokens=2, pooling=pooling)
    refused(bare, "prune", "`method` must be 'merge' without a class token,")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["merge", "prune"])
def test_who_needs_every_token_is_refused(method: str) -> None:
    refused(
        tiny_model(pooling="map"), method, r"`model` must pass .* 'pooling' \(AttentionPooling\)"
    )
    tokens = tiny_model(pooling="none", classes=0)
    refused(tokens, method, "`model` must classify .* in which 'tiny' returns its tokens")
    images = keras.Input((15, 14, 3))
    user = keras.Model(images, keras.layers.Flatten()(tokens(images)))
    refused(user, method, "`model` must classify .* in which 'tiny' returns its tokens")
    shifted = keras.Model(tokens.input, tokens.output + 1.0)
    refused(shifted, method, r"`model` must pass .* \(Add\) receives them")


def test_other_models_are_refused() -> None:
    other = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    refused(other, "merge", "`model` must be a Vision Transformer .* with 0 TransformerBlocks")
    reduced = reduce_tokens(tiny_model(), 5)
    refused(
        reduced,
        "merge",
        "without reduced tokens, .* with 0 TransformerBlocks, 2 that already reduce tokens",
    )
    images = keras.Input((15, 14, 3))
    within = keras.Sequential([keras.Input((15, 14, 3)), tiny_model()], name="within")
    refused(keras.Model(images, within(images)), "merge", "in a Sequential inside .* 'within'")


def test_images_of_any_size_are_refused() -> None:
    anywhere = keras.models.clone_model(tiny_model(), keras.Input((None, None, 3)))
    refused(anywhere, "merge", "`inputs` must have a known number of tokens")


def test_looking_inside_needs_every_token() -> None:
    with pytest.raises(
        ValueError, match=r"`model` must not have reduced tokens; pass .* `reduce_tokens`"
    ):
        FeatureExtractor(reduce_tokens(tiny_model(), 5))
