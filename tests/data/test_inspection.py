from __future__ import annotations

import dataclasses
import io
import itertools
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
from PIL import ImageCms

from keras_vit.data import Examples, audit, load

Write = Callable[..., Path]

ROTATED = PIL.Image.Exif()
ROTATED[0x0112] = 6  # orientation


def saved(pixels: np.ndarray, mode: str, **options: object) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


JPEGS = {
    "subsampled": {},
    "restart": {"restart_marker_blocks": 5},
    "full_chroma": {"subsampling": 0},
    "rotated": {"exif": ROTATED},
}


def test_jpeg_without_its_last_blocks_is_damaged(tmp_path: Path, write: Write) -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (61, 43, 3), "uint8")
    cut, whole = {}, {}
    for name, mode, trailing in itertools.product(JPEGS, ("RGB", "L"), (b"", bytes(9))):
        jpeg = saved(pixels, mode, **JPEGS[name])
        start = jpeg.index(b"\xff\xda")  # of the scan
        half = jpeg[: (start + len(jpeg)) // 2].rstrip(b"\xff") + b"\xff\xd9"
        kind = f"a/{name}_{mode}_{len(trailing)}"
        cut[f"{kind}_cut.jpg"] = half + trailing
        whole[f"{kind}_whole.jpg"] = jpeg + trailing
    report = audit(load(write(tmp_path, cut | whole)), progress=False)
    assert dict(report.bad) == dict.fromkeys(cut, "damaged or truncated JPEG")
    assert set(report.digests) == set(whole)


def test_jpeg_with_gray_corners_is_usable(tmp_path: Path, write: Write) -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (61, 43, 3), "uint8")
    pixels[24:] = 128  # as the decoder fills missing blocks
    flat = np.full((48, 56, 3), 128, "uint8")
    flat[8:20, 8:30] = 40, 90, 200  # whose last scan is shorter than what is inserted
    kinds = [{}, {"progressive": True}, {"restart_marker_blocks": 5}]
    files = {
        f"a/{mode}_{number}_{len(image)}.jpg": saved(image, mode, **options)
        for image in (pixels, flat)
        for mode in ("RGB", "L")
        for number, options in enumerate(kinds)
    }
    report = audit(load(write(tmp_path, files)), progress=False)
    assert report.bad == ()
    assert set(report.digests) == set(files)


def with_red(red: float, format: str) -> bytes:
    """An image whose color profile is sRGB with another red."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    offset = int.from_bytes(profile[(entry := profile.index(b"rXYZ")) + 4 : entry + 8], "big")
    profile[offset + 8 : offset + 12] = round(red * 65536).to_bytes(4, "big")
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (9, 8, 3), "uint8")
    PIL.Image.fromarray(pixels).save(file, format, icc_profile=bytes(profile))
    return file.getvalue()


def test_images_with_other_colors_are_named(noise: Callable[..., Examples]) -> None:
    # Adobe RGB (1998), Display P3 and ProPhoto RGB, and last sRGB with a rounding error.
    kinds = [(red, f) for red in (0.6097, 0.5151, 0.7977, 0.4358) for f in ("JPEG", "PNG", "WEBP")]
    report = audit(noise(12, encoded=tuple(with_red(*kind) for kind in kinds)), progress=False)
    assert report.other_colors == tuple(f"{number:03d}.png" for number in range(9))
    assert "`keras-vit data convert` converts them (9):" in report.text()
    others = dataclasses.replace(report, other_colors=())
    assert "`keras-vit data convert` converts them" not in others.text()


def test_damaged_color_profiles_are_ignored(noise: Callable[..., Examples]) -> None:
    file = io.BytesIO()
    PIL.Image.new("RGB", (9, 9)).save(file, "JPEG", icc_profile=b"no profile")
    assert audit(noise(1, encoded=(file.getvalue(),)), progress=False).other_colors == ()


def test_16_bit_image_of_a_small_range_is_named(noise: Callable[..., Examples]) -> None:
    def rising(highest: int) -> bytes:
        levels = np.linspace(0, highest, 77).reshape(7, 11).astype(np.uint16)
        file = io.BytesIO()
        PIL.Image.fromarray(levels).save(file, "PNG")
        return file.getvalue()

    encoded = tuple(rising(highest) for highest in (4095, 40_000, 7))
    found = audit(noise(3, encoded=encoded), progress=False)
    assert found.narrow == ("000.png",)
    message = "16-bit images that use less than a quarter"
    assert message in found.text()
    assert message not in dataclasses.replace(found, narrow=()).text()


def test_image_that_claims_too_many_pixels_is_not_decoded(noise: Callable[..., Examples]) -> None:
    def chunk(content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
        )

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR" + header) + chunk(b"IDAT" + zlib.compress(b"\0"))
    ((_, reason),) = audit(noise(1, encoded=(png,)), progress=False).bad
    assert reason == "has 60000 x 60000 pixels, more than the limit of 64218112"
