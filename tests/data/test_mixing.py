"""Image i of B shows the number i in every pixel and is of class i, so that results tell all."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from keras_vit.data.mixing import mix

H, W = 5, 7


def numbered(batch: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Images (B, 5, 7, 3), labels (B, B) and seeds (B, 2)."""
    values = tf.range(batch, dtype=tf.float32)[:, None, None, None]
    seeds = tf.stack([tf.range(batch, dtype=tf.int64), tf.fill((batch,), tf.constant(3, tf.int64))])
    return values * tf.ones((1, H, W, 3)), tf.eye(batch), tf.transpose(seeds)


def mixed(batch: int, **options: float) -> tuple[np.ndarray, np.ndarray]:
    arguments = {"mixup": 0.0, "cutmix": 0.0, **options}
    images, labels = tf.function(lambda *values: mix(*values, **arguments))(*numbered(batch))
    assert (images.shape, labels.shape) == ((batch, H, W, 3), (batch, batch))
    assert (images.dtype, labels.dtype) == (tf.float32, tf.float32)
    return images.numpy(), labels.numpy()


def shares(labels: np.ndarray) -> np.ndarray:
    """How much of itself an example kept, after a check that the rest is its neighbor's."""
    index = np.arange(len(labels))
    own, others = labels[index, index], labels[index, index ^ 1]
    np.testing.assert_allclose(own + others, 1, atol=1e-6)  # measured 6e-8
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-6)
    assert (labels >= 0).all()
    return own


def test_mixup_takes_the_same_shares_of_pixels_and_labels() -> None:
    images, labels = mixed(38, mixup=0.8)
    share, index = shares(labels), np.arange(38)
    expected = share * index + (1 - share) * (index ^ 1)
    np.testing.assert_allclose(
        images, np.broadcast_to(expected[:, None, None, None], images.shape), atol=1e-5
    )  # measured 4e-6, an ulp of 38
    assert len(np.unique(share)) == 38  # each example has a share of its own


def test_cutmix_takes_the_share_that_is_seen() -> None:
    images, labels = mixed(300, cutmix=1.0)
    share = shares(labels)
    for i, image in enumerate(images):
        assert set(np.unique(image)) <= {i, i ^ 1}
        np.testing.assert_array_equal(image, image[..., :1].repeat(3, axis=-1))
        foreign = image[..., 0] == i ^ 1  # (h, w)
        np.testing.assert_allclose(share[i], 1 - foreign.mean(), atol=1e-6)  # measured 6e-8
        # A rectangle: every row that has foreign pixels has the same ones, without a gap.
        rows, columns = foreign.any(axis=1), foreign.any(axis=0)
        np.testing.assert_array_equal(foreign, rows[:, None] & columns)
        assert all(
            np.abs(np.diff(np.pad(side.astype(int), 1))).sum() <= 2 for side in (rows, columns)
        )
    assert len(np.unique(share)) > 10
    assert (share == 1).any()  # a rectangle can be smaller than a pixel


def test_cutmix_rectangles_lie_everywhere() -> None:
    images, _ = mixed(400, cutmix=1.0)
    foreign = images[..., 0] == (np.arange(400) ^ 1)[:, None, None]
    rate = foreign.mean(axis=0)  # (h, w): how often a pixel was replaced
    assert rate.min() > 0.15
    # Rectangles are centered on any pixel alike, so that the middle is covered more often.
    assert rate[2, 3] > rate[0, 0] + 0.05
    np.testing.assert_allclose(rate, rate[::-1], atol=0.15)
    np.testing.assert_allclose(rate, rate[:, ::-1], atol=0.15)


@pytest.mark.parametrize("concentration", [0.2, 0.8, 1.0])
def test_shares_follow_a_beta_distribution(concentration: float) -> None:
    share = shares(mixed(1000, mixup=concentration)[1])
    beta = scipy.stats.beta(concentration, concentration)
    # The largest distance of the distribution functions; one in 1000 lies above.
    assert scipy.stats.kstest(share, beta.cdf).statistic < 1.95 / np.sqrt(1000)
    assert 0 <= share.min() < 0.05
    assert 0.95 < share.max() <= 1


def test_either_is_drawn_with_equal_chance() -> None:
    images, labels = mixed(300, mixup=5.0, cutmix=1.0)
    shares(labels)
    by_mixup = sum(len(np.unique(image)) == 1 and image[0, 0, 0] % 1 != 0 for image in images)
    assert abs(by_mixup - 150) < 4 * 8.7


@pytest.mark.parametrize("probability", [0.0, 0.3])
def test_some_examples_are_left_alone(probability: float) -> None:
    images, labels = mixed(400, mixup=5.0, probability=probability)
    alone = shares(labels) == 1
    np.testing.assert_array_equal(images[alone], numbered(400)[0].numpy()[alone])
    deviation = np.sqrt(400 * probability * (1 - probability))
    assert abs((~alone).sum() - 400 * probability) <= 4 * deviation


def test_pair_can_be_read_alone() -> None:
    options = {"mixup": 0.4, "cutmix": 0.7, "probability": 0.9}
    images, labels, seeds = numbered(14)
    x, y = mix(images, labels, seeds, **options)
    for start in range(0, 14, 2):
        pair = slice(start, start + 2)
        x_pair, y_pair = mix(images[pair], labels[pair], seeds[pair], **options)
        np.testing.assert_array_equal(x_pair, x[pair])
        np.testing.assert_array_equal(y_pair, y[pair])


def test_mixing_follows_from_its_seeds_also_inside_tf_data() -> None:
    options = {"mixup": 0.4, "cutmix": 0.7, "probability": 0.9}
    arguments = numbered(22)
    eager = mix(*arguments, **options)
    dataset = tf.data.Dataset.from_tensors(arguments).map(lambda *a: mix(*a, **options))
    ((x, y),) = dataset.as_numpy_iterator()
    np.testing.assert_array_equal(x, eager[0])
    np.testing.assert_array_equal(y, eager[1])
    other = mix(arguments[0], arguments[1], arguments[2] + 1, **options)
    assert (x != other[0].numpy()).any(axis=(1, 2, 3)).sum() > 11


def test_tiny_concentration_swaps_or_keeps() -> None:
    """Float32 has no room for most of the Gamma variables behind these shares."""
    images, labels = mixed(200, mixup=0.005)
    share = shares(labels)
    assert np.isfinite(images).all()
    assert ((share < 1e-3) | (share > 1 - 1e-3)).mean() > 0.9
    assert abs(share.mean() - 0.5) < 4 * np.sqrt(0.25 / 200)


def test_two_names_of_one_class_stay_one() -> None:
    images, _, seeds = numbered(2)
    labels = tf.constant([[0, 1, 0], [0, 1, 0]], tf.float32)
    np.testing.assert_allclose(mix(images, labels, seeds, mixup=1.0, cutmix=0.0)[1], labels)
