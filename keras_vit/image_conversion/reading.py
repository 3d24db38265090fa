"""Image file decoding to upright 8-bit sRGB pixels, without TensorFlow.

H and W are the image's height and width, C the number of channels.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from PIL import ImageCms, ImageFile, ImageOps, JpegImagePlugin

from keras_vit import image_formats
from keras_vit.constants import MAX_PIXELS

Window = tuple[float, float] | None
Picture = tuple[PIL.Image.Image, int]  # an 8-bit RGB or gray image, and the number of further pages

# Pillow starts Ghostscript for EPS; the others are not single-image formats.
_NOT_OPENED = {"EPS", "WMF", "MPEG", "PDF", "HDF5", "GRIB", "BUFR"}
_MODES = {"1": "L", "L": "L", "LA": "L", "La": "L", "CMYK": "CMYK"}  # otherwise RGB
_MAX_JPEG_PIXELS = 16 * MAX_PIXELS  # training decodes large JPEGs at 1/4 of their sides


def is_decoded(path: Path, format: str, head: bytes, max_side: int | None) -> bool:
    """Returns whether TensorFlow decodes an image file correctly."""
    if format not in image_formats.DECODED:
        return False
    with _open(path) as image:
        if (max_side and max(image.size) > max_side) or image.mode == "CMYK" or _to_srgb(image):
            return False
        if format == "BMP":  # without palette, compression or masks
            return head[14] >= 40 and head[28] in (24, 32) and not any(head[30:34])
        if format == "GIF":  # its first frame fills the screen
            return image.tile[0].extents == (0, 0, *image.size)
        if format == "WebP":  # without animation
            return head[12:16] != b"VP8X" or not head[20] & 2
        # 8 bits; and no chunk before the header, which hides the size.
        return format != "PNG" or (head[24] <= 8 and head[12:16] == b"IHDR")


def read_picture(path: Path, format: str, window: Window, max_side: int | None) -> Picture:
    """Reads an image; drops transparency, as TensorFlow's decoders do."""
    if format == "HEIC":
        import pillow_heif

        pillow_heif.register_heif_opener()
    image, pages = (_read_dicom if format == "DICOM" else _read)(path, window)
    if max_side:
        image.thumbnail((max_side, max_side), PIL.Image.Resampling.LANCZOS, None)
    return image, pages


def open_image(file: Any, formats: list[str] | None = None) -> ImageFile.ImageFile:
    """Opens an image file; a JPEG also above Pillow's limit, up to that of training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return PIL.Image.open(file, formats=formats)
        except PIL.Image.DecompressionBombError:
            if not isinstance(file, os.PathLike):
                file.seek(0)
            with contextlib.suppress(SyntaxError):  # not a JPEG
                image = JpegImagePlugin.JpegImageFile(file)  # without Pillow's limit
                if math.prod(image.size) <= _MAX_JPEG_PIXELS:
                    return image
                image.close()
            raise


def _open(path: Path) -> ImageFile.ImageFile:
    PIL.Image.init()
    return open_image(path, [name for name in PIL.Image.ID if name not in _NOT_OPENED])


def _read(path: Path, window: Window) -> Picture:
    with _open(path) as image:
        # Further frames of these formats are layers or previews.
        pages = 0 if image.format in ("PSD", "JPEG", "MPO") else getattr(image, "n_frames", 1) - 1
        cut_to_8_bits = re.search("[AB];16[BLN]", str(image.tile))  # raw modes
        result = ImageOps.exif_transpose(image)
    if cut_to_8_bits:
        result = _stretch(np.asarray(result)[..., :3] * np.uint16(257), window)
    elif result.mode[0] in "IF":
        result = _stretch(np.asarray(result), window)
        if getattr(image, "tag_v2", {}).get(262) == 0:  # PhotometricInterpretation: white is zero
            result = ImageOps.invert(result)
    result.info = image.info
    transform = _to_srgb(result)
    result = result.convert(_MODES.get(result.mode, "RGB"))
    if transform:
        result = transform.apply(result)
    elif result.mode == "CMYK":
        result = result.convert("RGB")
    return PIL.Image.fromarray(np.asarray(result)), pages  # without metadata


def _to_srgb(image: PIL.Image.Image) -> ImageCms.ImageCmsTransform | None:
    """Returns the transform to sRGB if the image has a different, valid color profile."""
    with contextlib.suppress(ImageCms.PyCMSError, OSError):
        profile = ImageCms.ImageCmsProfile(io.BytesIO(image.info.get("icc_profile") or b""))
        if "sRGB" not in ImageCms.getProfileDescription(profile):
            mode = _MODES.get(image.mode, "RGB")
            return ImageCms.buildTransform(profile, ImageCms.createProfile("sRGB"), mode, "RGB")
    return None


def _stretch(values: np.ndarray, window: Window) -> PIL.Image.Image:
    """Maps values (H, W) or (H, W, C) to an 8-bit image; `window` defaults to their range."""
    if values.dtype == np.uint8:
        return PIL.Image.fromarray(values)
    finite = values[np.isfinite(values)]
    low, high = window or ((finite.min().item(), finite.max().item()) if finite.size else (0, 0))
    values = values.astype(np.float32 if values.dtype.itemsize <= 2 else np.float64)
    values = np.clip(np.rint((values - low) * 255 / ((high - low) or 1)), 0, 255)
    return PIL.Image.fromarray(np.nan_to_num(values).astype(np.uint8))


def _read_dicom(path: Path, window: Window) -> Picture:
    import pydicom
    from pydicom import pixels

    dataset = pydicom.dcmread(path)
    values = pixels.pixel_array(dataset, index=0)
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        values = pixels.apply_color_lut(values, dataset)
    if values.ndim == 2:
        values = pixels.apply_rescale(values, dataset)
        if not window and None not in (dataset.get("WindowCenter"), dataset.get("WindowWidth")):
            all_values = np.array([-np.inf, np.inf])  # become black and white
            window = tuple(pixels.apply_windowing(all_values, dataset))
            values = pixels.apply_windowing(values, dataset)
    image = _stretch(values, window)
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        image = ImageOps.invert(image)
    return image, int(dataset.get("NumberOfFrames") or 1) - 1
