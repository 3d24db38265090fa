from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.masked_patches.objective import MaskedPatchesObjective
from keras_vit.training.distribution import Devices, devices
from tests.helpers import assert_close, numpy, randomise
from tests.tasks.masked import (
    PATCHES,
    PREFIX,
    WIDTH,
    H,
    W,
    colors,
    images,
    network,
    random_network,
    updates,
)

ON_JAX = keras.backend.backend() == "jax"


def noise(which: list[int], how: dict[int, float], other: float = 0.0) -> np.ndarray:
    """Noise of one image that corrupts these patches in these ways."""
    found = np.zeros((3, 1, PATCHES), "float32")
    found[0] = 0.5
    found[0, 0, which] = 0.1
    found[1, 0, list(how)] = list(how.values())
    found[2] = other
    return found


@pytest.fixture(scope="module")
def two() -> Devices:
    """Two logical CPUs that share a batch."""
    return devices("jax" if ON_JAX else "mirrored")


def test_embeddings_are_masked_swapped_or_kept() -> None:
    objective = MaskedPatchesObjective(network(), mask_ratio=0.4)  # six of 15
    embeddings = np.random.default_rng(3).normal(size=(1, PATCHES, WIDTH)).astype("float32")
    chosen = [1, 4, 5, 8, 11, 14]
    how = {1: 0.0, 4: 0.79, 5: 0.81, 8: 0.89, 11: 0.91, 14: 0.99, 0: 0.85, 2: 0.5}
    # floor(0.5 * 14) = 7: eight places further on.
    found, corrupted = (numpy(t) for t in objective.corrupt(embeddings, noise(chosen, how, 0.5)))
    assert np.flatnonzero(corrupted[0]).tolist() == chosen
    mask = numpy(objective.mask_embedding)
    expected = embeddings[0].copy()
    expected[[1, 4]] = mask
    expected[5], expected[8] = embeddings[0, 13], embeddings[0, 1]
    np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize(("draw", "taken"), [(0.0, 6), (1 - 2**-24, 4), (0.71, 0)])
def test_another_patch_is_never_the_same_one(draw: float, taken: int) -> None:
    objective = MaskedPatchesObjective(network(), mask_ratio=0.07)  # one of 15
    embeddings = np.eye(PATCHES, WIDTH, dtype="float32")[None]
    found, _ = objective.corrupt(embeddings, noise([5], {5: 0.85}, draw))
    assert numpy(found)[0, 5].argmax() == taken


def test_corruption_has_the_paper_s_shares() -> None:
    objective = MaskedPatchesObjective(network(), seed=3)
    drawn = numpy(objective.noise(2000, objective.seed_generator))
    embeddings = np.eye(PATCHES, WIDTH, dtype="float32")[None].repeat(2000, axis=0)
    found, corrupted = (numpy(t) for t in objective.corrupt(embeddings, drawn))
    assert (corrupted.sum(axis=1) == 8).all()  # round(7.5)
    masked = np.all(found == numpy(objective.mask_embedding), axis=-1)
    kept = np.all(found == embeddings, axis=-1)
    assert kept[corrupted == 0].all()
    shares = [part[corrupted == 1].mean() for part in (masked, ~masked & ~kept, kept)]
    # Of 16,000; the standard deviations are 0.003 and 0.002.
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.012)
    # Every patch is corrupted equally often; the standard deviation is 0.011.
    np.testing.assert_allclose(corrupted.mean(axis=0), 8 / 15, atol=0.05)


def test_colors_by_hand() -> None:
    objective = MaskedPatchesObjective(network())
    pixels = np.zeros((1, H, W, 3), "float32")
    pixels[0, :4, :2] = (32, 64, 255)  # patch 0: 1, 2, 7
    pixels[0, 4:8, 4:6] = (31.9, 96, 127)  # patch 7: 0, 3, 3
    pixels[0, 8:, 8:, 0] = [[0, 128]] * 4  # patch 14: a mean of 64
    pixels[0, :4, 2:4] = (300, -20, 0)  # patch 1, outside: cut off
    found = numpy(objective.mean_colors(Preprocessing().scale(pixels)))
    assert found.shape == (1, PATCHES)
    expected = np.zeros(PATCHES)
    expected[[0, 7, 14, 1]] = 64 + 2 * 8 + 7, 3 * 8 + 3, 2 * 64, 7 * 64
    np.testing.assert_array_equal(found[0], expected)


