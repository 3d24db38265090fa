"""The table of docs/pretrained.md: how much libraries differ for the same weights.

Computed with the tiny models of `cases`; pictures are a photograph of scikit-learn.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import sklearn.datasets

from keras_vit import data, models
from keras_vit.layers import position_embedding
from keras_vit.layers.position_resizing import _kernel
from keras_vit.preprocessing import Preprocessing
from keras_vit.weights import load_weights
from keras_vit.weights.infer_config import config_of
from tests.helpers import numpy
from tests.weights.foundation.test_parity import CASES, read

pytestmark = pytest.mark.filterwarnings("ignore")
PAGE = Path(__file__).parents[3] / "docs" / "pretrained.md"
FILES = {case.stem: case for case in CASES}
POSITION = "patch_encoder/position"
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
Edit = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class Case:
    """A tiny model of another library and images, at the size of the case's image `index`."""

    def __init__(self, name: str, folder: Path, index: int = 0) -> None:
        folder = folder / f"{name}{index}"
        folder.mkdir()
        content, self.checkpoint = read(FILES[name], folder)
        self.images = content[f"images{index}"]

    def outputs(self, edit: Edit = dict, **fields: Any) -> np.ndarray:
        """Outputs with other fields of the configuration, and weights changed by `edit`."""
        config = config_of(self.checkpoint, image_size=self.images.shape[1:3])
        model = models.build(config.replace(**fields))
        load_weights(model, self.checkpoint, report=True)
        weights = edit({weight.path: numpy(weight) for weight in model.weights})
        for weight in model.weights:
            weight.assign(weights[weight.path])
        return numpy(model(self.images))

    def difference(self, edit: Edit = dict, **fields: Any) -> float:
        """Largest difference to the file's own outputs, as a fraction of the largest output."""
        expected = self.outputs()
        return float(np.abs(self.outputs(edit, **fields) - expected).max() / np.abs(expected).max())


