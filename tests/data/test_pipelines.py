"""N = 11 images in batches of 3: three steps an epoch, two images wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import (
    Examples,
    evaluation_dataset,
    image_dataset,
    load,
    pixels,
    steps_per_epoch,
    training_dataset,
)
from keras_vit.preprocessing import Preprocessing

CONTRACT = Preprocessing(size=(5, 7), channels="bgr")
Noise = Callable[..., Examples]


@pytest.fixture
def eleven(noise: Noise) -> Examples:
    return noise(11)


@pytest.fixture
def identified(noise: Noise) -> Examples:
    """Single-coloured images of which each shows its index, and is a class of its own."""
    encoded = tuple(
        tf.io.encode_png(tf.fill((5, 7, 3), tf.constant(10 * i, tf.uint8))).numpy()
        for i in range(11)
    )
    return noise(11, labels=np.arange(11), class_names=tuple("abcdefghijk"), encoded=encoded)


def batches(examples: Examples, **options: object) -> list[tuple[np.ndarray, np.ndarray]]:
    defaults = {"batch_size": 3, "epochs": 4, "seed": 5}
    dataset = training_dataset(examples, CONTRACT, **(defaults | options))  # type: ignore[arg-type]
    return list(dataset.as_numpy_iterator())


def assert_equal(first: list, second: list) -> None:
    for (x1, y1), (x2, y2) in zip(first, second, strict=True):
        np.testing.assert_array_equal(x1, x2)
        np.testing.assert_array_equal(y1, y2)


def order(examples: Examples, **options: object) -> np.ndarray:
    """Index of each image (epoch, position)."""
    shown = np.concatenate([y.argmax(-1) for _, y in batches(examples, **options)])
    return shown.reshape(-1, 9)


def test_training_batches_have_known_number_and_shape(eleven: Examples) -> None:
    dataset = training_dataset(eleven, CONTRACT, batch_size=3, epochs=4, initial_epoch=1)
    assert dataset.cardinality() == 9
    assert dataset.element_spec == (
        tf.TensorSpec((3, 5, 7, 3), tf.float32),
        tf.TensorSpec((3, 3), tf.float32),
    )
    assert len(list(dataset)) == 9
    assert steps_per_epoch(eleven, 3) == 3


def test_epoch_entered_directly_is_the_same_to_the_bit(eleven: Examples) -> None:
    assert_equal(batches(eleven)[6:], batches(eleven, initial_epoch=2))


def test_run_repeats_to_the_bit(eleven: Examples) -> None:
    assert_equal(batches(eleven), batches(eleven))


def test_later_end_leaves_earlier_epochs_alone(eleven: Examples) -> None:
    assert_equal(batches(eleven, epochs=2), batches(eleven, epochs=5)[:6])


def test_epoch_shows_each_image_once_at_most(identified: Examples) -> None:
    shown = order(identified, epochs=13)
    assert all(len(set(epoch)) == 9 for epoch in shown)
    assert len({tuple(epoch) for epoch in shown}) == 13
    assert set(shown.ravel()) == set(range(11))


def test_images_and_labels_stay_together(identified: Examples) -> None:
    for x, y in batches(identified):
        levels = np.round((x[:, 0, 0, 0] * 0.5 + 0.5) * 255)
        np.testing.assert_array_equal(levels, 10 * y.argmax(-1))
        np.testing.assert_array_equal(y.sum(-1), 1)


def test_other_seed_gives_another_order_and_other_crops(
    identified: Examples, eleven: Examples
) -> None:
    assert (order(identified) != order(identified, seed=6)).any(axis=1).all()
    one = eleven.subset([0])
    first, other = (batches(one, batch_size=1, epochs=1, seed=seed) for seed in (5, 6))
    assert (first[0][0] != other[0][0]).any()


def test_images_and_epochs_are_augmented_differently(
    noise: Noise, save: Callable[..., bytes]
) -> None:
    same = noise(7, encoded=(save(1, (91, 73)),) * 7)
    shown = np.concatenate([x for x, _ in batches(same, batch_size=7)])
    assert len({x.tobytes() for x in shown}) == 28


def test_every_image_waits_equally_often(identified: Examples) -> None:
    shown = order(identified, epochs=300)
    counts = np.bincount(shown.ravel(), minlength=11)
    # 300 * 9 / 11 = 245.5, standard deviation 6.7
    assert np.abs(counts - 245.5).max() < 4 * 6.7
    first = np.bincount(shown[:, 0], minlength=11)  # 27.3, standard deviation 5.0
    assert np.abs(first - 27.3).max() < 4 * 5.0


@pytest.mark.parametrize(("flip", "flip_safe"), [(True, False), (False, True)])
def test_unsafe_or_unwanted_flip_is_not_done(noise: Noise, flip: bool, flip_safe: bool) -> None:
    gradient = np.repeat(np.arange(0, 210, 30, dtype="uint8")[None, :, None], 5, axis=0)
    examples = noise(3, encoded=(tf.io.encode_png(gradient).numpy(),) * 3, flip_safe=flip_safe)
    rising = [
        bool((np.diff(x[:, 2, :, 0]) >= 0).all()) for x, _ in batches(examples, flip=flip, epochs=9)
    ]
    assert all(rising)
    flipped = noise(3, encoded=examples.encoded)
    assert not all((np.diff(x[:, 2, :, 0]) >= 0).all() for x, _ in batches(flipped, epochs=9))


def test_large_seeds_differ(eleven: Examples) -> None:
    small, large = (batches(eleven, seed=seed, epochs=1) for seed in (1, 2**40 + 1))
    assert any((x1 != x2).any() for (x1, _), (x2, _) in zip(small, large, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 12}, "`batch_size` must be at most .*, 11; pass a smaller .*_size=12"),
        ({"batch_size": 0}, "`batch_size` must be a positive integer. Received: batch_size=0"),
        ({"epochs": 0}, "`epochs` must be a positive integer"),
        ({"initial_epoch": 4}, r"`initial_epoch` must be in \[0, epochs\).*=4, epochs=4"),
        ({"seed": -1}, r"`seed` must be in \[0, 2\*\*63\). Received: seed=-1"),
        ({"crop_area": (0.5, 0.1)}, r"`crop_area` must be .*Received: crop_area=\(0.5, 0.1\)"),
        ({"crop_area": (0, 1)}, r"`crop_area` must be an increasing pair in \(0, 1\]"),
    ],
)
def test_training_dataset_rejects(eleven: Examples, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batches(eleven, **options)


def test_evaluation_shows_all_images_as_the_contract_says(eleven: Examples) -> None:
    dataset = evaluation_dataset(eleven, CONTRACT, batch_size=3)
    assert dataset.cardinality() == 4
    x = np.concatenate([x for x, _ in dataset])
    y = np.concatenate([y for _, y in dataset])
    expected = [pixels.prepare(tf.constant(eleven.read(i)), CONTRACT) for i in range(11)]
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(y, np.eye(3)[eleven.labels])


def test_image_dataset_equals_evaluation(eleven: Examples) -> None:
    encoded = [eleven.read(i) for i in range(11)]
    labelled = evaluation_dataset(eleven, CONTRACT, batch_size=4)
    plain = image_dataset(encoded, CONTRACT, batch_size=4)
    assert plain.cardinality() == 3
    for x, (expected, _) in zip(plain, labelled, strict=True):
        np.testing.assert_array_equal(x, expected)
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer"):
        image_dataset(encoded, CONTRACT, batch_size=0)


def test_files_are_read_like_memory(
    tmp_path: Path, write: Callable[..., Path], noise: Noise
) -> None:
    files = load(write(tmp_path, [f"{c}/caf\udce9{i}.png" for c in "ab" for i in range(3)]))
    memory = noise(
        6,
        labels=files.labels,
        class_names=files.class_names,
        encoded=tuple(files.read(i) for i in range(6)),
    )
    assert_equal(batches(files, epochs=2), batches(memory, epochs=2))


def test_digits_are_read_in_their_own_contract() -> None:
    digits = load("digits").subset(range(13))
    contract = Preprocessing(size=8, resize="squash", channels="grayscale")
    ((x, y),) = evaluation_dataset(digits, contract, batch_size=13).as_numpy_iterator()
    assert x.shape == (13, 8, 8, 1)
    assert (x.min(), x.max()) == (-1, 1)
    np.testing.assert_array_equal(y.argmax(-1), digits.labels)
