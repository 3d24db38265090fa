"""Letters: P, Q patch height and width; C channels; D hidden size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from keras_vit.layers.position_resizing import resize_table
from keras_vit.models import ViTConfig
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.checkpoint_adaptation import adapt_channels, fit, resize_patch_kernel
from keras_vit.weights.positions import (
    COLUMN,
    PATCH_POSITIONS,
    POSITION,
    POSITIONS,
    PREFIX_POSITION,
    ROW,
)
from tests.helpers import assert_close, normal, numpy, tiny_config

PROJECTION, ROOT = "patch_encoder/projection/kernel", "stem/conv_root/kernel"
RED, GREEN, BLUE = 1.0, 10.0, 100.0
SIX_BY_SIX, THREE_BY_FOUR = {"image_size": (18, 12)}, {"image_size": (9, 8)}


def fitted(
    tensors: dict[str, np.ndarray], config: ViTConfig, patches: bool = False, **inferred: Any
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    return fit(Checkpoint("a.npz", tensors, inferred), config, resize_patches=patches)


def upscaled(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bicubic resizing of (P, Q, C) as PIL does it, channel by channel."""
    channels = [
        np.asarray(Image.fromarray(channel).resize(size[::-1], Image.Resampling.BICUBIC))
        for channel in np.moveaxis(image.astype("float32"), -1, 0)
    ]
    return np.stack(channels, axis=-1)


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        (1, [111]),
        (2, [1.5, 15]),
        (3, [1, 10, 100]),
        (4, [0.75, 7.5, 75, 0.75]),
        (6, [0.5, 5, 50, 0.5, 5, 50]),
    ],
)
def test_adapt_channels_worked_by_hand(channels: int, expected: list[float]) -> None:
    kernel = np.array([[[RED], [GREEN], [BLUE]]] * 2, "float32") * np.arange(1, 6)
    adapted = adapt_channels(kernel.astype("float32"), channels)  # (2, C, 5)
    assert (adapted.shape, adapted.dtype) == ((2, channels, 5), np.float32)
    for column in range(5):
        np.testing.assert_array_equal(adapted[1, :, column], np.array(expected) * (column + 1))


@pytest.mark.parametrize("channels", [1, 2, 4, 6])
def test_adapt_channels_keeps_the_answer_to_gray(channels: int) -> None:
    """Where all channels weigh alike, the sum over them is kept: gray is as bright as before."""
    kernel = np.repeat(normal(7, 1, 5), 3, axis=1)
    adapted = adapt_channels(kernel, channels)
    assert_close(adapted.sum(axis=1), kernel.sum(axis=1), 4e-6)  # measured: 1e-6


def test_adapt_channels_of_one_takes_the_place_of_three_equal_ones() -> None:
    kernel, gray = normal(7, 3, 5), normal(7, 1, seed=5)
    answer = np.einsum("nc,ncd->d", np.repeat(gray, 3, axis=1), kernel)
    found = np.einsum("nc,ncd->d", gray, adapt_channels(kernel, 1))
    assert_close(found, answer, 2e-6)  # measured: 5e-7
    back = adapt_channels(adapt_channels(kernel, 1), 3)
    assert_close(back.sum(axis=1), kernel.sum(axis=1), 1e-6)  # measured: 2.4e-7


def test_resize_patch_kernel_to_its_own_size_changes_nothing() -> None:
    kernel = normal(5, 7, 3, 11)
    np.testing.assert_array_equal(resize_patch_kernel(kernel, (5, 7)), kernel)


@pytest.mark.parametrize("size", [(11, 9), (5, 4), (11, 4), (7, 13)], ids=str)
def test_resize_patch_kernel_equals_its_definition(size: tuple[int, int]) -> None:
    """The pseudo-inverse of the matrix that resizes whole patches, both sides at once."""
    kernel = normal(7, 6, 3, 5)
    basis = np.eye(42).reshape(42, 7, 6).transpose(1, 2, 0)  # one patch for every pixel
    matrix = upscaled(basis, size).reshape(-1, 42).astype("float64")
    # Where one side grows and the other shrinks, some singular values are 0 but for rounding.
    expected = np.linalg.pinv(matrix.T, rcond=1e-5) @ kernel.reshape(42, 15)
    resized = resize_patch_kernel(kernel, size)
    assert resized.dtype == np.float32
    assert_close(resized, expected.reshape(*size, 3, 5), 1e-5)  # measured: 2.5e-6


def test_resize_patch_kernel_stands_on_both_sides_alone() -> None:
    """The matrix of both sides is the Kronecker product of their own."""
    kernel = normal(7, 6, 3, 5)
    rows, columns = (
        upscaled(np.eye(n)[:, None], (new, 1))[:, 0] for n, new in ((7, 11), (6, 4))
    )  # (11, 7), (4, 6)
    inverse = np.linalg.pinv(np.kron(rows, columns).T.astype("float64"), rcond=1e-5)
    expected = (inverse @ kernel.reshape(42, 15)).reshape(11, 4, 3, 5)
    assert_close(resize_patch_kernel(kernel, (11, 4)), expected, 1e-5)  # measured: 1.7e-6


