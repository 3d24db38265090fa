"""Reads images of any format as upright 8-bit sRGB pictures, without TensorFlow.

H and W are the image's height and width, C the number of channels.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import io
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from PIL import ImageCms, ImageOps

from keras_vit import image_formats

EXTRAS = {"HEIC": ("pillow_heif", "formats"), "DICOM": ("pydicom", "dicom")}  # module, extra
_MOST_PIXELS = 200_000_000
_ORIENTATION, _WHITE_IS_ZERO = 0x0112, 262  # tags of Exif and of TIFF
_SAME_COLOUR = 3  # grey levels by which a profile may differ and still count as sRGB
# Pillow starts Ghostscript for EPS; the others are no files of one picture.
_NOT_OPENED = {"EPS", "WMF", "MPEG", "PDF", "HDF5", "GRIB", "BUFR"}
_OTHER_BYTE = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}


@dataclasses.dataclass(frozen=True)
class Picture:
    """An 8-bit RGB or grey image, what was left out of its file, and the window of its values."""

    image: PIL.Image.Image
    pages: int = 0
    window: tuple[float, float] | None = None
    bad_profile: bool = False


def missing_extra(format: str) -> str | None:
    """Returns the extra that must be installed to read a format, None if nothing is missing."""
    module, extra = EXTRAS.get(format, (None, None))
    return extra if module and importlib.util.find_spec(module) is None else None


@contextlib.contextmanager
def pixel_limit() -> Iterator[None]:
    """Has Pillow refuse images above 200 megapixels, and no smaller ones, without warnings."""
    before, PIL.Image.MAX_IMAGE_PIXELS = PIL.Image.MAX_IMAGE_PIXELS, _MOST_PIXELS // 2
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        PIL.Image.MAX_IMAGE_PIXELS = before


def failure(error: Exception, format: str | None) -> str:
    """Returns in a few words why an image cannot be converted."""
    if isinstance(error, PIL.Image.DecompressionBombError):
        return "more than 200 megapixels"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, PIL.UnidentifiedImageError):
        return f"damaged, or a kind of {format} that Pillow {PIL.__version__} does not read"
    format = format or "a file"
    first = (str(error).splitlines() or [""])[0]
    return f"cannot be read as {format}: {first or type(error).__name__}"


def is_decoded(path: Path, format: str, head: bytes, max_side: int | None) -> tuple[bool, bool]:
    """Returns whether TensorFlow decodes a file as it is meant, and if its profile is damaged."""
    if format == "BMP":  # without palette, compression or masks
        bits, compression = head[28], int.from_bytes(head[30:34], "little")
        if head[14] < 40 or bits not in (24, 32) or compression:
            return False, False
    elif (format == "PNG" and (head[24] == 16 or head[12:16] != b"IHDR")) or (
        format == "WebP" and head[12:16] == b"VP8X" and head[20] & 2
    ):  # bits, first chunk
        return False, False
    if format not in image_formats.DECODED or (format in ("BMP", "WebP") and not max_side):
        return format in image_formats.DECODED, False
    with PIL.Image.open(path, formats=_formats()) as image:
        if (max_side and max(image.size) > max_side) or image.mode == "CMYK":
            return False, False
        if format == "GIF":  # its first frame fills it
            return bool(image.tile) and image.tile[0].extents == (0, 0, *image.size), False
        if format in ("BMP", "WebP"):
            return True, False
        try:
            return _to_srgb(image) is None, False
        except (ImageCms.PyCMSError, OSError):
            return True, True


def read_picture(
    path: Path, format: str, window: tuple[float, float] | None, max_side: int | None
) -> Picture:
    """Reads an image; transparency is dropped, as TensorFlow's decoders drop it."""
    if format == "DICOM":
        picture = _read_dicom(path, window)
    else:
        if format == "HEIC":
            import pillow_heif

            pillow_heif.register_heif_opener()
        with PIL.Image.open(path, formats=_formats()) as image:
            picture = _read(image, path, window)
    if max_side:
        picture.image.thumbnail((max_side, max_side), PIL.Image.Resampling.LANCZOS, None)
    return picture


def _formats() -> list[str]:
    PIL.Image.init()
    return [name for name in PIL.Image.ID if name not in _NOT_OPENED]


def _read(image: Any, path: Path, window: tuple[float, float] | None) -> Picture:
    # Frames of these would be the layers, or a preview beside the photograph.
    one_page = image.format in ("PSD", "JPEG", "MPO")
    pages = 0 if one_page else getattr(image, "n_frames", 1) - 1
    values = _deep_values(image, path)
    image.load()
    orientation = image.getexif().get(_ORIENTATION, 1)  # after loading, which turns TIFFs
    if values is None:
        window, result = None, image
    else:
        window = window or _range(values)
        result = PIL.Image.fromarray(scaled(values, window))
        if values.ndim == 2 and getattr(image, "tag_v2", {}).get(_WHITE_IS_ZERO) == 0:
            result = ImageOps.invert(result)
    result.info = {"icc_profile": image.info.get("icc_profile")}
    bad_profile, transform = False, None
    try:
        transform = _to_srgb(result)
    except (ImageCms.PyCMSError, OSError):
        bad_profile = True
    mode = _colour_mode(result)
    result = result if result.mode == mode else result.convert(mode)
    if transform:
        result = ImageCms.applyTransform(result, transform)
    elif mode == "CMYK":
        result = result.convert("RGB")
    clean = PIL.Image.new(result.mode, result.size)  # without metadata
    clean.paste(result)
    clean.getexif()[_ORIENTATION] = orientation
    return Picture(ImageOps.exif_transpose(clean), pages, window, bad_profile)


