from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from PIL import ImageCms

from keras_vit.data import Examples, audit, load

Write = Callable[..., Path]

ROTATED = PIL.Image.Exif()
ROTATED[0x0112] = 6  # orientation


def saved(pixels: np.ndarray, mode: str, **options: object) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "options",
    [{}, {"restart_marker_blocks": 5}, {"subsampling": 0}, {"exif": ROTATED}],
    ids=["subsampled", "restart", "full_chroma", "rotated"],
)
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("trailing", [b"", bytes(9)])
def test_jpeg_without_its_last_blocks_is_damaged(
    tmp_path: Path, write: Write, options: dict, mode: str, trailing: bytes
) -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (61, 43, 3), "uint8")
    jpeg = saved(pixels, mode, **options)
    start = jpeg.index(b"\xff\xda")  # of the scan
    cut = jpeg[: (start + len(jpeg)) // 2].rstrip(b"\xff") + b"\xff\xd9"
    files = {"a/cut.jpg": cut + trailing, "a/whole.jpg": jpeg + trailing}
    report = audit(load(write(tmp_path, files)), progress=False)
    assert dict(report.bad) == {"a/cut.jpg": "damaged or truncated JPEG"}


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 5}])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpeg_with_gray_corners_is_usable(
    tmp_path: Path, write: Write, options: dict, mode: str
) -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (61, 43, 3), "uint8")
    pixels[24:] = 128  # as the decoder fills missing blocks
    files = {"a/gray.jpg": saved(pixels, mode, **options)}
    assert audit(load(write(tmp_path, files)), progress=False).bad == ()


# Red of Adobe RGB (1998), Display P3 and ProPhoto RGB, and of sRGB with a rounding error.
@pytest.mark.parametrize(
    ("red", "other"), [(0.6097, True), (0.5151, True), (0.7977, True), (0.4358, False)]
)
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_images_with_other_colors_are_named(
    noise: Callable[..., Examples], red: float, other: bool, format: str
) -> None:
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    offset = int.from_bytes(profile[(entry := profile.index(b"rXYZ")) + 4 : entry + 8], "big")
    profile[offset + 8 : offset + 12] = round(red * 65536).to_bytes(4, "big")
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (9, 8, 3), "uint8")
    PIL.Image.fromarray(pixels).save(file, format, icc_profile=bytes(profile))
    report = audit(noise(1, encoded=(file.getvalue(),)), progress=False)
    assert report.other_colors == (("000.png",) if other else ())
    assert ("`keras-vit data convert` converts them (1):" in report.text()) == other


def test_damaged_color_profiles_are_ignored(noise: Callable[..., Examples]) -> None:
    file = io.BytesIO()
    PIL.Image.new("RGB", (9, 9)).save(file, "JPEG", icc_profile=b"no profile")
    assert audit(noise(1, encoded=(file.getvalue(),)), progress=False).other_colors == ()


@pytest.mark.parametrize(("highest", "narrow"), [(4095, True), (40_000, False), (7, False)])
def test_16_bit_image_of_a_small_range_is_named(
    noise: Callable[..., Examples], highest: int, narrow: bool
) -> None:
    levels = np.linspace(0, highest, 77).reshape(7, 11).astype(np.uint16)
    file = io.BytesIO()
    PIL.Image.fromarray(levels).save(file, "PNG")
    found = audit(noise(1, encoded=(file.getvalue(),)), progress=False)
    assert found.narrow == (("000.png",) if narrow else ())
    assert ("16-bit images that use less than a quarter" in found.text()) == narrow


def test_image_that_claims_too_many_pixels_is_not_decoded(noise: Callable[..., Examples]) -> None:
    def chunk(content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
        )

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR" + header) + chunk(b"IDAT" + zlib.compress(b"\0"))
    ((_, reason),) = audit(noise(1, encoded=(png,)), progress=False).bad
    assert reason == "has 60000 x 60000 pixels, more than the limit of 64218112"
