from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.layers import StandardizedConv2D
from tests.helpers import assert_close, check_layer, normal, numpy, randomise

IMAGES = normal(2, 9, 11, 4)  # B, H, W, C; filters 3 x 2, strides 2 x 3, F 5


def convolution(**kwargs: Any) -> StandardizedConv2D:
    layer = StandardizedConv2D(5, (3, 2), strides=(2, 3), **kwargs)
    layer.build(IMAGES.shape)
    return randomise(layer)


def standardized(kernel: np.ndarray) -> np.ndarray:
    kernel = kernel.astype("float64")
    return (kernel - kernel.mean((0, 1, 2))) / (kernel.std((0, 1, 2)) + 1e-5)


def same_convolution(x: np.ndarray, kernel: np.ndarray, strides: tuple[int, int]) -> np.ndarray:
    """As many zeros around the image as needed, an odd one below or at the right."""
    size = [-(-n // stride) for n, stride in zip(x.shape[1:3], strides, strict=True)]
    pads = [
        max(0, (out - 1) * stride + k - n)
        for out, stride, k, n in zip(size, strides, kernel.shape, x.shape[1:], strict=False)
    ]
    x = np.pad(x, [(0, 0), *((pad // 2, pad - pad // 2) for pad in pads), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], axis=(1, 2))
    windows = windows[:, :: strides[0], :: strides[1]]  # (B, h, w, C, rows, columns)
    return np.einsum("bhwcij,ijcf->bhwf", windows, kernel)


def test_standardized_conv_contract() -> None:
    layer = StandardizedConv2D(5, (3, 2), strides=(2, 3))
    check_layer(layer, IMAGES, output_shape=(2, 5, 4, 5), parameters=3 * 2 * 4 * 5)


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_standardized_conv_equals_the_equations(strides: tuple[int, int]) -> None:
    layer = StandardizedConv2D(5, (3, 2), strides=strides)
    layer.build(IMAGES.shape)
    randomise(layer)
    expected = same_convolution(IMAGES, standardized(layer.get_weights()[0]), strides)
    assert_close(layer(IMAGES), expected, 1e-5)  # measured: 3.1e-6


def test_standardized_conv_is_the_same_for_filters_shifted_and_scaled() -> None:
    layer, other = convolution(), convolution()
    other.set_weights([7 * layer.get_weights()[0] + 3])
    assert_close(other(IMAGES), layer(IMAGES), 1e-3)  # measured: 3.5e-4


def test_standardized_conv_of_equal_weights_is_zero() -> None:
    layer = convolution()
    layer.set_weights([np.full((3, 2, 4, 5), 3.0)])
    assert_close(layer(IMAGES), np.zeros((2, 5, 4, 5)), 0.0)


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="PyTorch gives NaN in half precision on a CPU"
)
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_standardized_conv_takes_the_statistics_in_float32(policy: str) -> None:
    """Next to a mean of 50, half precision keeps nothing of a deviation of 0.01."""
    kernel = 50 + 0.01 * normal(3, 2, 4, 5, seed=9)
    layer = convolution(dtype=policy)
    layer.set_weights([kernel])
    expected = same_convolution(IMAGES, standardized(kernel), (2, 3))
    assert_close(keras.ops.cast(layer(IMAGES), "float32"), expected, 0.1)  # measured: 0.056


def test_standardized_conv_of_unknown_size() -> None:
    layer = convolution()
    assert layer(keras.Input((None, 11, 4))).shape == (None, None, 4, 5)


def test_standardized_conv_starts_with_the_deviation_of_the_official_code() -> None:
    layer = StandardizedConv2D(64, 5)
    layer.build((None, None, None, 16))
    assert numpy(layer.kernel).std() == pytest.approx(1 / 20, rel=0.05)  # 1 / sqrt(5 * 5 * 16)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"filters": 0}, r"`filters` must be a positive integer\. Received: filters=0"),
        ({"kernel_size": (3, 0)}, r"`kernel_size` must be a positive integer\. Received"),
        ({"strides": (1, 2, 3)}, r"`strides` must be .* a pair \(height, width\)\. Received"),
    ],
)
def test_standardized_conv_checks_its_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StandardizedConv2D(**{"filters": 5, "kernel_size": 3, **kwargs})


def test_standardized_conv_refuses_a_single_image() -> None:
    with pytest.raises(ValueError, match="expected ndim=4, found ndim=3"):
        StandardizedConv2D(5, 3)(normal(9, 11, 4))
