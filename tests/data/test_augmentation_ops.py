"""The operations against PIL, whose ways RandAugment was published with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import PIL.Image
import pytest
import scipy.ndimage
import tensorflow as tf
from PIL import ImageEnhance, ImageOps

from keras_vit.data import augmentation_ops

# h x w. The smaller one has so few pixels that equalizing it would go beyond 255.
SHAPES = [(37, 53), (17, 19)]
Operation = Callable[[tf.Tensor], tf.Tensor]


def picture(height: int, width: int) -> np.ndarray:
    """Waves and noise, of which each channel has a range of its own."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / 7), np.cos(y / 5), np.sin((x + y) / 11)], axis=-1)
    noise = np.random.default_rng(3).normal(scale=0.2, size=waves.shape)
    scaled = (waves + noise) * (80, 45, 99) + (120, 101, 140)
    return np.clip(scaled, (13, 0, 7), (231, 190, 255)).astype("uint8")


def applied(operation: Operation, image: np.ndarray) -> np.ndarray:
    """What an operation makes of an image, eagerly and inside `tf.data` the same to the bit."""
    eager = operation(tf.constant(image))
    assert eager.dtype == tf.uint8
    (mapped,) = tf.data.Dataset.from_tensors(image).map(operation).as_numpy_iterator()
    np.testing.assert_array_equal(mapped, eager)
    return mapped


def difference(actual: np.ndarray, expected: PIL.Image.Image) -> int:
    """The largest one, in gray levels."""
    assert actual.shape == np.asarray(expected).shape
    return int(np.abs(actual.astype(int) - np.asarray(expected).astype(int)).max())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", range(9))
def test_posterize_is_that_of_pil(shape: tuple[int, int], bits: int) -> None:
    image = picture(*shape)
    ours = applied(lambda x: augmentation_ops.posterize(x, bits), image)
    # PIL's mask of 0 bits is 0 as well, but it refuses to be asked.
    kept = ImageOps.posterize(PIL.Image.fromarray(image), bits) if bits else image * 0
    assert difference(ours, kept) == 0


@pytest.mark.parametrize("threshold", [0, 1, 97, 255, 256])
def test_solarize_is_that_of_pil(threshold: int) -> None:
    image = picture(*SHAPES[0])
    ours = applied(lambda x: augmentation_ops.solarize(x, threshold), image)
    assert difference(ours, ImageOps.solarize(PIL.Image.fromarray(image), threshold)) == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_equalize_is_that_of_pil(shape: tuple[int, int]) -> None:
    image = picture(*shape)
    ours = applied(augmentation_ops.equalize, image)
    assert difference(ours, ImageOps.equalize(PIL.Image.fromarray(image))) == 0
    assert (ours != image).any()


def test_equalize_leaves_flat_and_tiny_images() -> None:
    flat = np.full((23, 29, 3), (0, 97, 255), "uint8")
    np.testing.assert_array_equal(applied(augmentation_ops.equalize, flat), flat)
    tiny = picture(11, 13)  # fewer than 255 pixels
    np.testing.assert_array_equal(applied(augmentation_ops.equalize, tiny), tiny)
    assert difference(tiny, ImageOps.equalize(PIL.Image.fromarray(tiny))) == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_autocontrast_is_that_of_pil(shape: tuple[int, int]) -> None:
    image = picture(*shape)
    image[..., 1] = 97  # a flat channel stays
    ours = applied(augmentation_ops.autocontrast, image)
    assert ours.min(axis=(0, 1)).tolist() == [0, 97, 0]
    assert ours.max(axis=(0, 1)).tolist() == [255, 97, 255]
    # Measured 0 here and 1 on a sixth of all ramps from one gray to another: PIL multiplies by a
    # rounded factor and cuts, so that 50.999 becomes 50 where it should be 51.
    assert difference(ours, ImageOps.autocontrast(PIL.Image.fromarray(image))) <= 1


