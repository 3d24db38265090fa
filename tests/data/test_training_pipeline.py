"""N = 11 images in batches of 3: three steps an epoch, two images wait."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import Augmentation, Examples, steps_per_epoch, training_dataset
from keras_vit.data.target_kinds import NUMBERS
from keras_vit.preprocessing import Preprocessing

PREPROCESSING = Preprocessing(size=(5, 7), channels="bgr")
PLAIN = Augmentation()
GRAYSCALE = Preprocessing(channels="grayscale")
# Needs 7 pixels, an even batch and three channels.
EVERYTHING = Augmentation(
    crop_area=(0.3, 0.9),
    rand_augment_ops=1,
    rand_augment_std=0.5,
    rand_augment_increasing=True,
    three_augment=True,
    color_jitter=0.3,
    erasing=0.5,
    mixup=0.3,
    cutmix=1.0,
    mixing_probability=0.8,
    repeats=2,
)
LARGER = Preprocessing(size=(8, 11))
Noise = Callable[..., Examples]
Batches = list[tuple[np.ndarray, np.ndarray]]


@pytest.fixture(scope="module")
def eleven(noise: Noise) -> Examples:
    return noise(11)


@pytest.fixture(scope="module")
def identified(noise: Noise) -> Examples:
    """Single-colored images of which each shows its index, and is a class of its own."""
    encoded = tuple(
        tf.io.encode_png(tf.fill((5, 7, 3), tf.constant(10 * i, tf.uint8))).numpy()
        for i in range(11)
    )
    return noise(11, targets=np.arange(11), class_names=tuple("abcdefghijk"), encoded=encoded)


def batches(
    examples: Examples,
    augmentation: Augmentation | None = None,
    preprocessing: Preprocessing = PREPROCESSING,
    **options: Any,
) -> Batches:
    defaults = {"batch_size": 3, "epochs": 4, "seed": 5}
    dataset = training_dataset(examples, preprocessing, augmentation, **(defaults | options))
    return list(dataset.as_numpy_iterator())


def assert_equal(first: Batches, second: Batches) -> None:
    for (x1, y1), (x2, y2) in zip(first, second, strict=True):
        np.testing.assert_array_equal(x1, x2)
        np.testing.assert_array_equal(y1, y2)


def order(
    examples: Examples, augmentation: Augmentation | None = None, **options: Any
) -> np.ndarray:
    """Index of each image (epoch, position)."""
    shown = np.concatenate([y.argmax(-1) for _, y in batches(examples, augmentation, **options)])
    return shown.reshape(-1, 9)


def test_training_batches_have_known_number_and_shape(eleven: Examples) -> None:
    dataset = training_dataset(eleven, PREPROCESSING, batch_size=3, epochs=4, initial_epoch=1)
    assert dataset.cardinality() == 9
    assert dataset.element_spec == (
        tf.TensorSpec((3, 5, 7, 3), tf.float32),
        tf.TensorSpec((3, 3), tf.float32),
    )
    assert len(list(dataset)) == 9
    assert steps_per_epoch(eleven, 3) == 3


@pytest.fixture(scope="module")
def four_epochs(eleven: Examples) -> Batches:
    return batches(eleven)


def test_epoch_entered_directly_is_the_same_to_the_bit(
    eleven: Examples, four_epochs: Batches
) -> None:
    assert_equal(four_epochs[6:], batches(eleven, initial_epoch=2))


def test_run_repeats_to_the_bit(eleven: Examples, four_epochs: Batches) -> None:
    assert_equal(four_epochs, batches(eleven))


def test_later_end_leaves_earlier_epochs_alone(eleven: Examples, four_epochs: Batches) -> None:
    assert_equal(batches(eleven, epochs=2), four_epochs[:6])


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_every_image_waits_equally_often(identified: Examples) -> None:
    shown = order(identified, epochs=300)
    counts = np.bincount(shown.ravel(), minlength=11)
    # 300 * 9 / 11 = 245.5, standard deviation 6.7
    assert np.abs(counts - 245.5).max() < 4 * 6.7
    first = np.bincount(shown[:, 0], minlength=11)  # 27.3, standard deviation 5.0
    assert np.abs(first - 27.3).max() < 4 * 5.0


@pytest.mark.slow
@pytest.mark.parametrize(("flip", "flip_safe"), [(True, False), (False, True)])
def test_unsafe_or_unwanted_flip_is_not_done(noise: Noise, flip: bool, flip_safe: bool) -> None:
    gradient = np.repeat(np.arange(0, 210, 30, dtype="uint8")[None, :, None], 5, axis=0)
    examples = noise(3, encoded=(tf.io.encode_png(gradient).numpy(),) * 3, flip_safe=flip_safe)
    shown = batches(examples, Augmentation(flip=flip), epochs=9)
    assert all((np.diff(x[:, 2, :, 0]) >= 0).all() for x, _ in shown)
    flipped = noise(3, encoded=examples.encoded)
    assert not all((np.diff(x[:, 2, :, 0]) >= 0).all() for x, _ in batches(flipped, epochs=9))


@pytest.mark.slow
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
        ({"initial_epoch": -1}, r"`initial_epoch` must be in \[0, epochs\).*initial_epoch=-1"),
        ({"initial_step": 3}, r"`initial_step` must be in \[0, steps_per_epoch\).*=3, 3 steps in"),
        ({"initial_step": -1}, r"`initial_step` must be in \[0, steps_per_epoch\).*_step=-1"),
        ({"seed": -1}, r"`seed` must be in \[0, 2\*\*63\). Received: seed=-1"),
        ({"shard": (2, 2)}, r"`shard` must be \(index, workers\).*Received: shard=\(2, 2\)"),
        ({"shard": (-1, 3)}, r"`shard` must be .* 0 <= index < workers. Received: shard=\(-1, 3\)"),
        ({"shard": (0, 2)}, r"`batch_size` must be a multiple .*batch_size=3, shard=\(0, 2\)"),
        ({"augmentation": Augmentation(mixup=0.2)}, "`batch_size` must be even .*size=3, shard"),
        (
            {"augmentation": Augmentation(cutmix=1), "batch_size": 6, "shard": (0, 2)},
            r"`batch_size` must be even .*Received: batch_size=6, shard=\(0, 2\)",
        ),
        (
            {"augmentation": Augmentation(three_augment=True)},
            r"`preprocessing` must have a size of at least 7 pixels for the blur .*size=\(5, 7\)",
        ),
        (
            {"augmentation": Augmentation(repeats=2), "balanced": True},
            r"`balanced` must be False unless every image has one class .*repeats=2",
        ),
        *(
            (
                {"augmentation": Augmentation(**changes), "preprocessing": GRAYSCALE},
                "`preprocessing` must have three channels for .* Received: channels='grayscale'",
            )
            for changes in ({"rand_augment_ops": 1}, {"three_augment": True}, {"color_jitter": 0.1})
        ),
    ],
)
def test_training_dataset_rejects(eleven: Examples, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batches(eleven, **options)


@pytest.fixture(scope="module")
def fourteen() -> Examples:
    """Images that are larger than the model's; in batches of 4 three steps an epoch."""
    rng = np.random.default_rng(7)
    encoded = tuple(
        tf.io.encode_png(rng.integers(0, 256, (23 + i, 31 - i, 3), "uint8")).numpy()
        for i in range(14)
    )
    names, labels = tuple(map(str, range(14))), np.arange(14) % 3
    return Examples(names, labels, ("a", "b", "c"), source="noise", encoded=encoded)