def test_every_level_begins_at_its_pixel() -> None:
    objective = MaskedPatchesObjective(network(channels=1))
    values = np.arange(256)
    pixels = np.broadcast_to(values[:, None, None, None], (256, H, W, 1)).astype("float32")
    found = numpy(objective.mean_colors(objective.encoder.preprocessing.scale(pixels)))
    np.testing.assert_array_equal(found, np.repeat(values[:, None] // 32, PATCHES, axis=1))
    assert objective.color_classifier.units == 8


def test_new_predictor_knows_nothing() -> None:
    objective = MaskedPatchesObjective(random_network())
    losses, _ = objective.example_losses(ops.convert_to_tensor(images(3)), None, training=True)
    np.testing.assert_allclose(numpy(losses), [np.log(512)] * 3, rtol=1e-6)


def test_loss_and_accuracy_count_only_corrupted_patches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objective = MaskedPatchesObjective(network(), mask_ratio=0.2)  # three of 15
    black = Preprocessing().scale(np.zeros((1, H, W, 3), "float32"))  # class 0
    logits = np.zeros((1, PATCHES, 512), "float32")
    logits[0, 4, 0] = np.log(511.0)  # probability 1 / 2
    logits[0, 5, 1] = 50.0  # wrong
    logits[0, 6, 1] = 1e4  # wrong, but not corrupted
    corrupted = np.zeros((1, PATCHES), "float32")
    corrupted[0, [4, 5, 9]] = 1
    answer = ops.convert_to_tensor(logits), ops.convert_to_tensor(corrupted)
    monkeypatch.setattr(objective, "predict_colors", lambda *_: answer)
    losses, right = objective.example_losses(ops.convert_to_tensor(black), None, training=False)
    np.testing.assert_allclose(numpy(losses), [(np.log(2) + 50 + np.log(512)) / 3], rtol=1e-6)
    # Patch 9 answers 0, the first of equal ones.
    np.testing.assert_allclose(numpy(right), [2 / 3], rtol=1e-6)


def test_without_corruption_the_encoder_is_the_whole_model() -> None:
    model, x = random_network(pooling="none"), images(1)
    objective = MaskedPatchesObjective(model)
    randomise(objective.color_classifier)
    kept = np.zeros((3, 1, PATCHES), "float32")
    kept[1] = 0.95  # all that is chosen stays
    found, _ = objective.predict_colors(x, kept, training=False)
    expected = objective.color_classifier(model(x)[:, PREFIX:])
    assert_close(found, expected, 2e-5)  # 4e-6 was seen


def test_masked_patch_is_not_seen() -> None:
    objective, x = MaskedPatchesObjective(random_network(), mask_ratio=0.07), images(1)
    randomise(objective.color_classifier)
    hidden, seen = noise([7], {7: 0.1}), noise([7], {7: 0.95})
    changed = x.copy()
    changed[:, 4:8, 4:6] += 2
    for drawn, differs in ((hidden, False), (seen, True)):
        one, other = (
            numpy(objective.predict_colors(image, drawn, training=False)[0])
            for image in (x, changed)
        )
        assert (np.abs(one - other).max() > 1e-3) == differs
        assert differs or np.array_equal(one, other)


def test_masks_follow_from_the_state() -> None:
    objective = MaskedPatchesObjective(network(), seed=5)
    state = [v for v in objective.state if "seed_generator_state" in v.path]
    assert len(state) == 1
    before = numpy(state[0]).copy()
    first, second = (numpy(objective.noise(4, objective.seed_generator)) for _ in range(2))
    assert len({tuple(row) for row in np.concatenate([first, second], axis=1)[0]}) == 8
    state[0].assign(before)
    np.testing.assert_array_equal(numpy(objective.noise(4, objective.seed_generator)), first)


@pytest.mark.slow
def test_loss_falls_and_everything_learns() -> None:
    history, objective = updates(
        MaskedPatchesObjective, x=colors(12 * 20), epochs=2, learning_rate=0.01, validates=True
    )
    assert history["loss"][0] > 3
    assert history["loss"][1] < 1.9  # 1.3 was seen; log(8) = 2.1 by guessing the eight colors
    assert history["val_loss"][1] < 1.3
    assert history["val_color_accuracy"][1] > 0.6  # 1 was seen
    keras.utils.set_random_seed(7)
    untrained = MaskedPatchesObjective(network(num_layers=1))
    pairs = zip(objective.trainable_variables, untrained.trainable_variables, strict=True)
    for variable, old in pairs:
        assert np.any(numpy(variable) != numpy(old)), variable.path


@pytest.mark.slow  # for its tracing; the mean of two replicas is `TrainingModel`'s, see its tests
def test_two_replicas_agree_with_one_device_in_the_mean(two: Devices) -> None:
    def make(model: keras.Model) -> MaskedPatchesObjective:
        objective = MaskedPatchesObjective(model)
        kernel = np.random.default_rng(3).normal(size=(WIDTH, 512))
        objective.color_classifier.set_weights([kernel, np.zeros(512)])  # for a loss to compare
        return objective

    reports = [updates(make, where, x=images(12 * 10))[0] for where in (None, two)]
    means = [report["loss"][0] for report in reports]
    if not ON_JAX:  # where the masks of a batch are drawn at once, wherever they are used
        assert means[0] != means[1]
    # 120 losses with a standard deviation of about 1.
    assert means[0] == pytest.approx(means[1], abs=0.4)
    assert reports[0].keys() == {"loss", "color_accuracy", "gradient_norm"}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_predicts_in_float32(policy: str) -> None:
    objective = MaskedPatchesObjective(network(policy))
    logits, _ = objective.predict_colors(images(2), numpy(objective.noise(2, 3)), training=True)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    losses, _ = objective.example_losses(ops.convert_to_tensor(images(2)), None, training=True)
    np.testing.assert_allclose(numpy(losses), [np.log(512)] * 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask_ratio": 1.0}, r"`mask_ratio` must be a number in \[0, 1\)"),
        ({"mask_ratio": 0.03}, "must mask at least one patch..*mask_ratio=0.03, 15 patches"),
    ],
)
def test_arguments_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskedPatchesObjective(network(), **settings)
