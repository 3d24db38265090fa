from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.positions import (
    PATCH_POSITIONS,
    POSITION,
    POSITIONS,
    PREFIX_POSITION,
    grid_of,
    has_prefix_rows,
    infer_prefix_positions,
    join_positions,
    split_for_image_size,
    try_split_positions,
)
from tests.helpers import normal, tiny_config

TABLE = {POSITIONS: normal(36, 24)}
TRAITS: dict[str, Any] = {"patch_size": (3, 2), "class_token": True}


@pytest.mark.parametrize(
    ("number", "grid"), [(49, (7, 7)), (35, None), (1, (1, 1)), (0, None), (-1, None)]
)
def test_grid_of(number: int, grid: tuple[int, int] | None) -> None:
    assert grid_of(number) == grid


def loose(rows: int, prefix: int) -> Checkpoint:
    tensors = {
        POSITIONS: np.zeros((rows, 6)),
        "patch_encoder/register_tokens": np.zeros((1, prefix, 6)),
    }
    return Checkpoint("a", tensors, {}, optional_prefix=True)


@pytest.mark.parametrize(
    ("rows", "grid", "asked", "expected"),
    [
        (9, (3, 3), None, False),  # 5 + 2 x 2 as well, of which one is that of the model
        (9, (2, 2), None, True),
        (9, (7, 7), True, True),
        (9, (7, 7), False, False),
        (6, (6, 1), True, False),  # which the model then refuses
        (6, (1, 1), None, True),
        (201, (24, 24), None, True),
        (196, (24, 24), None, False),
    ],
)
def test_has_prefix_rows(
    rows: int, grid: tuple[int, int], asked: bool | None, expected: bool
) -> None:
    assert has_prefix_rows(loose(rows, 5), grid, asked) is expected


def test_has_prefix_rows_of_a_table_that_is_told() -> None:
    checkpoint = loose(9, 5).replace(optional_prefix=False)
    assert has_prefix_rows(checkpoint, (3, 3))
    assert not has_prefix_rows(checkpoint.replace(inferred={"prefix_position": False}), (2, 2))


def test_infer_prefix_positions() -> None:
    checkpoint = loose(9, 5)
    inferred = infer_prefix_positions(checkpoint, (2, 2))
    assert inferred.inferred == {"position_grid": (2, 2), "prefix_position": True}
    assert has_prefix_rows(inferred, (3, 3))
    assert not infer_prefix_positions(checkpoint, (3, 3)).inferred["prefix_position"]
    assert infer_prefix_positions(checkpoint, (4, 4)) is checkpoint
    assert infer_prefix_positions(inferred, (3, 3)) is inferred


def test_split_for_image_size() -> None:
    names = {POSITIONS: ("pos:0",)}
    checkpoint = Checkpoint("m", TABLE, TRAITS, dialect="vit_keras", names=names, ignored=("left",))
    placed = split_for_image_size(checkpoint, (15, 14))
    table = TABLE[POSITIONS]
    np.testing.assert_array_equal(placed.tensors["patch_encoder/position"][4, 6], table[35])
    np.testing.assert_array_equal(placed.tensors["patch_encoder/prefix_position"][0], table[:1])
    assert placed.inferred["prefix_position"] is True
    assert (placed.inferred["position_grid"], placed.inferred["image_size"]) == ((5, 7), (15, 14))
    assert placed.names["patch_encoder/position"] == ("pos:0",)
    assert placed.ignored == ("left",)


def test_split_for_image_size_without_those_of_prefix_tokens() -> None:
    placed = split_for_image_size(Checkpoint("m", TABLE, TRAITS), (18, 12))
    assert placed.tensors.keys() == {"patch_encoder/position"}
    assert placed.inferred["prefix_position"] is False


@pytest.mark.parametrize("image_size", [(15, 12), (224, 224), (6, 6)])
def test_split_for_another_image_size_leaves_the_checkpoint(image_size: tuple[int, int]) -> None:
    checkpoint = Checkpoint("m", TABLE, TRAITS)
    assert split_for_image_size(checkpoint, image_size) is checkpoint
    assert split_for_image_size(Checkpoint("m", {}, TRAITS), image_size).tensors == {}


@pytest.mark.parametrize(
    ("changes", "loose", "name", "rows"),
    [
        ({}, True, POSITIONS, 36),
        ({}, False, POSITIONS, 36),
        ({"prefix_position": False}, True, POSITIONS, 35),
        ({"prefix_position": False}, False, PATCH_POSITIONS, 35),
        ({"class_token": False, "pooling": "gap"}, False, POSITIONS, 35),
        ({"position_embedding": "sincos_2d"}, False, POSITIONS, 36),
    ],
    ids=str,
)
def test_join_positions_and_split_them_again(
    changes: dict[str, Any], loose: bool, name: str, rows: int
) -> None:
    config = tiny_config(**changes)
    learned = {} if "position_embedding" in changes else {POSITION: normal(5, 7, 24)}
    if config.num_prefix_tokens and config.prefix_position and learned:
        learned[PREFIX_POSITION] = normal(1, 1, 24)
    joined = join_positions(learned, config, optional_prefix=loose)
    assert {key: table.shape for key, table in joined.items()} == {name: (rows, 24)}
    assert try_split_positions(joined, config)
    assert joined.keys() == learned.keys()
    for key, table in learned.items():
        np.testing.assert_array_equal(joined[key], table)
