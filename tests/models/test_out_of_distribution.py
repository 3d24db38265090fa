from __future__ import annotations

import keras
import numpy as np
import pytest
from sklearn.covariance import LedoitWolf

from keras_vit import models
from keras_vit.models import cloning
from keras_vit.models.out_of_distribution import last_scores, scores_of, with_scores
from tests.helpers import randomise

CONFIG = models.size("Micro/4").replace(
    **{"num_layers": 1, "hidden_size": 12, "num_heads": 2, "mlp_dim": 17},
    **{"image_size": (8, 8), "classes": 4, "classifier_activation": None},
)


def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(7)
    labels = np.arange(count) % 3  # the last of the four classes has no images
    centers = 9 * generator.normal(size=(3, 12))
    mixing = generator.normal(size=(12, 12))
    return (centers[labels] + generator.normal(size=(count, 12)) @ mixing).astype("f"), labels


@pytest.fixture
def scored() -> keras.Model:
    model = randomise(models.build(CONFIG))
    return with_scores(model, model.get_layer("head"), *drawn(60))


def test_score_is_the_distance_to_the_nearest_mean(scored: keras.Model) -> None:
    features, labels = drawn(60)
    means = np.stack([features[labels == k].mean(axis=0) for k in range(3)])
    precision = LedoitWolf(assume_centered=True).fit(features - means[labels]).precision_
    others = np.random.default_rng(3).normal(size=(20, 12)).astype("f") * 5
    differences = others[:, None] - means
    squared = np.einsum("nkd,de,nke->nk", differences, precision, differences)
    expected = np.sqrt(squared.min(axis=1) / 12)
    # Measured: a relative difference of 2e-6.
    np.testing.assert_allclose(scores_of(scored, others), expected, rtol=2e-5)
    assert 0.8 < np.median(scores_of(scored, features)) < 1.2


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_outputs_and_scores_stay_in_copies(scored: keras.Model, dtype: str) -> None:
    images = np.random.default_rng(1).normal(size=(3, 8, 8, 3)).astype("f")
    plain = randomise(models.build(CONFIG))
    plain.set_weights(scored.get_weights()[: len(plain.weights)])
    outputs = np.asarray(scored(images))
    np.testing.assert_array_equal(outputs, np.asarray(plain(images)))
    scores = np.asarray(last_scores(scored)["ood_score"])
    copy = cloning.with_dtype(scored, dtype)
    copy(images)
    tolerance = 1e-6 if dtype == "float32" else 0.05  # measured: 0 and 0.01
    np.testing.assert_allclose(np.asarray(last_scores(copy)["ood_score"]), scores, rtol=tolerance)
    extractor = models.FeatureExtractor(scored)
    found = extractor.run_outputs(images)["ood_score"]
    np.testing.assert_allclose(np.asarray(found), scores, rtol=1e-5)
    assert last_scores(plain) == {}
