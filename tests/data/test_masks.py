"""Masks of the kinds that annotation tools write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit.data import Examples
from keras_vit.data.masks import IGNORED, Masks

pytestmark = pytest.mark.tensorflow
CLASSES = np.array([[0, 1, 2], [2, 1, IGNORED]], np.uint8)
COLORS = [(128, 64, 0), (0, 0, 7), (255, 255, 255)]


def palette_image(mask: np.ndarray) -> PIL.Image.Image:
    image = PIL.Image.fromarray(mask, "P")
    image.putpalette([9, 8, 7] * 256)  # all colors alike: only the indices count
    return image


@pytest.mark.parametrize(
    "image",
    [
        PIL.Image.fromarray(CLASSES),
        palette_image(CLASSES),
        PIL.Image.fromarray(CLASSES.astype(np.uint16)),
        PIL.Image.fromarray(np.repeat(CLASSES[..., None], 3, axis=-1)),
        PIL.Image.fromarray(np.stack([CLASSES, 9 * CLASSES], axis=-1)),
    ],
    ids=["gray", "palette", "16 bits", "gray as RGB", "gray with alpha"],
)
def test_values_are_the_indices_of_the_classes(image: PIL.Image.Image, tmp_path: Path) -> None:
    image.save(tmp_path / "a.png")
    np.testing.assert_array_equal(Masks([0, 1, 2]).read(tmp_path / "a.png"), CLASSES)


def test_colors_are_the_classes_of_a_table(tmp_path: Path) -> None:
    colors = np.array([*COLORS, (1, 1, 1)], np.uint8)
    pixels = colors[np.minimum(CLASSES, 3)]
    PIL.Image.fromarray(pixels).save(tmp_path / "a.png")
    masks = Masks(COLORS, [(1, 1, 1)])
    np.testing.assert_array_equal(masks.read(tmp_path / "a.png"), CLASSES)
    with pytest.raises(ValueError, match=r"values that are not a class: \(1, 1, 1\)"):
        Masks(COLORS).read(tmp_path / "a.png")


def test_values_above_255_may_be_classes(tmp_path: Path) -> None:
    stored = np.where(CLASSES == IGNORED, 65535, CLASSES.astype(int) * 300)
    PIL.Image.fromarray(stored.astype(np.uint16)).save(tmp_path / "a.png")
    masks = Masks([0, 300, 600], [65535])
    np.testing.assert_array_equal(masks.read(tmp_path / "a.png"), CLASSES)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_lossy_files_are_refused(kind: str, tmp_path: Path) -> None:
    PIL.Image.fromarray(CLASSES).save(tmp_path / "a", kind)
    with pytest.raises(ValueError, match=f"is a lossy {kind}"):
        Masks([0, 1, 2]).read(tmp_path / "a")


def test_lossless_webp_is_read(tmp_path: Path) -> None:
    stored = np.where(CLASSES == IGNORED, 3, CLASSES)
    PIL.Image.fromarray(stored).save(tmp_path / "a.webp", lossless=True)
    np.testing.assert_array_equal(Masks([0, 1, 2], [3]).read(tmp_path / "a.webp"), CLASSES)


@pytest.mark.filterwarnings("ignore")
def test_mutated_masks_are_read_or_refused(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "a.png"
    palette_image(rng.integers(0, 3, (40, 60)).astype(np.uint8)).save(path)
    stored, refused = np.frombuffer(path.read_bytes(), np.uint8), 0
    for number in range(200):
        changed = stored.copy()
        places = rng.integers(0, len(stored) if number % 2 else 60, rng.integers(1, 20))
        changed[places] = rng.integers(0, 256, len(places))
        path.write_bytes(changed[: len(stored) if number % 3 else rng.integers(len(stored))])
        try:
            Masks([0, 1, 2]).read(path)
        except ValueError as error:
            assert str(error).startswith("the mask ")  # noqa: PT017
            refused += 1
    assert refused > 150


def test_masks_of_a_dataset_get_the_classes_of_a_model(tmp_path: Path) -> None:
    PIL.Image.fromarray(CLASSES).save(tmp_path / "a.png")
    examples = Examples(
        names=("a",),
        targets=[str(tmp_path / "a.png")],
        class_names=("road", "car", "tree"),
        source="memory",
        encoded=(b"1",),
        target_kind=Masks([0, 1, 2]),
    )
    aligned = examples.with_classes(["car", "sky", "tree", "road"])
    (mask,) = aligned.kind.loaded(aligned)
    np.testing.assert_array_equal(mask, [[3, 0, 2], [2, 0, IGNORED]])
    np.testing.assert_array_equal(examples.kind.loaded(examples)[0], CLASSES)
    with pytest.raises(ValueError, match="the model lacks: tree"):
        examples.with_classes(["car", "road"])
