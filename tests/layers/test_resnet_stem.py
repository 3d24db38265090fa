"""The ResNet stem, and its parity with the official code at commit c6de1e53."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.layers import ResNetStem
from keras_vit.layers.resnet_stem import resnet_stride
from tests.helpers import assert_close, check_layer, normal, numpy, randomise

IMAGES = normal(2, 23, 37, 5)  # the feature map of the root is 6 x 10
ROOT = 7 * 7 * 5 * 32 + 2 * 32
# A branch of F channels has 12F values in its norms; a projection to 4F has 8F.
BLOCK_1 = (32 + 9 * 32 + 4 * 32 + 12) * 32 + (32 + 2) * 128

# Absolute, on values up to 30. Measured: 2.1e-5 (`hybrid`, root) and 8.5e-5 (R26, last stage).
SMALL, REAL_SIZE = 1e-4, 2e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_blocks", "output_shape", "parameters"),
    [((), (2, 6, 10, 32), ROOT), ((1,), (2, 6, 10, 128), ROOT + BLOCK_1)],
    ids=["root", "one stage"],
)
def test_resnet_stem_contract(
    num_blocks: tuple[int, ...], output_shape: tuple[int, ...], parameters: int
) -> None:
    layer = ResNetStem(num_blocks, width=32, epsilon=1e-5)
    check_layer(layer, IMAGES, output_shape=output_shape, parameters=parameters)


def test_resnet_stem_names_its_weights_as_the_official_files_do() -> None:
    stem = ResNetStem([2], width=32, name="stem")
    stem.build((None, None, None, 3))
    parts = {"conv_root": ["kernel"], "gn_root": ["gamma", "beta"]}
    for unit in ("block1_unit1", "block1_unit2"):
        for i in (1, 2, 3):
            parts[f"{unit}/conv{i}"] = ["kernel"]
            parts[f"{unit}/gn{i}"] = ["gamma", "beta"]
    parts["block1_unit1/conv_proj"] = ["kernel"]
    parts["block1_unit1/gn_proj"] = ["gamma", "beta"]
    expected = {f"stem/{part}/{name}" for part, names in parts.items() for name in names}
    assert {weight.path for weight in stem.weights} == expected


@pytest.mark.parametrize(
    ("num_blocks", "stride"), [((), 4), ((1,), 4), ((1, 1), 8), ((3, 4, 9), 16), ((2,) * 4, 32)]
)
def test_resnet_stem_divides_the_size(num_blocks: tuple[int, ...], stride: int) -> None:
    stem = ResNetStem(num_blocks, width=32)
    assert stem.stride == resnet_stride(num_blocks) == stride
    assert stem.compute_output_shape((2, stride * 5, stride * 7 + 1, 3))[:3] == (2, 5, 8)
    assert stem.compute_output_shape((2, stride * 5 - 1, None, 3))[:3] == (2, 5, None)


def test_resnet_stem_halves_the_size_and_doubles_the_channels_once_a_stage() -> None:
    units = ResNetStem((2, 3, 1), width=32).units
    assert [unit.strides for unit in units] == [1, 1, 2, 1, 1, 2]
    assert [unit.filters for unit in units] == [32, 32, 64, 64, 64, 128]


def test_resnet_stem_pools_its_root() -> None:
    """The largest of 3x3 values at every second place, the border ignored."""
    stem = ResNetStem((), width=32)
    outputs = stem(IMAGES)
    root = np.maximum(numpy(stem.gn_root(stem.conv_root(IMAGES))), 0)  # (2, 12, 19, 32)
    padded = np.pad(root, [(0, 0), (0, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    assert_close(outputs, windows[:, ::2, ::2].max(axis=(-2, -1)), 0.0)


def test_resnet_stem_hands_epsilon_on() -> None:
    stem = ResNetStem((1,), width=32, epsilon=0.1)
    assert stem.gn_root.epsilon == stem.units[0].epsilon == 0.1


@pytest.mark.tensorflow  # JAX would compile for every size
@pytest.mark.parametrize("size", [(33, 16), (1, 31)])
def test_resnet_stem_rounds_up_as_its_convolutions_do(size: tuple[int, int]) -> None:
    stem = ResNetStem((1, 1), width=32)
    images = normal(2, *size, 3)
    assert tuple(stem(images).shape) == stem.compute_output_shape(images.shape)


@pytest.mark.slow
@pytest.mark.tensorflow  # JAX would compile for every size
def test_resnet_stem_of_unknown_size() -> None:
    stem = ResNetStem((1, 1), width=32)
    images = keras.Input((None, None, 3))
    model = keras.Model(images, stem(images))
    assert model.output_shape == (None, None, None, 256)
    randomise(stem)
    for size in ((37, 46), (24, 61)):
        batch = normal(2, *size, 3)
        assert_close(model.predict(batch, verbose=0), stem(batch), 1e-5)  # measured: 1.2e-6


def test_resnet_stem_is_stored_with_its_weights(tmp_path: Path) -> None:
    images = keras.Input(IMAGES.shape[1:])
    model = keras.Model(images, ResNetStem((2,), width=32)(images))
    randomise(model)
    model.save(tmp_path / "stem.keras")
    loaded = keras.saving.load_model(tmp_path / "stem.keras")
    np.testing.assert_array_equal(numpy(loaded(IMAGES)), numpy(model(IMAGES)))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_blocks": 3}, r"`num_blocks` must be a tuple .* each stage\. Received: num_blocks=3"),
        ({"num_blocks": (10**9,)}, r"`num_blocks` must have a sum of at most 1000"),
        ({"num_blocks": (3, 0)}, r"`num_blocks\[1\]` must be a positive integer"),
        (
            {"width": 16},
            r"`width` must be a multiple of 32, the number of groups .* Received: width=16",
        ),
        ({"width": 64.0}, "`width` must be a positive integer"),
        ({"epsilon": 0}, "`epsilon` must be a positive number. Received: epsilon=0"),
    ],
)
def test_resnet_stem_checks_its_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ResNetStem(**{"num_blocks": (1,), "width": 32, **kwargs})


def test_resnet_stem_refuses_a_single_image() -> None:
    with pytest.raises(ValueError, match="expected ndim=4, found ndim=3"):
        ResNetStem(())(IMAGES[0])


def official_stem(weights: dict[str, np.ndarray], num_blocks: tuple[int, ...]) -> ResNetStem:
    """A stem with the weights of an official file, which may have more stages."""
    width = weights["conv_root/kernel"].shape[-1]
    stem = ResNetStem(num_blocks, width=width)
    stem.build((None, None, None, 3))
    for weight in stem.weights:
        name = weight.path.removeprefix(f"{stem.name}/").replace("_unit", "/unit")
        weight.assign(weights[name.replace("gamma", "scale").replace("beta", "bias")])
    return stem


def stored_part(found: dict[str, np.ndarray], name: str) -> np.ndarray:
    """What the reference stores under this name: of the real size, only parts."""
    base, _, part = name.rpartition("_")
    if part == "corner":
        return found[base][:, :2, :2]
    if part == "mean":
        return found[base].mean(axis=(1, 2))
    if part == "row0":
        return found[base][:, 0]
    return found[name]


@pytest.mark.parametrize(
    "name",
    [
        "hybrid",
        "hybrid_low_contrast",
        "hybrid_odd_nonsquare",
        pytest.param("hybrid_stem_only", marks=pytest.mark.slow),
        pytest.param("R26+ViT-S_32_224", marks=pytest.mark.slow),
    ],
)
def test_resnet_stem_equals_the_official_code(
    name: str, recipe: ModuleType, test_data: Path
) -> None:
    case = recipe.load(str(test_data / "reference" / "official" / f"{name}.json"))
    weights, images = recipe.weights(case), recipe.image(case)
    num_blocks = tuple(case["config"]["resnet"]["num_layers"])
    stem = official_stem(weights, num_blocks)
    assert len(stem.weights) == sum(key.startswith(("block", "conv", "gn")) for key in weights)

    x = keras.Input(images.shape[1:])
    outputs = {"stem_conv_root": stem.conv_root(x)}
    outputs["stem_gn_root"] = stem.gn_root(outputs["stem_conv_root"])
    for stages in range(1, len(num_blocks) + 1):
        outputs[f"stem_block{stages}"] = official_stem(weights, num_blocks[:stages])(x)
    # The patches see what no `stem_` output shows: the max pooling of a stem without stages.
    kernel, bias = weights["embedding/kernel"], weights["embedding/bias"]
    outputs["embedding"] = keras.ops.conv(stem(x), kernel, kernel.shape[:2], "valid") + bias
    found = keras.Model(x, outputs).predict(images, verbose=0)

    expected = recipe.outputs(case)
    names = [key for key in expected if key.startswith(("stem_", "embedding"))]
    assert len(names) > len(num_blocks) + 2
    tolerance = REAL_SIZE if name.startswith("R") else SMALL
    for output in names:
        assert_close(stored_part(found, output), expected[output], tolerance, f"{name} {output}")
