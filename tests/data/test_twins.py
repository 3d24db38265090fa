from __future__ import annotations

import io

import numpy as np
import PIL.Image
import PIL.ImageFilter
import pytest

from keras_vit.data.twins import DISTANCE, content_hash, find_twins


def photograph(seed: int, size: tuple[int, int] = (300, 200)) -> PIL.Image.Image:
    """Smooth shapes in color, different for each seed."""
    noise = np.random.default_rng(seed).integers(0, 256, (9, 13, 3), "uint8")
    return PIL.Image.fromarray(noise).resize(size, PIL.Image.Resampling.BICUBIC)


def saved(image: PIL.Image.Image, quality: int) -> PIL.Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return PIL.Image.open(io.BytesIO(file.getvalue()))


def distance(one: PIL.Image.Image, other: PIL.Image.Image) -> int:
    hashes = [content_hash(np.asarray(image.convert("RGB"))) for image in (one, other)]
    return int(np.sum(hashes[0] != hashes[1]))  # type: ignore[arg-type]


def test_the_same_photograph_in_another_size_or_quality_is_near() -> None:
    image = photograph(1)
    # Measured: 0 to 7.
    assert distance(image, saved(image, 40)) <= DISTANCE
    assert distance(image, image.resize((150, 100))) <= DISTANCE
    assert distance(image, image.filter(PIL.ImageFilter.GaussianBlur(1))) <= DISTANCE
    assert distance(image, image.point(lambda value: value * 0.8)) <= DISTANCE


def test_different_photographs_are_not_near() -> None:
    images = [photograph(seed) for seed in range(30)]
    near = [distance(a, b) for i, a in enumerate(images) for b in images[:i]]
    assert min(near) > 4 * DISTANCE


def test_small_and_plain_images_are_not_compared() -> None:
    assert content_hash(np.asarray(photograph(1, (63, 200)))) is None
    assert content_hash(np.full((200, 300, 3), 77, np.uint8)) is None


NONE = None
BITS = np.random.default_rng(0).random((4, 256)) > 0.5


def test_near_contents_are_grouped_whatever_their_names() -> None:
    close = BITS[0].copy()
    close[:DISTANCE] ^= True
    far = BITS[0].copy()
    far[: DISTANCE + 1] ^= True
    hashes = {"x/1": BITS[0], "b/2": close, "c/3": far, "d/4": BITS[1], "e/5": None}
    assert find_twins({**hashes, "c/3": BITS[2]}) == (("b/2", "x/1"),)
    assert find_twins({"a": BITS[0], "b": far}) == ()


@pytest.mark.parametrize(
    "names",
    [
        ("a/IMG_1234.HEIC", "a/IMG_1234.JPG"),
        ("a/IMG_1234.JPG", "a/IMG_E1234.JPG"),
        ("a/x.jpg", "a/x-edited.jpg"),
        ("a/x (1).jpg", "a/x.jpg"),
        ("a/x(1).jpg", "a/x.jpg"),
        ("a/x.jpg", "a/x_COVER.jpg"),
        ("a/PXL_1~2.jpg", "a/PXL_1.jpg"),
        ("a/IMG_2019_BURST001.jpg", "a/IMG_2019_BURST002.jpg"),
        ("00000IMG_00000_BURST20190101123_COVER.jpg", "00001IMG_00001_BURST20190101123.jpg"),
    ],
)
def test_files_of_one_photograph_by_name(names: tuple[str, str]) -> None:
    assert find_twins(dict.fromkeys(names)) == (tuple(sorted(names)),)


@pytest.mark.parametrize(
    "names",
    [
        ("a/IMG_1234.JPG", "b/IMG_1234.JPG"),
        ("a/IMG_1234.JPG", "a/IMG_1235.JPG"),
        ("a/download (1).jpg", "a/download (2).jpg", "a/download.jpg"),
        ("a/1.jpg", "a/11.jpg"),
        ("a/2.5.jpg", "a/2.6.jpg"),
        ("a/discover.jpg", "a/dis.jpg"),
    ],
)
def test_other_files_are_not_grouped(names: tuple[str, ...]) -> None:
    assert find_twins(dict.fromkeys(names)) == ()


def test_groups_are_joined() -> None:
    hashes = {"a/x.jpg": BITS[0], "a/x-edited.jpg": BITS[1], "b/y.jpg": BITS[1], "c/z.jpg": BITS[2]}
    assert find_twins(hashes) == (("a/x-edited.jpg", "a/x.jpg", "b/y.jpg"),)
