from __future__ import annotations

from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.models import Activations, FeatureExtractor
from keras_vit.visualization import gradient_rollout, relevance_maps, rollout
from keras_vit.visualization.attention_maps import METHODS, maps_of
from tests.helpers import normal, tiny_model
from tests.visualization.reference import attention_of, expected_of

IMAGES = normal(2, 15, 14, 3)
KINDS: dict[str, dict[str, Any]] = {
    "token": {},
    "gap": {"pooling": "gap", "class_token": False},
    "map": {"pooling": "map", "class_token": False},
    "distilled": {"distillation_token": True, "distillation_head": True},
    "registers": {"register_tokens": 3},
    "half": {"dtype": "mixed_float16"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_relevance_maps_of_every_kind_of_model(kind: str) -> None:
    extractor = FeatureExtractor(tiny_model(**KINDS[kind]))
    for method in METHODS:
        maps = relevance_maps(extractor, IMAGES, method, classes=[3, 5])
        assert maps.shape == (2, 5, 7)
        assert maps.dtype == np.float32
        assert maps.min() >= 0
        assert np.ptp(maps) > 0


def test_relevance_is_read_off_the_class_token() -> None:
    extractor = FeatureExtractor(tiny_model())
    seen = extractor.activations_and_gradients(IMAGES, [3, 5])
    for method, expected in (
        ("attention", seen.attention[-1].mean(axis=1)[:, 0, 1:]),
        ("rollout", rollout(seen.attention)[-1][:, 0, 1:]),
        ("gradient_rollout", gradient_rollout(seen.attention, seen.attention_gradients)[:, 0, 1:]),
    ):
        np.testing.assert_allclose(
            maps_of(extractor, seen, method).reshape(2, 35), expected, rtol=1e-5, err_msg=method
        )


def test_relevance_of_attention_pooling_is_its_own_attention() -> None:
    extractor = FeatureExtractor(tiny_model(**KINDS["map"]))
    seen = extractor.activations(IMAGES)
    read = seen.pooling.mean(axis=1)[:, 0]
    np.testing.assert_allclose(
        maps_of(extractor, seen, "attention").reshape(2, 35), read, rtol=1e-5
    )
    expected = np.einsum("bt,btu->bu", read, rollout(seen.attention)[-1])
    found = maps_of(extractor, seen, "rollout").reshape(2, 35)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_grad_cam_of_a_case_worked_by_hand() -> None:
    extractor = FeatureExtractor(tiny_model(image_size=(3, 4)))  # a class token and two patches
    tokens = np.zeros((1, 3, 24), "float32")
    gradients = np.zeros((1, 3, 24), "float32")
    tokens[0, 1:, :2] = [[1.0, 3.0], [2.0, -5.0]]
    gradients[0, 1:, :2] = [[2.0, 4.0], [0.0, -2.0]]  # mean over patches: 1 and 1
    tokens[0, 0], gradients[0, 0] = 99.0, 99.0  # of the class token, which is no place
    seen = Activations((1, 2), np.zeros((1, 11)), [tokens] * 2, [], token_gradients=gradients)
    assert maps_of(extractor, seen, "grad_cam").tolist() == [[[4.0, 0.0]]]


@pytest.mark.parametrize(
    ("method", "depends"),
    [
        pytest.param(method, depends, marks=() if method == "grad_cam" else pytest.mark.slow)
        for method, depends in zip(METHODS, (False, False, True, True), strict=True)
    ],
)
def test_maps_of_a_class_differ_from_those_of_another(method: str, depends: bool) -> None:
    extractor = FeatureExtractor(tiny_model())
    one, other = (relevance_maps(extractor, IMAGES, method, classes=[k, k]) for k in (1, 2))
    assert np.allclose(one, other) != depends


def test_rollout_maps_are_those_of_the_reference(recipe: ModuleType) -> None:
    """vit-explain divides by the highest value; its grid is read row by row."""
    attention, _ = attention_of("official_token", recipe)
    extractor = FeatureExtractor(tiny_model())
    seen = Activations((4, 4), np.zeros((2, 11)), [], attention)
    found = maps_of(extractor, seen, "rollout")
    found = found / found.max(axis=(1, 2), keepdims=True)
    # Measured: 1.4e-7.
    expected = expected_of("official_token_vit_explain_mean_0.0", recipe)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_relevance_maps_by_an_unknown_method() -> None:
    with pytest.raises(ValueError, match=r"`method` must be one of .*Did you mean 'rollout'"):
        relevance_maps(tiny_model(), IMAGES, "rolout")


@pytest.mark.parametrize("method", ["grad_cam", "gradient_rollout"])
def test_maps_of_a_class_need_gradients(method: str) -> None:
    extractor = FeatureExtractor(tiny_model())
    with pytest.raises(
        ValueError, match="`activations` must contain gradients to compute maps of a class,"
    ):
        maps_of(extractor, extractor.activations(IMAGES), method)
    with pytest.raises(ValueError, match="`method` must be one of"):
        maps_of(extractor, extractor.activations(IMAGES), "smoothgrad")


def test_relevance_of_a_model_without_a_classifier() -> None:
    model = tiny_model(classes=0)
    assert relevance_maps(model, IMAGES, "rollout").shape == (2, 5, 7)
    assert relevance_maps(model, IMAGES, "grad_cam").shape == (2, 5, 7)  # of its strongest output
    tokens = tiny_model(classes=0, pooling="none")
    assert relevance_maps(tokens, IMAGES, "attention").shape == (2, 5, 7)
    with pytest.raises(ValueError, match="`model` must return one score for each class"):
        relevance_maps(tokens, IMAGES, "grad_cam")


@pytest.mark.slow
def test_relevance_of_a_loaded_model_is_the_same(tmp_path: Any) -> None:
    model = tiny_model()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(relevance_maps(loaded, IMAGES), relevance_maps(model, IMAGES))