def test_autocontrast_is_exact() -> None:
    for span in range(1, 256):
        values = np.arange(span + 1)
        image = np.repeat(values[None, :, None], 3, axis=-1).astype("uint8")
        stretched = augmentation_ops.autocontrast(tf.constant(image)).numpy()[0, :, 0]
        np.testing.assert_array_equal(stretched, values * 255 // span)


FACTORS = [0.0, 0.1, 0.55, 1.37, 1.9]
ENHANCERS = [
    (augmentation_ops.brightness, ImageEnhance.Brightness),
    (augmentation_ops.color, ImageEnhance.Color),
    (augmentation_ops.contrast, ImageEnhance.Contrast),
    (augmentation_ops.sharpness, ImageEnhance.Sharpness),
]


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(("ours", "enhancer"), ENHANCERS)
def test_enhancement_is_that_of_pil(ours: Callable, enhancer: type, factor: float) -> None:
    image = picture(*SHAPES[0])
    changed = applied(lambda x: ours(x, factor), image)
    expected = enhancer(PIL.Image.fromarray(image)).enhance(factor)
    # PIL rounds the degenerate image and cuts the blend, we round once.
    assert difference(changed, expected) <= 1  # measured
    assert (changed != image).any()


@pytest.mark.parametrize(("ours", "enhancer"), ENHANCERS)
def test_enhancement_by_one_changes_nothing(ours: Callable, enhancer: type) -> None:
    image = picture(*SHAPES[0])
    np.testing.assert_array_equal(applied(lambda x: ours(x, 1.0), image), image)


def test_sharpness_leaves_the_outermost_pixels() -> None:
    image = picture(*SHAPES[0])
    changed = applied(lambda x: augmentation_ops.sharpness(x, 0.0), image)
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        np.testing.assert_array_equal(changed[edge], image[edge])
    assert (changed[1:-1, 1:-1] != image[1:-1, 1:-1]).any()


def test_blend_goes_beyond_and_is_cut_off() -> None:
    start, image = tf.constant([[[100, 0, 250]]]), tf.constant([[[110, 100, 240]]], tf.uint8)
    for factor, expected in ((0, [100, 0, 250]), (0.25, [102, 25, 248]), (3, [130, 255, 220])):
        blended = augmentation_ops.blend(start, image, float(factor))
        np.testing.assert_array_equal(blended[0, 0], expected)  # 102.5 goes to the even neighbor
    blended = augmentation_ops.blend([[[200.0] * 3]], image, 12.0)
    np.testing.assert_array_equal(blended[0, 0], [0, 0, 255])


def test_luma_is_that_of_pil() -> None:
    image = picture(*SHAPES[0])
    luma = augmentation_ops.luma(tf.constant(image)).numpy()
    assert luma.shape == (37, 53, 1)
    expected = np.asarray(PIL.Image.fromarray(image).convert("L"), float)
    assert np.abs(luma[..., 0] - expected).max() <= 0.501  # PIL rounds; measured 0.5


Rows = tuple[float, float, float, float, float, float]


def rotation(degrees: float, height: int, width: int) -> Rows:
    """Where pixel (x, y) comes from: turned the other way about the center."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    x, y = (width - 1) / 2, (height - 1) / 2
    return cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y


# On the picture of 37 x 53 pixels.
MOVES = [
    (augmentation_ops.rotate, -27.0, rotation(-27, 37, 53)),
    (augmentation_ops.rotate, 3.0, rotation(3, 37, 53)),
    (augmentation_ops.rotate, 30.0, rotation(30, 37, 53)),
    (augmentation_ops.shear_x, -0.3, (1, -0.3, 0, 0, 1, 0)),
    (augmentation_ops.shear_x, 0.17, (1, 0.17, 0, 0, 1, 0)),
    (augmentation_ops.shear_y, 0.3, (1, 0, 0, 0.3, 1, 0)),
    (augmentation_ops.translate_x, -0.45, (1, 0, -24, 0, 1, 0)),  # 23.85 pixels
    (augmentation_ops.translate_x, 0.1, (1, 0, 5, 0, 1, 0)),  # 5.3 pixels
    (augmentation_ops.translate_y, 0.45, (1, 0, 0, 0, 1, 17)),  # 16.65 pixels
]


@pytest.mark.parametrize(("ours", "amount", "rows"), MOVES)
def test_moves_are_those_of_pil(ours: Callable, amount: float, rows: Rows) -> None:
    image = picture(*SHAPES[0])
    moved = applied(lambda x: ours(x, amount), image)
    source = PIL.Image.fromarray(image)
    if ours is augmentation_ops.rotate:
        expected = source.rotate(amount, PIL.Image.Resampling.BILINEAR)
    else:
        # PIL's coordinates count from the corner of the first pixel, ours from its center.
        a, b, c, d, e, f = rows
        shifted = (a, b, c + (1 - a - b) / 2, d, e, f + (1 - d - e) / 2)
        how = PIL.Image.Transform.AFFINE, shifted, PIL.Image.Resampling.BILINEAR
        expected = source.transform(source.size, *how)

    y, x = np.mgrid[:37, :53]
    from_x = rows[0] * x + rows[1] * y + rows[2]
    from_y = rows[3] * x + rows[4] * y + rows[5]
    inside = (from_x >= 0) & (from_x <= 52) & (from_y >= 0) & (from_y <= 36)
    outside = (from_x <= -1) | (from_x >= 53) | (from_y <= -1) | (from_y >= 37)
    assert inside.sum() > 900
    assert outside.sum() > 10
    largest = np.abs(moved.astype(int) - np.asarray(expected).astype(int))[inside].max()
    assert largest <= 1  # measured
    # PIL fills with any color; in between it repeats the border, where we go over to gray.
    assert (moved[outside] == 128).all()


@pytest.mark.parametrize("ours", [augmentation_ops.rotate, *(move[0] for move in MOVES[3::2])])
def test_no_move_changes_nothing(ours: Callable) -> None:
    image = picture(*SHAPES[0])
    np.testing.assert_array_equal(applied(lambda x: ours(x, 0.0), image), image)


def test_positive_moves_go_where_they_should() -> None:
    row = tf.constant([[[10], [20], [30], [40]]], tf.uint8) * tf.ones((1, 1, 3), tf.uint8)
    column = tf.transpose(row, (1, 0, 2))
    left = augmentation_ops.translate_x(row, 0.5)[0, :, 0].numpy()
    up = augmentation_ops.translate_y(column, 0.25)[:, 0, 0].numpy()
    assert (left.tolist(), up.tolist()) == ([30, 40, 128, 128], [20, 30, 40, 128])
    square = np.zeros((3, 3, 3), "uint8")
    square[1, 2] = 255  # right of the center; a quarter turn counter-clockwise takes it to the top
    turned = augmentation_ops.rotate(square, 90.0).numpy()
    assert np.argwhere(turned[..., 0] > 250).tolist() == [[0, 1]]


@pytest.mark.parametrize("share", [-1.2, 1.0, 1.7])
def test_translation_beyond_the_side_leaves_gray(share: float) -> None:
    image = picture(*SHAPES[1])
    for translate in (augmentation_ops.translate_x, augmentation_ops.translate_y):
        moved = applied(lambda x, move=translate: move(x, share), image)
        np.testing.assert_array_equal(moved, np.full_like(image, 128))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_paste_takes_what_is_in_both_a_row_and_a_column(dtype: str) -> None:
    image = tf.reshape(tf.range(3 * 5 * 2), (3, 5, 2)).numpy().astype(dtype)
    rows, columns = np.array([0, 1, 1], bool), np.array([1, 0, 0, 1, 0], bool)
    pasted = augmentation_ops.paste(
        tf.constant(image), tf.constant(image + 100), rows, columns
    ).numpy()
    assert pasted.dtype == dtype
    expected = image.copy()
    for row, column in ((1, 0), (1, 3), (2, 0), (2, 3)):
        expected[row, column] += 100
    np.testing.assert_array_equal(pasted, expected)


@pytest.mark.parametrize("sigma", [0.1, 0.83, 2.0])
def test_blur_is_a_gaussian(sigma: float) -> None:
    image = picture(*SHAPES[1])
    ours = applied(lambda x: augmentation_ops.blur(x, sigma), image)
    expected = scipy.ndimage.gaussian_filter(
        image.astype(float), (sigma, sigma, 0), mode="mirror", radius=(6, 6, 0)
    )
    assert np.abs(ours - expected).max() <= 0.501  # rounded; measured 0.5
    assert ours.astype(float).std() <= image.astype(float).std()


def test_operations_keep_odd_sizes_and_unknown_ones() -> None:
    """Inside a graph that does not know the size."""
    image = picture(11, 7)
    operations: list[Operation] = [
        augmentation_ops.autocontrast,
        augmentation_ops.equalize,
        lambda x: augmentation_ops.sharpness(x, 0.3),
        lambda x: augmentation_ops.blur(x, 1.3),
        lambda x: augmentation_ops.rotate(x, 11.0),
        lambda x: augmentation_ops.translate_x(x, 0.3),
    ]
    for operation in operations:
        graph = tf.function(operation, input_signature=[tf.TensorSpec((None, None, 3), tf.uint8)])
        np.testing.assert_array_equal(graph(image), operation(tf.constant(image)))
        assert graph(image).shape == (11, 7, 3)