@pytest.mark.parametrize("size", [(11, 9), (8, 13), (7, 12)], ids=str)
def test_an_enlarged_patch_gives_the_same_token(size: tuple[int, int]) -> None:
    """Section 3.4 of FlexiViT: enlarging loses nothing, so the token can be kept."""
    kernel, patch = normal(7, 6, 3, 5), normal(7, 6, 3, seed=11)
    token = np.einsum("pqc,pqcd->d", patch, kernel)
    larger = np.einsum("pqc,pqcd->d", upscaled(patch, size), resize_patch_kernel(kernel, size))
    assert_close(larger, token, 4e-5)  # measured: 1.2e-5, of up to 14
    unlike = np.einsum("pqc,pqcd->d", upscaled(patch, size), upscaled_kernel(kernel, size))
    assert np.abs(unlike - token).max() > 0.5  # resizing the kernel as an image does not


def upscaled_kernel(kernel: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return upscaled(kernel.reshape(7, 6, 15), size).reshape(*size, 3, 5)


def test_fit_changes_nothing_where_everything_fits() -> None:
    tensors = {POSITION: normal(5, 7, 24), PROJECTION: normal(18, 24), "x": normal(3)}
    found, notes = fitted(tensors, tiny_config(), channels=3, patch_size=(3, 2))
    assert notes == {}
    assert found.keys() == tensors.keys()
    assert all(found[name] is tensor for name, tensor in tensors.items())


def test_fit_leaves_the_checkpoint_alone() -> None:
    tensors = {POSITIONS: normal(25, 24), PROJECTION: normal(18, 24)}
    before = dict(tensors)
    fitted(tensors, tiny_config(channels=4, class_token=False, pooling="gap"), channels=3)
    assert tensors.keys() == before.keys()
    assert all(tensors[name] is tensor for name, tensor in before.items())


def test_fit_adapts_the_first_kernel_to_the_channels() -> None:
    kernel = normal(18, 24)
    found, notes = fitted({PROJECTION: kernel}, tiny_config(channels=4), channels=3)
    expected = adapt_channels(kernel.reshape(6, 3, 24), 4)
    np.testing.assert_array_equal(found[PROJECTION], expected.reshape(24, 24))
    assert notes == {PROJECTION: "Input kernel adapted from 3 to 4 channels"}


def test_fit_adapts_the_root_of_a_hybrid() -> None:
    config = tiny_config(stem_blocks=(), stem_width=32, patch_size=2, image_size=(24, 24))
    tensors = {ROOT: normal(7, 7, 3, 32), PROJECTION: normal(128, 24)}
    found, notes = fitted(tensors, config.replace(channels=1), channels=3, patch_size=(2, 2))
    assert_close(found[ROOT], tensors[ROOT].sum(axis=2, keepdims=True), 0.0)
    assert found[PROJECTION] is tensors[PROJECTION]
    assert notes == {ROOT: "Input kernel adapted from 3 to 1 channels"}


def test_fit_resizes_patches_if_it_may() -> None:
    kernel = normal(18, 24)
    config = tiny_config(patch_size=(5, 7))
    message = (
        r"must match the patch size \(3, 2\) of a.npz; .*`resize_patches=True`.* "
        r"Received: a model with patch_size=\(5, 7\)"
    )
    with pytest.raises(ValueError, match=message):
        fitted({PROJECTION: kernel}, config, channels=3, patch_size=(3, 2))
    found, notes = fitted({PROJECTION: kernel}, config, True, channels=3, patch_size=(3, 2))
    expected = resize_patch_kernel(kernel.reshape(3, 2, 3, 24), (5, 7))
    np.testing.assert_array_equal(found[PROJECTION], expected.reshape(105, 24))
    assert notes == {PROJECTION: "Input kernel resized from patch size (3, 2) to (5, 7)"}


def test_fit_resizes_patches_of_other_channels() -> None:
    kernel = normal(18, 24)
    config = tiny_config(patch_size=(5, 7), channels=4)
    found, notes = fitted({PROJECTION: kernel}, config, True, channels=3, patch_size=(3, 2))
    adapted = adapt_channels(kernel.reshape(3, 2, 3, 24), 4)
    expected = resize_patch_kernel(adapted, (5, 7)).reshape(140, 24)
    np.testing.assert_array_equal(found[PROJECTION], expected)
    assert notes[PROJECTION] == (
        "Input kernel adapted from 3 to 4 channels; "
        "Input kernel resized from patch size (3, 2) to (5, 7)"
    )


CLASS, TEACHER, REGISTERS = (
    f"patch_encoder/{name}" for name in ("class_token", "distillation_token", "register_tokens")
)
BARE = {"position_grid": (6, 6), "prefix_position": False}  # as a loose dialect reads 36 rows
JOINT = {"position_grid": (5, 5), "prefix_position": True}
GAP = {"class_token": False, "pooling": "gap"}


@pytest.mark.parametrize(
    ("length", "tokens", "inferred", "changes", "grid", "prefix"),
    [
        (36, {CLASS: 1}, {}, {}, (5, 7), 1),
        (36, {CLASS: 1}, BARE, {}, (5, 7), 1),  # the model decides what the length does not
        (36, {CLASS: 1}, {}, SIX_BY_SIX | {"prefix_position": False}, (6, 6), 0),
        (36, {CLASS: 1}, BARE, SIX_BY_SIX, (6, 6), 0),
        (36, {CLASS: 1}, BARE, THREE_BY_FOUR | {"prefix_position": False}, (6, 6), 0),
        (36, {CLASS: 1}, BARE, THREE_BY_FOUR, (6, 6), 0),
        (36, {}, {}, SIX_BY_SIX | GAP, (6, 6), 0),
        (16, {}, {}, {"image_size": (6, 16)} | GAP, (4, 4), 0),  # though the model has 2 x 8
        (26, {CLASS: 1}, JOINT, THREE_BY_FOUR, (5, 5), 1),
        (26, {CLASS: 1}, JOINT, SIX_BY_SIX | {"prefix_position": False}, (5, 5), 1),
        (27, {CLASS: 1, TEACHER: 1}, {}, THREE_BY_FOUR, (5, 5), 2),
        (29, {CLASS: 1, REGISTERS: 3}, {}, THREE_BY_FOUR, (5, 5), 4),
    ],
)
def test_fit_splits_a_table_into_prefix_and_grid(
    length: int,
    tokens: dict[str, int],
    inferred: dict[str, Any],
    changes: dict[str, Any],
    grid: tuple[int, int],
    prefix: int,
) -> None:
    table = normal(length, 24)
    tensors = {name: normal(1, number, 24) for name, number in tokens.items()}
    config = tiny_config(**changes)
    tensors[POSITIONS] = table
    checkpoint = Checkpoint("a.npz", tensors, inferred, optional_prefix=True)
    found, notes = fit(checkpoint, config, resize_patches=False)
    expected = table[prefix:].reshape(*grid, 24)
    if grid != config.grid:
        expected = numpy(resize_table(expected, config.grid))
        text = f"Position embeddings resized from {grid} to {config.grid} patches"
        assert notes == {POSITION: text}
    np.testing.assert_array_equal(found[POSITION], expected)
    assert (PREFIX_POSITION in found) == bool(prefix)
    if prefix:
        np.testing.assert_array_equal(found[PREFIX_POSITION], table[None, :prefix])
    assert POSITIONS not in found


@pytest.mark.parametrize("changes", [{}, {"prefix_position": False}], ids=str)
def test_fit_takes_a_table_of_patches_for_that(changes: dict[str, Any]) -> None:
    """25 + 1 positions would be a square grid and a class token as well."""
    table = normal(36, 24)
    tensors = {PATCH_POSITIONS: table, CLASS: normal(1, 1, 24)}
    found, _ = fitted(tensors, tiny_config(**SIX_BY_SIX, **changes))
    assert found.keys() == {POSITION, CLASS}
    np.testing.assert_array_equal(found[POSITION], table.reshape(6, 6, 24))


@pytest.mark.parametrize(
    ("length", "changes", "number"),
    [(36, THREE_BY_FOUR, 35), (36, SIX_BY_SIX, 35), (30, THREE_BY_FOUR | GAP, 29)],
)
def test_fit_refuses_a_table_of_no_grid(length: int, changes: dict[str, Any], number: int) -> None:
    config = tiny_config(**changes)
    grid = str(config.grid).replace("(", r"\(").replace(")", r"\)")
    message = (
        f"of a.npz has {number} positions, which match neither the model's grid {grid} nor a "
        "square grid, so the position embedding cannot be resized. Build the model"
    )
    tokens = {CLASS: normal(1, 1, 24)}
    with pytest.raises(ValueError, match=message):
        fitted({POSITIONS: normal(length, 24)} | tokens, config)


def test_fit_resizes_with_the_method_of_the_model() -> None:
    table = normal(5, 7, 24)
    for method in ("bicubic", "bilinear_aligned"):
        config = tiny_config(**SIX_BY_SIX, position_interpolation=method)
        found, _ = fitted({POSITION: table}, config)
        np.testing.assert_array_equal(found[POSITION], numpy(resize_table(table, (6, 6), method)))


def test_fit_resizes_rows_and_columns() -> None:
    tensors = {ROW: normal(5, 1, 12), COLUMN: normal(1, 7, 12)}
    found, notes = fitted(tensors, tiny_config(**THREE_BY_FOUR, position_embedding="learned_2d"))
    np.testing.assert_array_equal(found[ROW], numpy(resize_table(tensors[ROW], (3, 1))))
    np.testing.assert_array_equal(found[COLUMN], numpy(resize_table(tensors[COLUMN], (1, 4))))
    assert list(notes) == [ROW, COLUMN]
