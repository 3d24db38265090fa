from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.models import FeatureExtractor
from keras_vit.models.feature_extractor import gradients
from tests.helpers import assert_close, normal, numpy, randomise, tiny_model

IMAGES = normal(3, 15, 14, 3)
HYBRID = {"stem_blocks": (), "stem_width": 32, "patch_size": (2, 1), "image_size": (16, 12)}
KINDS: dict[str, dict[str, Any]] = {
    "token": {},
    "gap": {"pooling": "gap", "class_token": False},
    "max": {"pooling": "max"},
    "token_gap": {"pooling": "token_gap"},
    "map": {"pooling": "map"},
    "distilled": {"distillation_token": True, "distillation_head": True},
    "registers": {"register_tokens": 3, "layer_scale": 0.5, "pre_norm": True},
    "norm after pooling": {"pooling": "gap", "norm_after_pooling": True},
    "half": {"dtype": "mixed_bfloat16"},
    "hybrid": HYBRID,
    "any size": {"image_size": (None, None), "position_grid": (5, 7)},
}


QUICK = ("token", "hybrid")


def images_of(model: keras.Model) -> np.ndarray:
    return normal(
        3, *(side or n for side, n in zip(model.input_shape[1:], (15, 14, 3), strict=True))
    )


@pytest.mark.parametrize(
    "kind",
    [*QUICK, *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS if k not in QUICK)],
)
def test_observation_is_what_the_model_does(kind: str) -> None:
    model = tiny_model(**KINDS[kind])
    images = images_of(model)
    before = [weight.copy() for weight in model.get_weights()]
    seen = FeatureExtractor(model).activations(images)
    # bfloat16 keeps 8 bits; else measured 1.2e-7.
    tolerance = 0.05 if kind == "half" else 1e-6
    assert_close(ops.softmax(seen.outputs), numpy(ops.cast(model(images), "float32")), tolerance)
    assert seen.outputs.dtype == seen.attention[0].dtype == np.float32
    tokens = seen.tokens[0].shape[1]
    assert [a.shape for a in seen.attention] == [(3, 4, tokens, tokens)] * 2
    assert [t.shape for t in seen.tokens] == [(3, tokens, 24)] * 3
    for weights in seen.attention:
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert tokens == seen.grid[0] * seen.grid[1] + FeatureExtractor(model).num_prefix_tokens
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert (seen.pooling is None) == (kind != "map")


def test_observed_tokens_and_attention_are_those_of_the_layers() -> None:
    model = tiny_model()
    seen = FeatureExtractor(model).activations(IMAGES)
    z = model.get_layer("patch_encoder")(model.get_layer("patches")(IMAGES))
    for index in range(2):
        block = model.get_layer(f"block_{index:02d}")
        assert_close(seen.tokens[index], z, 2e-6)  # measured 4.8e-7
        _, weights = block.attention(block.norm_1(z), return_attention_scores=True)
        assert_close(seen.attention[index], weights, 1e-6)
        z = block(z)
    assert_close(seen.tokens[2], z, 2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["token", "map", "hybrid"])
def test_gradients_are_those_of_small_differences(kind: str) -> None:
    extractor = FeatureExtractor(tiny_model(**KINDS[kind]))
    images, classes = images_of(extractor.network), np.array([2, 5, 7])
    seen = extractor.activations_and_gradients(images, classes)
    rng = np.random.default_rng(1)
    tapped = [extractor.blocks[-1], extractor.blocks[0].attention]
    found = [seen.token_gradients, seen.attention_gradients[0]]
    if seen.pooling is not None:
        tapped.append(extractor._pooling)
        found.append(seen.pooling_gradient)
    for layer, gradient in zip(tapped, found, strict=True):
        direction = rng.normal(size=gradient.shape).astype("float32")
        direction /= np.linalg.norm(direction)
        scores = []
        for sign in (1, -1):
            layer.tap = ops.convert_to_tensor(sign * 1e-2 * direction)
            outputs = numpy(extractor.network(ops.convert_to_tensor(images)))
            scores.append(outputs[np.arange(3), classes].sum())
        layer.tap = None
        expected = (scores[0] - scores[1]) / 2e-2
        assert np.abs(gradient).max() > 1e-4
        # Of scores of about 5 in float32; measured 2e-4.
        assert float((gradient * direction).sum()) == pytest.approx(expected, abs=1e-3)


def test_gradients_are_of_the_most_probable_class_by_default() -> None:
    model = tiny_model()
    extractor = FeatureExtractor(model)
    best = numpy(model(IMAGES)).argmax(axis=1)
    default = extractor.activations_and_gradients(IMAGES, None)
    chosen = extractor.activations_and_gradients(IMAGES, best)
    np.testing.assert_array_equal(default.token_gradients, chosen.token_gradients)
    other = extractor.activations_and_gradients(IMAGES, (best + 1) % 11)
    assert np.abs(other.token_gradients - chosen.token_gradients).max() > 1e-3


