from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.linear_model import Ridge
from sklearn.model_selection import StratifiedKFold

from keras_vit import data, models, tasks, training
from keras_vit.runs import history
from keras_vit.tasks.classification.ridge_head import fit_head, fit_ridge
from keras_vit.training import Recipe
from keras_vit.weights.whole_models import load_model
from tests.training.photos import write_colors


def clusters(spread: float, images: int = 60) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(7)
    labels = np.arange(images) % 3
    centers = generator.normal(size=(3, 11)) * np.arange(1, 12)
    return centers[labels] + spread * generator.normal(size=(images, 11)) + 4, labels


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> float:
    return -log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean()


def test_kernel_is_that_of_scikit_learn_up_to_the_scale_of_the_logits() -> None:
    x, labels = clusters(2.0)
    found = fit_ridge(x, labels, 3)
    spread = x.std(axis=0) + 1e-6
    expected = Ridge(alpha=found.strength * len(x)).fit(x / spread, np.eye(3)[labels])
    kernel = expected.coef_.T / spread[:, None]
    scale = found.kernel[0, 0] / kernel[0, 0]
    assert scale > 1
    np.testing.assert_allclose(found.kernel, scale * kernel, rtol=1e-6)  # 1e-9
    np.testing.assert_allclose(found.bias, scale * expected.intercept_, rtol=1e-6)


def test_features_of_no_use_are_regularized_and_get_low_confidence() -> None:
    generator = np.random.default_rng(3)
    labels = np.arange(90) % 3
    useless = fit_ridge(generator.normal(size=(90, 40)), labels, 3)
    useful = fit_ridge(*clusters(0.5), 3)
    assert useless.strength > useful.strength
    assert (useless.accuracy, useful.accuracy) == (pytest.approx(1 / 3, abs=0.15), 1.0)
    assert useless.log_loss == pytest.approx(np.log(3), abs=0.1)
    assert useful.log_loss < 0.1


def test_strength_and_scale_have_the_lowest_loss_of_a_grid() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(480) % 60
    x = generator.normal(size=(60, 384))[labels] * 0.3 + generator.normal(size=(480, 384))
    found = fit_ridge(x, labels, 60)
    scaled, targets = (x - x.mean(axis=0)) / x.std(axis=0), np.eye(60)[labels]
    scales = np.geomspace(1, 1e5, 201)
    losses = {}
    for strength in 10.0 ** np.arange(-3, 2.5, 0.5):
        scores = np.empty((480, 60))
        for fit, rest in StratifiedKFold(5, shuffle=True, random_state=0).split(x, labels):
            ridge = Ridge(alpha=strength * len(fit), fit_intercept=False)
            ridge.fit(scaled[fit], targets[fit] - 1 / 60)
            scores[rest] = ridge.predict(scaled[rest])
        losses[strength] = min(cross_entropy(s * scores, labels) for s in scales)
    best = min(losses, key=losses.__getitem__)
    assert found.strength == pytest.approx(best)
    assert found.log_loss == pytest.approx(losses[best], rel=1e-3)  # 2e-5


def test_scale_of_separable_classes_is_limited() -> None:
    generator = np.random.default_rng(6)
    labels = np.arange(40) % 10
    x, centers = generator.normal(size=(40, 192)), generator.normal(size=(10, 192)) * 0.5
    found = fit_ridge(x + centers[labels], labels, 10)
    others = generator.normal(size=(400, 192)) + centers[np.arange(400) % 10]
    logits = others @ found.kernel + found.bias
    assert cross_entropy(logits, np.arange(400) % 10) < 0.2  # 0.05, and 7.7 without the limit


def test_a_class_of_one_image_and_a_class_without_images_have_weights() -> None:
    x, labels = clusters(0.5)
    found = fit_ridge(x[:59], np.where(np.arange(59) == 5, 3, labels[:59]), 5)
    assert found.kernel.shape == (11, 5)
    assert np.isfinite(found.kernel).all()
    with pytest.raises(ValueError, match=r"A class must have two or more .*: 3 images of 3 clas"):
        fit_ridge(x[:3], labels[:3], 3)


@pytest.mark.tensorflow
def test_run_of_no_epochs_saves_the_fitted_classifier(nano: str, tmp_path: Path) -> None:
    recipe = training.recipe("probe").replace(image_size=(8, 8), precision="float32")
    config = training.RunConfig(str(write_colors(tmp_path / "photos")), nano, recipe=recipe)
    report = training.train(config, tmp_path / "run", tensorboard=False)
    assert report.accuracy > 0.5  # on the features of random weights
    last = load_model(tmp_path / "run" / "last.keras")
    assert models.config_of(last).pooling == "token_gap"
    run = training.Run(tmp_path / "run")
    training_images = run.examples("train")
    found = fit_ridge(models.features(last, training_images), training_images.targets, 2)
    kernel = np.asarray(last.get_layer("head").kernel)
    np.testing.assert_allclose(kernel, found.kernel, atol=1e-4 * np.abs(kernel).max())
    (row,) = history.read_rows(run.history)
    assert row["val_accuracy"] == pytest.approx(report.accuracy)
    again = training.train(config, tmp_path / "run", resume=True, tensorboard=False)
    assert again.accuracy == report.accuracy


@pytest.mark.slow
@pytest.mark.tensorflow
def test_two_heads_share_the_fitted_classifier() -> None:
    digits = data.load("digits").subset(range(60))
    config = models.size("Micro/4").replace(
        **{"num_layers": 1, "hidden_size": 12, "num_heads": 2, "mlp_dim": 17},
        **{"image_size": (8, 8), "classes": 10, "classifier_activation": None},
        **{"distillation_token": True, "distillation_head": True},
    )
    network = models.build(config)
    fit_head(network, digits, seed=0)
    features = models.features(network, digits)
    found = fit_ridge(features, digits.targets, 10)
    images = np.zeros((2, 8, 8, 3), "float32")
    expected = models.features(network, images) @ found.kernel + found.bias
    np.testing.assert_allclose(network.predict(images, verbose=0), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("regression", {"ridge_head": True}, "`ridge_head` must be False with the task regression"),
        ("multi_label", {"ridge_head": True}, "`ridge_head` must be False with the task multi_la"),
        (
            "classification",  # the first step sets the averages
            {"epochs": 0, "ridge_head": True, "ema_momentum": 0.9},
            "`epochs` must be 1 or more, or 0 with .*ema_momentum=0.9",
        ),
        ("classification", {"epochs": 0}, "`epochs` must be 1 or more, or 0 with ridge_head=true"),
        (
            "classification",
            {"ridge_head": True, "loss": "sigmoid"},
            "`loss` must be 'softmax' with ridge_head=true. Received: loss='sigmoid'",
        ),
    ],
)
def test_what_has_no_closed_form_is_refused(
    task: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tasks.get(task)(training.RunConfig("digits", "ViTTi16", recipe=Recipe(**changes)))