def with_offset(table: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """DINOv2's own resizing: bicubic with the scale factor (n + 0.1) / old."""
    for axis, (old, new) in enumerate(zip(table.shape[:2], grid, strict=True)):
        place = (np.arange(new)[:, None] + 0.5) * old / (new + 0.1) - 0.5
        reach = np.arange(-2, old + 3)
        weights = numpy(_kernel(np.abs(reach - place).astype("float32"), -0.75))
        onto = np.eye(old, dtype="float32")[np.clip(reach, 0, old - 1)]
        table = np.moveaxis(np.tensordot(weights @ onto, table, (1, axis)), 0, axis)
    return table


def bilinear_relative(table: np.ndarray, old: int, new: int) -> np.ndarray:
    """Transformers' resizing of BEiT's tables, for square grids of `old` and `new` patches."""
    sides = 2 * old - 1, 2 * new - 1
    inner = table[:-3].reshape(sides[0], sides[0], -1)
    kind = position_embedding.resize_table(inner, (sides[1], sides[1]), "bilinear")
    return np.concatenate([numpy(kind).reshape(sides[1] ** 2, -1), table[-3:]])


def pixel_difference(first: Preprocessing, second: Preprocessing) -> float:
    """Mean difference of a photograph's pixels, in levels of 255, at the same size."""
    photo = keras.ops.convert_to_numpy(sklearn.datasets.load_sample_image("china.jpg"))
    one, other = (np.asarray(data.resize_and_crop(photo, each), float) for each in (first, second))
    return float(np.abs(one - other).mean())


def relative(value: float) -> str:
    # Below, it is the rounding of float32.
    return f"{value:.1e} of the largest output" if value > 1e-6 else "below 1e-6"


def levels(value: float) -> str:
    return f"{value:.1f} of 255 on average"


def rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str, str, str]]:
    """Weights, what this package computes, what others compute, and the size of the difference."""
    siglip = Case("timm_siglip", folder)
    yield (
        "SigLIP, GELU",
        "timm's files of B/16, L/16 at 256 and 384 px, SO400M/14: exact; others: tanh",
        "big_vision, transformers: tanh for all",
        relative(siglip.difference(gelu="tanh")),
    )
    clip = Case("timm_clip", folder)
    yield (
        "CLIP of OpenAI, GELU",
        "QuickGELU",
        "timm, by a name without `quickgelu`: exact",
        relative(clip.difference(gelu="exact")),
    )
    dinov2 = Case("hf_dinov2", folder, 2)
    size = dinov2.images.shape[1] // 4, dinov2.images.shape[2] // 4
    table = dinov2.checkpoint.tensors["patch_encoder/positions"][1:].reshape(4, 4, -1)
    others = {
        "timm: bicubic, antialiased": position_embedding.resize_table(
            table, size, "bicubic_antialiased"
        ),
        "its authors: bicubic, scale (n + 0.1) / 37": with_offset(table, size),
    }
    for other, resized in others.items():
        yield (
            "DINOv2, other image size",
            "files of transformers: bicubic",
            other,
            relative(dinov2.difference(lambda w, new=resized: {**w, POSITION: numpy(new)})),
        )
    dinov3 = Case("timm_dinov3", folder)
    yield (
        "DINOv3, pooling",
        "files of timm: mean of the patches; of transformers: class token",
        "its authors: class token",
        relative(dinov3.difference(pooling="token")),
    )
    rotary = position_embedding.POSITIONS["rotary"]
    angles, expected = rotary.angles, dinov3.outputs()

    def rounded(grid: Any, number: int, change: Any) -> Any:
        """The angles with periods in bfloat16, as in the original files."""
        half = keras.ops.cast(100.0 ** (np.arange(number) / number), "bfloat16")
        factor = 100.0 ** (np.arange(number) / number) / numpy(keras.ops.cast(half, "float32"))
        return angles(grid, number, change) * factor.astype("float32")

    with monkeypatch.context() as patch:
        patch.setattr(type(rotary), "angles", lambda self, *given: rounded(*given))
        found = float(np.abs(dinov3.outputs() - expected).max() / np.abs(expected).max())
    yield (
        "DINOv3, periods of the rotation",
        "float32, as timm and transformers",
        "its authors' files: rounded to bfloat16",
        relative(found),
    )
    beit = Case("timm_beit", folder)
    yield (
        "BEiT, epsilon",
        "files of timm: 1e-6",
        "transformers: 1e-12",
        relative(beit.difference(epsilon=1e-12)),
    )
    large = Case("timm_beit", folder, 1)

    def bilinear(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        stored = large.checkpoint.tensors
        tables = {n: t for n, t in stored.items() if n.endswith("relative_position")}
        return {**weights, **{n: bilinear_relative(t, 4, 6) for n, t in tables.items()}}

    yield (
        "BEiT, other image size",
        "timm: geometric grid",
        "transformers: bilinear; rows and columns swapped unless square",
        relative(large.difference(bilinear)),
    )
    squashed = Preprocessing(resize="squash")
    yield (
        "DINOv3, images",
        "timm: bicubic",
        "its authors, transformers: bilinear",
        levels(pixel_difference(squashed, dataclasses.replace(squashed, interpolation="bilinear"))),
    )
    yield (
        "SigLIP, images",
        "squash to the square, as open_clip and transformers",
        "timm without a configuration file: crop of 0.9",
        levels(pixel_difference(squashed, Preprocessing(crop_fraction=0.9))),
    )
    ends = np.array([[0.0], [1.0]])
    moved = np.abs((ends - CLIP_MEAN) / CLIP_STD - (ends - 0.5) / 0.5).max()
    yield (
        "CLIP L/14 `laion2b`, images",
        "timm: mean and deviation 0.5",
        "those of all other CLIP files",
        f"up to {moved:.2f} of values in [-1, 1]",
    )
    area = (224 / 256) ** 2
    yield (
        "DINOv2, images",
        "timm: the whole square at 518 px",
        "its authors: crop of 224 from 256 px",
        f"{area:.0%} of the square is seen",
    )


@pytest.mark.slow
def test_the_table_lists_every_difference_and_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ["| weights | here | elsewhere | difference |", "|---|---|---|---|"]
    table += [f"| {' | '.join(row)} |" for row in rows(tmp_path, monkeypatch)]
    # Digits after the first depend on the processor.
    number = re.compile(r"\d\.\de-\d\d")
    content = PAGE.read_text()
    for row in table:
        pattern = re.escape(number.sub("NUMBER", row)).replace("NUMBER", f"({number.pattern})")
        found = re.search(pattern, content)
        assert found, "docs/pretrained.md must contain:\n" + "\n".join(table)
        documented, computed = found.groups(), number.findall(row)
        for one, other in zip(documented, computed, strict=True):
            assert float(one) == pytest.approx(float(other), rel=0.1)