@pytest.mark.parametrize("classes", [[1, 2], [0, 1, 11], [-1, 0, 1]])
def test_gradients_of_classes_that_are_not_there(classes: list[int]) -> None:
    message = r"`classes` must be one class in \[0, 11\) for each of the 3 images. Received: .*"
    with pytest.raises(ValueError, match=message):
        FeatureExtractor(tiny_model()).activations_and_gradients(IMAGES, classes)


def test_gradients_need_one_score_for_each_class() -> None:
    extractor = FeatureExtractor(tiny_model(classes=0, pooling="none"))
    assert extractor.activations(IMAGES).outputs.shape == (3, 36, 24)
    with pytest.raises(ValueError, match=r"`model` must return one score .*\(None, 36, 24\)"):
        extractor.activations_and_gradients(IMAGES, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ending",
    [
        keras.layers.Dense(5, activation="softmax"),
        keras.Sequential([keras.layers.Dense(5), keras.layers.Softmax()]),
        lambda z: keras.ops.softmax(keras.layers.Dense(5)(z)),
        lambda z: keras.layers.Activation("softmax")(keras.layers.Dense(5)(z) * 2.0),
        keras.layers.Dense(5),
    ],
)
def test_anatomy_of_a_users_model(ending: Any, tmp_path: Path) -> None:
    images = keras.Input((15, 14, 3))
    z = tiny_model(classes=0)(keras.layers.Rescaling(2.0)(images))
    user = randomise(keras.Model(images, ending(z)))
    user.save(tmp_path / "user.keras")
    loaded = keras.saving.load_model(tmp_path / "user.keras")
    seen = FeatureExtractor(loaded).activations_and_gradients(IMAGES, None)
    answers = numpy(user(IMAGES))
    if not np.allclose(answers.sum(axis=1), 1):
        answers = numpy(ops.softmax(answers))
    assert_close(ops.softmax(seen.outputs), answers, 1e-5)
    assert np.abs(seen.token_gradients).max() > 0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("token", [1, 0, 0, 0]),
        ("distilled", [0.5, 0.5, 0, 0]),
        ("registers", [1, 0, 0, 0]),
        ("max", [0, 1 / 3, 1 / 3, 1 / 3]),
        ("token_gap", [1 / 2, 1 / 6, 1 / 6, 1 / 6]),
        ("gap", [0.25] * 4),
    ],
)
def test_reading_says_which_tokens_answer(kind: str, expected: list[float]) -> None:
    extractor = FeatureExtractor(tiny_model(**KINDS[kind]))
    np.testing.assert_allclose(extractor.reading(4), expected, rtol=1e-6)
    assert extractor.reads_class_token == (kind in ("token", "distilled", "registers", "token_gap"))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "stride"), [("token", (3, 2)), ("hybrid", (8, 4))])
def test_patch_stride_is_in_pixels(kind: str, stride: tuple[int, int]) -> None:
    assert FeatureExtractor(tiny_model(**KINDS[kind])).patch_stride == stride


def test_anatomy_of_a_stranger() -> None:
    stranger = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)], name="stranger")
    with pytest.raises(
        ValueError, match=r"`model` must be a Vision Transformer.*'stranger' with 0"
    ):
        FeatureExtractor(stranger)


def test_another_precision_is_refused() -> None:
    message = r"^`precision` must be one of .*'float32', 'bfloat16'\. Received: precision='bf16'$"
    with pytest.raises(ValueError, match=message):
        FeatureExtractor(tiny_model(), precision="bf16")


def test_anatomy_of_an_anatomy_is_itself() -> None:
    extractor = FeatureExtractor(tiny_model())
    assert FeatureExtractor.of(extractor) is extractor


def test_gradients_of_a_case_worked_by_hand() -> None:
    x, y = (ops.convert_to_tensor(normal(3, 2, seed=seed)) for seed in (1, 2))

    def function(tensors: list[object]) -> tuple[object, dict[str, object]]:
        product = ops.matmul(ops.transpose(tensors[0]), tensors[1])
        return ops.sum(product), {"product": [product]}

    found, other = gradients(function, [x, y])
    np.testing.assert_allclose(numpy(found[0]), np.tile(numpy(y).sum(1)[:, None], 2), rtol=1e-6)
    np.testing.assert_allclose(numpy(found[1]), np.tile(numpy(x).sum(1)[:, None], 2), rtol=1e-6)
    assert numpy(other["product"][0]).shape == (2, 2)


def test_gradient_of_what_plays_no_part_is_zero() -> None:
    x, y = ops.ones((2,)), ops.ones((3,))
    found, _ = gradients(lambda tensors: (ops.sum(tensors[0]), None), [x, y])
    assert numpy(found[1]).tolist() == [0, 0, 0]


def test_gradients_on_another_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(
        ValueError, match=r"Keras backend \(KERAS_BACKEND\) must be TensorFlow or JAX.*'torch'"
    ):
        gradients(lambda tensors: (tensors[0], None), [ops.ones(())])