@pytest.fixture(scope="module")
def everything(fourteen: Examples) -> Batches:
    """Two epochs with every kind of augmentation on."""
    return batches(fourteen, EVERYTHING, LARGER, batch_size=4, epochs=2)


def test_every_kind_of_augmentation_makes_images_and_labels(everything: Batches) -> None:
    assert len(everything) == 6
    for x, y in everything:
        assert (x.shape, y.shape) == ((4, 8, 11, 3), (4, 3))
        assert np.isfinite(x).all()
        np.testing.assert_allclose(y.sum(axis=1), 1, atol=1e-6)  # measured 6e-8
    assert len({image.tobytes() for x, _ in everything for image in x}) == 24


@pytest.mark.parametrize(
    ("epoch", "step"),
    [
        pytest.param(0, 2, marks=pytest.mark.slow),
        pytest.param(1, 0, marks=pytest.mark.slow),
        (1, 1),
    ],
)
def test_step_entered_directly_is_the_same_to_the_bit(
    fourteen: Examples, everything: Batches, epoch: int, step: int
) -> None:
    options = {"batch_size": 4, "epochs": 2, "initial_epoch": epoch, "initial_step": step}
    dataset = training_dataset(fourteen, LARGER, EVERYTHING, seed=5, **options)
    assert len(dataset) == 6 - 3 * epoch - step
    assert_equal(list(dataset.as_numpy_iterator()), everything[3 * epoch + step :])


