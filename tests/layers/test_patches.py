from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_vit.layers import Patches
from tests import reference
from tests.helpers import assert_close, check_layer, normal, numpy

IMAGES = normal(2, 15, 14, 4)  # grid 5 x 7 of patches 3 x 2


def test_patches_contract() -> None:
    check_layer(Patches((3, 2)), IMAGES, output_shape=(2, 5, 7, 24), parameters=0)


def test_patches_of_a_numbered_image() -> None:
    """Row by row, and in a patch row, column, channel; worked by hand."""
    image = np.arange(24, dtype="float32").reshape(
        1, 2, 6, 2
    )  # value = 12 row + 2 column + channel
    patches = numpy(Patches((2, 3))(image))
    assert patches.tolist() == [
        [
            [
                [0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17],
                [6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23],
            ]
        ]
    ]


def test_patches_equal_the_equations() -> None:
    expected = np.stack([reference.patches(image, (3, 2)) for image in IMAGES])
    assert_close(Patches((3, 2))(IMAGES), expected, 0.0)


def test_patches_put_back_together_are_the_image() -> None:
    patches = numpy(Patches((3, 2))(IMAGES)).reshape(2, 5, 7, 3, 2, 4)
    np.testing.assert_array_equal(patches.swapaxes(2, 3).reshape(IMAGES.shape), IMAGES)


def test_patches_projected_are_a_convolution() -> None:
    kernel = normal(3, 2, 4, 5, seed=9)
    convolved = keras.ops.conv(IMAGES, kernel, strides=(3, 2), padding="valid")
    projected = numpy(Patches((3, 2))(IMAGES)) @ kernel.reshape(24, 5)
    assert_close(projected, convolved, 1e-5)  # measured: 9.5e-7


def test_patches_drop_the_remainder() -> None:
    larger = np.pad(IMAGES, ((0, 0), (0, 2), (0, 1), (0, 0)), constant_values=9.0)
    layer = Patches((3, 2), remainder="drop")
    assert layer(keras.Input((17, 15, 4))).shape == (None, 5, 7, 24)
    np.testing.assert_array_equal(numpy(layer(larger)), numpy(Patches((3, 2))(IMAGES)))


def test_patches_of_unknown_size() -> None:
    layer = Patches((3, 2))
    assert layer(keras.Input((None, 14, 4))).shape == (None, None, 7, 24)
    assert layer.grid_size((None, 14)) == (None, 7)


@pytest.mark.parametrize(
    ("size", "nearest"),
    [
        ((224, 225), r"sizes are \(224, 224\) and \(224, 240\)"),
        ((7, 30), r"sizes are \(16, 16\) and \(16, 32\)"),
        ((5, 16), r"nearest size is \(16, 16\)"),
        ((None, 30), r"sizes are \(None, 16\) and \(None, 32\)"),
    ],
)
def test_patches_name_the_nearest_sizes(size: tuple[int | None, int], nearest: str) -> None:
    message = rf"multiple of the patch size \(16, 16\) in height and width; .*{nearest}. Received"
    with pytest.raises(ValueError, match=message):
        Patches(16)(keras.Input((*size, 3)))


def test_patches_refuse_an_image_smaller_than_one_patch() -> None:
    with pytest.raises(ValueError, match="multiple of the patch size"):
        Patches(16, remainder="drop")(normal(1, 8, 16, 3))


def test_patches_refuse_a_single_image() -> None:
    with pytest.raises(ValueError, match="expected ndim=4, found ndim=3"):
        Patches(2)(normal(4, 6, 3))


def test_patches_check_their_arguments() -> None:
    with pytest.raises(ValueError, match="`patch_size` must be a positive integer"):
        Patches(0)
    with pytest.raises(ValueError, match="`remainder` must be one of 'error', 'drop'"):
        Patches(2, remainder="pad")


@pytest.mark.tensorflow
def test_patches_never_take_a_rest_for_more_images() -> None:
    import tensorflow as tf

    layer = Patches(4)

    @tf.function(input_signature=[tf.TensorSpec((None, None, None, 3))])
    def cut(images: tf.Tensor) -> tf.Tensor:
        return layer(images)

    assert cut(tf.zeros((5, 8, 12, 3))).shape == (5, 2, 3, 48)
    # 6 x 6 = 36 pixels an image: 4 images hold as many as 9 of 4 x 4 pixels.
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="image_sides_must_be_multiples_of_the_patch_size"
    ):
        cut(tf.zeros((4, 6, 6, 3)))