def _colour_mode(image: PIL.Image.Image) -> str:
    if image.mode in ("L", "LA", "La", "1"):
        return "L"
    return "CMYK" if image.mode == "CMYK" else "RGB"


def _to_srgb(image: PIL.Image.Image) -> ImageCms.ImageCmsTransform | None:
    profile = image.info.get("icc_profile")
    return _transform(profile, _colour_mode(image)) if profile else None


@functools.lru_cache(maxsize=16)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Returns the way from a profile to sRGB, None if it leaves colours as they are."""
    transform = ImageCms.buildTransform(
        ImageCms.ImageCmsProfile(io.BytesIO(profile)),
        ImageCms.createProfile("sRGB"),
        mode,
        "RGB",
        ImageCms.Intent.RELATIVE_COLORIMETRIC,
        ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )
    if mode == "CMYK":
        return transform
    levels = np.linspace(0, 255, 16).astype(np.uint8)
    grid = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(16, 256, 3)
    probe = PIL.Image.fromarray(grid if mode == "RGB" else levels[np.newaxis])
    result = ImageCms.applyTransform(probe, transform)
    difference = np.asarray(result, np.int16) - np.asarray(probe.convert("RGB"), np.int16)
    return transform if np.abs(difference).max() > _SAME_COLOUR else None


def _deep_values(image: Any, path: Path) -> np.ndarray | None:
    """Returns the values (H, W) or (H, W, C) of an image with more than 8 bits, else None."""
    if image.mode[0] in "IF":
        return np.asarray(image)
    tiles = image.tile
    arguments = tiles[0].args if len(tiles) == 1 else ()
    raw = arguments if isinstance(arguments, str) else next(iter(arguments or ()), "")
    if raw not in {
        f"{mode};16{order}" for mode in ("LA", "RGB", "RGBA", "RGBX") for order in "BLN"
    }:
        return None
    # Pillow keeps the upper bytes of such images; told of the other order, it keeps the lower.
    other = "RGBA" if raw.startswith("LA") else raw[:-1] + _OTHER_BYTE[raw[-1]]
    with PIL.Image.open(path, formats=[image.format]) as again:
        changed = other if isinstance(arguments, str) else (other, *arguments[1:])
        again.tile = [again.tile[0]._replace(args=changed)]
        lower = np.asarray(again).astype(np.uint16)
    if raw.startswith("LA"):  # all bytes: those of grey, then those of transparency
        return lower[..., 0] << 8 | lower[..., 1]
    return (np.asarray(image).astype(np.uint16) << 8 | lower)[..., :3]


def _range(values: np.ndarray) -> tuple[float, float]:
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return (finite.min().item(), finite.max().item()) if finite.size else (0, 0)


def scaled(values: np.ndarray, window: tuple[float, float]) -> np.ndarray:
    """Returns values as uint8: the window's ends, and what lies beyond, are 0 and 255."""
    low, high = window
    exact: Any = np.float32 if values.dtype.itemsize <= 2 else np.float64
    unit = (values.astype(exact) - exact(low)) * exact(255) / exact((high - low) or 1)
    return np.nan_to_num(np.clip(np.rint(unit), 0, 255), nan=0).astype(np.uint8)


def _read_dicom(path: Path, window: tuple[float, float] | None) -> Picture:
    import pydicom
    from pydicom import pixels

    dataset = pydicom.dcmread(path)
    if "Rows" not in dataset:
        raise ValueError("it holds no image")
    if dataset.Rows * dataset.Columns > _MOST_PIXELS:
        raise PIL.Image.DecompressionBombError
    values = pixels.pixel_array(dataset, index=0)
    pages = int(dataset.get("NumberOfFrames") or 1) - 1
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        values = pixels.apply_color_lut(values, dataset)
    if values.ndim == 2:
        is_byte = values.dtype == np.uint8
        values = pixels.apply_rescale(values, dataset)
        window = window or _own_window(dataset)
        window = window or ((0, 255) if is_byte and values.dtype == np.uint8 else _range(values))
    elif values.dtype == np.uint8:
        return Picture(PIL.Image.fromarray(values), pages)
    window = window or _range(values)
    image = PIL.Image.fromarray(scaled(values, window))
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        image = ImageOps.invert(image)
    return Picture(image, pages, window)


def _own_window(dataset: Any) -> tuple[float, float] | None:
    """Returns the first window that a DICOM file names (PS3.3, C.11.2.1.2)."""
    if dataset.get("WindowCenter") is None or dataset.get("WindowWidth") is None:
        return None
    centre, width = (
        float(value[0] if isinstance(value, (list, tuple)) or hasattr(value, "__len__") else value)
        for value in (dataset.WindowCenter, dataset.WindowWidth)
    )
    if dataset.get("VOILUTFunction", "LINEAR") == "LINEAR":
        centre, width = centre - 0.5, width - 1
    return centre - width / 2, centre + width / 2