@pytest.mark.parametrize(
    "start", [pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow), 8]
)
def test_plain_step_entered_directly_is_the_same_to_the_bit(fourteen: Examples, start: int) -> None:
    options = {"batch_size": 4, "epochs": 3}
    whole = batches(fourteen, **options)
    epoch, step = divmod(start, 3)
    rest = batches(fourteen, initial_epoch=epoch, initial_step=step, **options)
    assert_equal(rest, whole[start:])


@pytest.mark.slow
def test_step_with_layers_that_draw_nothing_is_the_same_to_the_bit(fourteen: Examples) -> None:
    layer = keras.layers.RandomBrightness((-0.3, -0.3))
    augmentation = Augmentation(erasing=0.5, mixup=0.4, layers=(layer,))
    options = {"batch_size": 4, "epochs": 2}
    whole = batches(fourteen, augmentation, LARGER, **options)
    rest = batches(fourteen, augmentation, LARGER, initial_epoch=1, initial_step=1, **options)
    assert_equal(rest, whole[4:])
    without = dataclasses.replace(augmentation, layers=())
    assert (batches(fourteen, without, LARGER, **options)[0][0] != whole[0][0]).any()


def joined(parts: list[Batches]) -> Batches:
    return [
        (np.concatenate([x for x, _ in shares]), np.concatenate([y for _, y in shares]))
        for shares in zip(*parts, strict=True)
    ]


