from __future__ import annotations

import keras
import numpy as np
import pytest
from sklearn.covariance import LedoitWolf

from keras_vit import models
from keras_vit.models import cloning
from keras_vit.models import out_of_distribution as ood
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
    return ood.with_scores(model, model.get_layer("head"), *drawn(60), neighbors=True)


def test_score_is_the_distance_to_the_nearest_mean(scored: keras.Model) -> None:
    features, labels = drawn(60)
    means = np.stack([features[labels == k].mean(axis=0) for k in range(3)])
    precision = LedoitWolf(assume_centered=True).fit(features - means[labels]).precision_
    others = np.random.default_rng(3).normal(size=(20, 12)).astype("f") * 5
    differences = others[:, None] - means
    squared = np.einsum("nkd,de,nke->nk", differences, precision, differences)
    expected = np.sqrt(squared.min(axis=1) / 12)
    # Measured: a relative difference of 2e-6.
    np.testing.assert_allclose(ood.score_features(scored, others)["ood_score"], expected, rtol=2e-5)
    assert 0.8 < np.median(ood.score_features(scored, features)["ood_score"]) < 1.2


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_outputs_and_scores_stay_in_copies(scored: keras.Model, dtype: str) -> None:
    images = np.random.default_rng(1).normal(size=(3, 8, 8, 3)).astype("f")
    plain = randomise(models.build(CONFIG))
    plain.set_weights(scored.get_weights()[: len(plain.weights)])
    outputs = np.asarray(scored(images))
    np.testing.assert_array_equal(outputs, np.asarray(plain(images)))
    scores = np.asarray(ood.last_results_of(scored)["ood_score"])
    copy = cloning.with_dtype(scored, dtype)
    copy(images)
    tolerance = 1e-6 if dtype == "float32" else 0.05  # measured: 0 and 0.01
    found = np.asarray(ood.last_results_of(copy)["ood_score"])
    np.testing.assert_allclose(found, scores, rtol=tolerance)
    extractor = models.FeatureExtractor(scored)
    found = extractor.run_outputs(images)["ood_results"]["ood_score"]
    np.testing.assert_allclose(np.asarray(found), scores, rtol=1e-5)
    assert ood.last_results_of(plain) == {}


def test_nearest_images_are_those_of_a_search_by_brute_force(scored: keras.Model) -> None:
    features, _ = drawn(60)
    others = np.random.default_rng(3).normal(size=(20, 12)).astype("f") * 5
    found = ood.score_features(scored, others)
    cosines = np.array(
        [[a @ b / np.sqrt((a @ a) * (b @ b)) for b in features] for a in others.astype(float)]
    )
    expected = np.argsort(-cosines, axis=1)[:, :3]
    np.testing.assert_array_equal(found["nearest"], expected)
    best = np.take_along_axis(cosines, expected, axis=1)
    np.testing.assert_allclose(found["nearest_similarity"], best, atol=1e-6)  # measured: 2e-7


def test_new_classes_have_the_rows_of_a_discriminant_analysis() -> None:
    model, (features, labels) = randomise(models.build(CONFIG)), drawn(60)
    scored = ood.with_scores(model, model.get_layer("head"), features, labels, new_classes=True)
    rows, new = ood.new_classes(scored)
    kernel, bias = model.get_layer("head").get_weights()
    np.testing.assert_array_equal(rows, np.concatenate([kernel, bias[None]]).T)
    means = np.stack([features[labels == k].mean(axis=0) for k in range(3)])
    precision = LedoitWolf(assume_centered=True).fit(features - means[labels]).precision_
    lda = features @ precision @ means.T
    lda -= 0.5 * np.einsum("kd,de,ke->k", means, precision, means)
    lda -= lda.mean(axis=1, keepdims=True)
    logits = features @ kernel[:, :3] + bias[:3]
    logits -= logits.mean(axis=1, keepdims=True)
    scale = np.linalg.lstsq(lda.reshape(-1, 1), logits.ravel(), rcond=None)[0]
    kernels = kernel[:, :3].mean(axis=1) + scale * (means - means.mean(axis=0)) @ precision
    found = np.asarray(new.rows(means.astype("f")))
    # Measured: 2e-5.
    tolerance = 2e-4 * np.abs(kernels).max()
    np.testing.assert_allclose(found[:, :-1], kernels, atol=tolerance)
    # The distance to these classes is that to the trained ones, of the same means.
    results = ood.score_features(scored, features)
    scores = np.min(new.ood_score(features, np.stack([found] * len(features))), axis=1)
    np.testing.assert_allclose(scores, results["ood_score"], rtol=1e-3)  # measured: 1e-5
    # The boundary with the most similar class is in the middle.
    added = means[1] + 0.3 * (features[0] - means[0])
    row = np.asarray(new.rows(added[None].astype("f")))[0]
    similar = np.argmax(rows[:3, :-1] @ added + rows[:3, -1])
    middle = np.append((added + means[similar]) / 2, 1)
    np.testing.assert_allclose(row @ middle, rows[similar] @ middle, rtol=1e-4)  # measured: 3e-6
    assert ood.new_classes(ood.with_scores(model, model.get_layer("head"), *drawn(60))) is None
