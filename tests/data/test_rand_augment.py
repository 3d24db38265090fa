from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data import augmentation_ops, rand_augment
from keras_vit.data.rand_augment import color_jitter, three_augment

IMAGE = np.random.default_rng(5).integers(0, 256, (13, 17, 3), "uint8")
OPERATIONS = (
    *("autocontrast", "equalize", "rotate", "solarize", "color", "posterize", "contrast"),
    *("brightness", "sharpness", "shear_x", "shear_y", "translate_x", "translate_y"),
)
Calls = list[tuple[str, float | None]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Takes the place of the operations: which were called and how strong they should have been."""
    made: Calls = []

    def recorder(name: str) -> Callable[..., tf.Tensor]:
        def record(image: tf.Tensor, amount: tf.Tensor | None = None) -> tf.Tensor:
            made.append((name, None if amount is None else float(amount)))
            return image

        return record

    for name in (*OPERATIONS, "blur"):
        monkeypatch.setattr(augmentation_ops, name, recorder(name))
    return made


def drawn(calls: Calls, count: int, **options: object) -> dict[str, list[float]]:
    """How strong each operation was in `count` draws of one, rounded."""
    calls.clear()
    options = {"num_ops": 1, "magnitude": 9, **options}
    for i in range(count):
        rand_augment.rand_augment(tf.constant(IMAGE), [7, i], **options)
    return {
        name: sorted({round(amount, 4) for called, amount in calls if called == name and amount})
        for name in OPERATIONS
    }


def test_operations_are_drawn_with_equal_chance(calls: Calls) -> None:
    drawn(calls, 420)
    counts = Counter(name for name, _ in calls)
    counts["nothing"] = 420 - len(calls)
    assert set(counts) == {*OPERATIONS, "nothing"}
    # 30 each, standard deviation 5.3
    assert max(abs(count - 30) for count in counts.values()) < 4 * 5.3


def test_strengths_are_those_of_the_official_code(calls: Calls) -> None:
    assert drawn(calls, 200) == {
        "autocontrast": [],
        "equalize": [],
        "rotate": [-27, 27],
        "solarize": [230],  # 230.4
        "color": [1.72],
        "posterize": [3],  # 3.6
        "contrast": [1.72],
        "brightness": [1.72],
        "sharpness": [1.72],
        "shear_x": [-0.27, 0.27],
        "shear_y": [-0.27, 0.27],
        "translate_x": [-0.405, 0.405],
        "translate_y": [-0.405, 0.405],
    }


def test_increasing_strengths_go_both_ways(calls: Calls) -> None:
    found = drawn(calls, 300, increasing=True)
    assert found["color"] == found["sharpness"] == [0.19, 1.81]
    assert found["contrast"] == found["brightness"] == [0.19, 1.81]
    assert (found["solarize"], found["posterize"]) == ([256 - 230], [4 - 3])
    assert found["rotate"] == [-27, 27]


@pytest.mark.parametrize(
    ("magnitude", "increasing", "solarize", "posterize", "color"),
    [
        (0, False, 0, 0, [0.1]),
        (0, True, 256, 4, [1.0]),
        (2, False, 51, 0, [0.46]),
        (2, True, 205, 4, [0.82, 1.18]),
        (20, False, 256, 8, [3.7]),
        (20, True, 0, 0, [0.1, 2.8]),
    ],
)
def test_strengths_end_where_they_should(
    calls: Calls,
    magnitude: float,
    increasing: bool,
    solarize: int,
    posterize: int,
    color: list[float],
) -> None:
    for sign in (-1.0, 1.0):
        strength = tf.constant(magnitude / 10)
        for branch in rand_augment._branches(tf.constant(IMAGE), strength, sign, increasing):
            branch()
    amounts = {name: {a for called, a in calls if called == name} for name in OPERATIONS}
    assert (amounts["solarize"], amounts["posterize"]) == ({solarize}, {posterize})
    assert sorted(amounts["color"]) == pytest.approx(color, abs=1e-6)


def test_deviation_moves_the_strength_within_its_range(calls: Calls) -> None:
    angles = drawn(calls, 500, magnitude_std=4.0)["rotate"]
    sizes = np.abs(angles) / 3  # back to magnitudes
    assert len(sizes) > 15
    assert sizes.max() == pytest.approx(10)  # 9 + 4 n is above 10 in four of ten draws
    assert 0 <= sizes.min() < 7
    assert min(angles) < 0 < max(angles)


def test_several_operations_follow_one_another(calls: Calls) -> None:
    drawn(calls, 100, num_ops=3)
    # 100 x 3 x 13 / 14, standard deviation 4.5
    assert abs(len(calls) - 278.6) < 4 * 4.5


def test_magnitude_0_leaves_shapes_and_colors_alone() -> None:
    image = tf.constant(IMAGE)
    branches = rand_augment._branches(image, tf.constant(0.0), tf.constant(-1.0), increasing=True)
    assert len(branches) == 14
    same = [bool(tf.reduce_all(branch() == image)) for branch in branches]
    names = ["nothing", *OPERATIONS]
    changing = {name for name, is_same in zip(names, same, strict=True) if not is_same}
    # Noise uses the whole range already, so that autocontrast finds nothing to stretch.
    assert changing <= {"autocontrast", "equalize", "posterize"}
    assert "posterize" in changing


def test_rand_augment_follows_from_its_seed() -> None:
    def changed(i: int) -> bytes:
        image = rand_augment.rand_augment(
            IMAGE, [11, i], num_ops=2, magnitude=7, magnitude_std=0.5, increasing=True
        )
        assert (image.shape, image.dtype) == ((13, 17, 3), tf.uint8)
        return image.numpy().tobytes()

    first = [changed(i) for i in range(40)]
    assert [changed(i) for i in range(40)] == first
    assert len(set(first)) > 35
    assert IMAGE.tobytes() not in first[:3]


@pytest.mark.slow
def test_rand_augment_is_the_same_inside_tf_data() -> None:
    def changed(i: tf.Tensor) -> tf.Tensor:
        image = rand_augment.rand_augment(
            tf.constant(IMAGE), tf.stack([i, 3]), num_ops=2, magnitude=9, increasing=True
        )
        return tf.ensure_shape(image, (13, 17, 3))

    dataset = tf.data.Dataset.range(60).map(changed, tf.data.AUTOTUNE)
    assert dataset.element_spec == tf.TensorSpec((13, 17, 3), tf.uint8)
    for i, mapped in enumerate(dataset.as_numpy_iterator()):
        np.testing.assert_array_equal(mapped, changed(tf.constant(i, tf.int64)))


def test_three_augment_draws_each_with_equal_chance(calls: Calls) -> None:
    for i in range(300):
        three_augment(tf.constant(IMAGE), [3, i])
    counts = Counter(name for name, _ in calls)
    assert set(counts) == {"color", "solarize", "blur"}
    assert max(abs(count - 100) for count in counts.values()) < 4 * 8.2
    amounts = {name: [a for called, a in calls if called == name] for name in counts}
    assert (set(amounts["color"]), set(amounts["solarize"])) == ({0}, {128})
    assert 0.1 <= min(amounts["blur"]) < 0.3
    assert 1.8 < max(amounts["blur"]) <= 2.0


@pytest.mark.slow
def test_three_augment_has_three_outcomes_and_follows_from_its_seed() -> None:
    def changed(i: tf.Tensor) -> tf.Tensor:
        image = three_augment(tf.constant(IMAGE), tf.stack([i, 5]))
        return tf.ensure_shape(image, (13, 17, 3))

    dataset = tf.data.Dataset.range(30).map(changed)
    assert dataset.element_spec == tf.TensorSpec((13, 17, 3), tf.uint8)
    kinds = []
    for i, image in enumerate(dataset.as_numpy_iterator()):
        np.testing.assert_array_equal(image, changed(tf.constant(i, tf.int64)))
        if (image == image[..., :1]).all():
            kinds.append("gray")
        elif (image == np.where(IMAGE < 128, IMAGE, 255 - IMAGE)).all():
            kinds.append("solarized")
        else:
            kinds.append("blurred")
            assert image.astype(float).std() <= IMAGE.astype(float).std()
    assert set(kinds) == {"gray", "solarized", "blurred"}


def test_three_augment_takes_the_smallest_images() -> None:
    side = rand_augment.MIN_SIDE
    small = tf.constant(IMAGE[:side, :side])
    assert all(three_augment(small, [0, i]).shape == (side, side, 3) for i in range(9))
    with pytest.raises(tf.errors.InvalidArgumentError):
        augmentation_ops.blur(small[1:], tf.constant(1.0))


def test_color_jitter_draws_its_factors(calls: Calls) -> None:
    for i in range(200):
        color_jitter(tf.constant(IMAGE), [3, i], strength=0.3)
    names = [name for name, _ in calls]
    assert names == ["brightness", "contrast", "color"] * 200
    factors = np.array([amount for _, amount in calls]).reshape(200, 3)
    assert 0.7 <= factors.min() < 0.72
    assert 1.28 < factors.max() <= 1.3
    assert np.abs(np.corrcoef(factors.T)[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(200)


def test_color_jitter_follows_from_its_seed() -> None:
    first, again, other = (
        color_jitter(tf.constant(IMAGE), seed, strength=0.4).numpy()
        for seed in ([1, 2], [1, 2], [1, 3])
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (first.shape, first.dtype) == ((13, 17, 3), "uint8")
    unchanged = color_jitter(tf.constant(IMAGE), [1, 2], strength=0.0)
    np.testing.assert_array_equal(unchanged, IMAGE)