def test_shards_make_up_the_batches_of_one_worker(fourteen: Examples, everything: Batches) -> None:
    options = {"batch_size": 4, "epochs": 2, "initial_step": 1}
    parts = [
        batches(fourteen, EVERYTHING, LARGER, shard=(index, 2), **options) for index in range(2)
    ]
    assert parts[0][0][0].shape == (2, 8, 11, 3)
    assert_equal(joined(parts), everything[1:])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_plain_shards_make_up_the_batches_of_one_worker(eleven: Examples, workers: int) -> None:
    options = {"batch_size": 6, "epochs": 3}
    shards = [(index, workers) for index in range(workers)]
    parts = [batches(eleven, shard=shard, **options) for shard in shards]
    assert_equal(joined(parts), batches(eleven, **options))
    dataset = training_dataset(eleven, PREPROCESSING, shard=shards[-1], **options)
    assert len(dataset) == 3
    assert dataset.element_spec[0].shape == (6 // workers, 5, 7, 3)


@pytest.mark.slow
def test_repeated_images_fill_an_epoch_of_the_same_length(identified: Examples) -> None:
    shown = order(identified, Augmentation(repeats=3), epochs=200)
    for epoch in shown:
        counts = np.bincount(epoch, minlength=11)
        # Three images three times and one twice make 11, of which nine are seen.
        assert counts.max() <= 3
        assert 3 <= np.count_nonzero(counts) <= 4
    assert len({tuple(epoch) for epoch in shown}) == 200
    counts = np.bincount(shown.ravel(), minlength=11)
    # 200 x 9 / 11 = 163.6; the images of an epoch come together, so the deviation is 18.
    assert np.abs(counts - 163.6).max() < 4 * 18
    # Repetitions are spread over the epoch: not all in one batch.
    together = [len(set(batch)) == 1 for epoch in shown for batch in epoch.reshape(3, 3)]
    assert 0 < np.mean(together) < 0.2


def test_targets_without_a_class_cannot_be_balanced(noise: Noise) -> None:
    numbers = noise(11, targets=np.zeros((11, 3)), target_kind=NUMBERS)
    several = noise(11, targets=np.eye(3)[np.arange(11) % 3])
    for examples in (numbers, several):
        with pytest.raises(ValueError, match="`balanced` must be False unless every image has one"):
            batches(examples, PLAIN, balanced=True)


@pytest.mark.slow
def test_balanced_classes_are_shown_equally_often(noise: Noise) -> None:
    labels = np.array([0] * 7 + [1, 3, 3, 1])  # and a class without images
    unequal = noise(11, targets=labels, class_names=tuple("abcd"))
    shown = order(unequal, balanced=True)
    counts = np.stack([np.bincount(epoch, minlength=4) for epoch in shown])
    assert counts[:, 2].tolist() == [0] * 4
    assert (counts.sum(axis=1) == 9).all()
    assert counts[:, [0, 1, 3]].max() <= 4  # of 11 images; nine are shown
    assert len({tuple(epoch) for epoch in shown}) == 4
    assert_equal(
        batches(unequal, balanced=True)[5:],
        batches(unequal, balanced=True, initial_epoch=1, initial_step=2),
    )


@pytest.mark.slow
def test_balanced_copies_of_an_image_are_changed_differently(noise: Noise) -> None:
    one = noise(9, targets=np.array([0] * 8 + [1]), class_names=("many", "one"))
    ((x, y),) = batches(one, batch_size=9, epochs=1, balanced=True)
    rare = [image.tobytes() for image, label in zip(x, y, strict=True) if label[1]]
    assert len(rare) == len(set(rare)) == 4


@pytest.mark.slow
def test_repeated_images_are_changed_differently(noise: Noise, save: Callable[..., bytes]) -> None:
    same = noise(8, encoded=(save(1, (91, 73)),) * 8)
    ((x, _),) = batches(same, Augmentation(repeats=4), batch_size=8, epochs=1)
    assert len({image.tobytes() for image in x}) == 8


@pytest.mark.slow
def test_erasing_replaces_a_part_after_scaling(fourteen: Examples) -> None:
    options = {"batch_size": 7, "epochs": 2}
    plain = batches(fourteen, PLAIN, LARGER, **options)
    erased = batches(fourteen, Augmentation(erasing=1.0), LARGER, **options)
    for (x, y), (before, labels) in zip(erased, plain, strict=True):
        np.testing.assert_array_equal(y, labels)
        changed = (x != before).any(axis=-1).mean(axis=(1, 2))
        assert (changed > 0).all()
        assert (changed < 0.6).all()
    noise = np.concatenate(
        [x[x != before] for (x, _), (before, _) in zip(erased, plain, strict=True)]
    )
    assert np.abs(noise).max() > 2  # pixels are scaled to [-1, 1], noise is not
    assert len(np.unique(noise)) > 0.9 * len(noise)  # no image has the noise of another


@pytest.mark.slow
def test_neighbors_of_a_batch_are_mixed(identified: Examples) -> None:
    options = {"batch_size": 4, "epochs": 3}
    plain = batches(identified, PLAIN, **options)
    mixed = batches(identified, Augmentation(mixup=2.0), **options)
    for (x, y), (before, labels) in zip(mixed, plain, strict=True):
        share = (y * labels).sum(axis=1)
        np.testing.assert_allclose(
            y, share[:, None] * labels + (1 - share[:, None]) * labels[[1, 0, 3, 2]], atol=1e-6
        )
        share = share[:, None, None, None]
        np.testing.assert_allclose(
            x, share * before + (1 - share) * before[[1, 0, 3, 2]], atol=1e-5
        )  # measured 2e-7
    assert len({float(s) for _, y in mixed for s in y.max(axis=1)}) > 12


def test_default_augmentation_is_a_crop_and_a_flip(eleven: Examples, four_epochs: Batches) -> None:
    assert_equal(four_epochs, batches(eleven, PLAIN))
    assert (four_epochs[0][0] != batches(eleven, Augmentation(flip=False))[0][0]).any()
