from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import Augmentation, Examples, audit, evaluation_dataset, training_dataset
from keras_vit.data.geometry import Geometry, cut_mask
from keras_vit.data.splits import read_split, split, write_split
from keras_vit.data.target_kinds import CLASSES, MULTI_LABEL, NO_TARGETS, NUMBERS, TargetKind
from keras_vit.preprocessing import Preprocessing

pytestmark = pytest.mark.tensorflow

PREPROCESSING = Preprocessing(size=(16, 24), mean=0.0, std=1.0, interpolation="nearest")


class _Masks(TargetKind):
    """A mask for each image, of the image's size."""

    dense = True

    def reader(self, examples: Examples) -> Callable[[tf.Tensor], tf.Tensor]:
        masks = tf.ragged.stack([tf.constant(mask) for mask in examples.targets])
        return lambda index: masks[index].to_tensor()

    def follow(self, target: Any, geometry: Geometry, size: tuple[int, int]) -> Any:
        return cut_mask(target, geometry, size, outside=2)

    def problem(self, examples: Examples, index: int, sides: tuple[int, int]) -> str | None:
        shape = examples.targets[index].shape
        return f"mask of {shape}, not {sides}" if shape != sides else None


@pytest.fixture(scope="module")
def masked() -> Examples:
    """Images of noise that are bright where their mask is 1."""
    rng = np.random.default_rng(0)
    masks = np.empty(12, object)
    encoded = []
    for i in range(12):
        coarse = rng.integers(0, 2, (5, 7)).repeat(9, axis=0).repeat(9 + i, axis=1)
        masks[i] = coarse.astype(np.uint8)
        pixels = np.repeat((200 * coarse + 20)[..., None], 3, axis=-1).astype(np.uint8)
        encoded.append(tf.io.encode_png(pixels).numpy())
    return Examples(
        names=tuple(f"{i:02d}.png" for i in range(12)),
        targets=masks,
        class_names=("dark", "bright"),
        source="memory",
        encoded=tuple(encoded),
        target_kind=_Masks(),
    )


def shows(images: tf.Tensor, masks: tf.Tensor) -> np.ndarray:
    """Whether each image is bright where its mask is 1."""
    bright = images.numpy()[..., 0] > 0.5
    return (bright == (masks.numpy() == 1)).mean(axis=(1, 2)) > 0.97


def test_dense_targets_follow_their_images(masked: Examples) -> None:
    for images, masks in evaluation_dataset(masked, PREPROCESSING, batch_size=4):
        assert masks.shape == (4, 16, 24)
        assert shows(images, masks).all()
    seen = set()
    for images, masks in training_dataset(masked, PREPROCESSING, batch_size=4, epochs=3):
        assert shows(images, masks).all()
        seen |= {mask.numpy().tobytes() for mask in masks}
    assert len(seen) == 36  # each is cut anew


@pytest.mark.parametrize(
    "change",
    [{"mixup": 0.2}, {"cutmix": 1.0}, {"rand_augment_ops": 2}, {"erasing": 0.2}],
)
def test_augmentation_that_a_target_cannot_follow_is_named(
    masked: Examples, change: dict[str, float]
) -> None:
    (name,) = change
    with pytest.raises(ValueError, match=f"targets are _masks, as .*Received: {name} "):
        training_dataset(masked, PREPROCESSING, Augmentation(**change), batch_size=4, epochs=1)


def test_target_that_does_not_fit_its_image_is_a_problem_of_the_image(masked: Examples) -> None:
    targets = masked.targets.copy()
    targets[3] = targets[3][:-1]
    found = audit(dataclasses.replace(masked, targets=targets), progress=False)
    assert found.bad == (("03.png", "mask of (44, 84), not (45, 84)"),)


def test_targets_without_classes_are_split_and_compared(masked: Examples, tmp_path: Any) -> None:
    digests = audit(masked, progress=False).digests
    train, validation = split(masked, digests, validation_fraction=0.25)
    assert (len(train), len(validation)) == (9, 3)
    assert sorted([*train, *validation]) == list(range(12))
    write_split(tmp_path / "split.csv", masked, train, validation, digests)
    found = read_split(tmp_path / "split.csv", masked)
    np.testing.assert_array_equal(found[0], train)
    assert masked.class_counts().tolist() == [0, 0]
    assert masked.shown(0) == ()


def test_identical_images_with_other_targets_contradict_each_other(masked: Examples) -> None:
    targets = masked.targets[[0, 0]]
    same = dataclasses.replace(
        masked.subset([0, 1]), encoded=(masked.encoded[0],) * 2, targets=targets.copy()
    )
    assert not audit(same, progress=False).contradictions
    targets[1] = 1 - targets[1]
    other = dataclasses.replace(same, targets=targets)
    assert audit(other, progress=False).contradictions == (("00.png", "01.png"),)


def test_kind_follows_from_the_shape_of_the_targets(masked: Examples) -> None:
    one = dataclasses.replace(masked, targets=np.arange(12) % 2, target_kind=None)
    several = dataclasses.replace(one, targets=np.eye(2, dtype=int)[one.targets])
    assert (one.kind, several.kind) == (CLASSES, MULTI_LABEL)
    assert not one.multi_label
    assert several.multi_label
    unlabeled = dataclasses.replace(one, targets=one.targets * 0, target_kind=NO_TARGETS)
    digests = {name: str(i) for i, name in enumerate(one.names)}
    assert len(split(unlabeled, digests)[1]) == 2  # though all are of one class


def test_numbers_are_finite_and_named(masked: Examples) -> None:
    values = np.arange(24).reshape(12, 2) / 7
    numbers = dataclasses.replace(masked, targets=values, target_kind=NUMBERS)
    assert numbers.targets.dtype == np.float32
    assert numbers.kind.text(numbers, 1) == "0.285714298|0.428571433"
    batch = next(iter(evaluation_dataset(numbers, PREPROCESSING, batch_size=3)))[1]
    np.testing.assert_array_equal(batch, numbers.targets[:3])
    for wrong in (values[:, :1], np.where(values == 0, np.nan, values)):
        with pytest.raises(ValueError, match="`targets` must be finite numbers of shape"):
            dataclasses.replace(numbers, targets=wrong)
    same = dataclasses.replace(numbers, targets=values * [1, 0])
    with pytest.raises(ValueError, match="with the same value of "):
        NUMBERS.check_trainable(same)


def test_numbers_of_a_dataset_are_ordered_as_a_model_predicts_them(masked: Examples) -> None:
    values = np.arange(24).reshape(12, 2) / 7
    names = ("height", "width")
    numbers = dataclasses.replace(masked, targets=values, class_names=names, target_kind=NUMBERS)
    np.testing.assert_array_equal(
        numbers.with_classes(names[::-1]).targets, numbers.targets[:, ::-1]
    )
    assert numbers.with_classes(["width"]).targets.tolist() == numbers.targets[:, 1:].tolist()
    with pytest.raises(ValueError, match=r"a column for each number .* without \['age'\]"):
        numbers.with_classes(["height", "age"])
