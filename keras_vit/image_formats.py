"""Recognition of image file formats by content."""

from __future__ import annotations

import os
import re
from pathlib import Path

DECODED = ("JPEG", "PNG", "GIF", "BMP", "WebP")  # by training, prediction and serving
# By `keras-vit data convert`, with optional dependencies.
CONVERTIBLE = frozenset(("HEIC", "AVIF", "TIFF", "JPEG 2000", "DICOM", "PSD", "Netpbm"))

# Files with these suffixes are images even if their content is not recognized.
_RAW_SUFFIX = re.compile(
    r"\.(arw|cr[23w]|dng|erf|kdc|mrw|nef|nrw|orf|pef|raf|raw|rw2|sr[2fw]|x3f)$", re.IGNORECASE
)
_SUFFIX = re.compile(
    r"\.(jpe?g|jpe|jfif|mpo|png|gif|bmp|dib|webp|hei[cf]|hif|avif|tiff?|jp2|j2k|jpx|jxl"
    r"|dcm|dicom|psd|svg|exr|p[bgnp]m)$",
    re.IGNORECASE,
)
# Formats without a signature, or whose signature could begin a text file.
_BY_SUFFIX = {".svg": "SVG", **dict.fromkeys((".pgm", ".ppm", ".pbm", ".pnm"), "Netpbm")}
_BACKUP_ENDINGS = ("~", "_original", ".bak", ".backup", ".old", ".orig")
# Visible folders and files of other programs: kind -> whole names.
_LEFTOVERS = {
    kind: re.compile(names, re.IGNORECASE)
    for kind, names in {
        "thumbnail": r"@eaDir|SYNOPHOTO_THUMB_.*|(eh)?thumbs.*\.db|.*\.lrdata",
        "deleted or earlier version": r"[#@]recycle|\$RECYCLE\.BIN|#snapshot|@Recently-Snapshot",
        "of the operating system": r"__MACOSX|lost\+found|System Volume Information|desktop\.ini",
        "of another program": r"__pycache__|Picasa\.ini|.*\.lrcat",
    }.items()
}

# First bytes of each format; the first match decides.
_SIGNATURES = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "JPEG 2000": (b"\x00\x00\x00\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"),
    "JPEG XL": (b"\x00\x00\x00\x0cJXL \r\n\x87\n", b"\xff\x0a"),
    "camera raw": (
        *(b"II*\x00\x10\x00\x00\x00CR", b"FUJIFILMCCD-RAW", b"IIRO", b"IIRS", b"MMOR", b"IIU\x00"),
        b"FOVb",
    ),
    "TIFF": (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"),
    "PSD": (b"8BPS",),
    "OpenEXR": (b"v/1\x01",),
}
# Brands of ISO base media files (ISO/IEC 23008-12 for HEIF, the AV1 Image File Format for AVIF).
_BRANDS = {
    **dict.fromkeys(
        (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "HEIC"
    ),
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    b"crx ": "camera raw",
}
# Texts that are often stored in place of an image, with the remedy: kind -> start.
_TEXTS = {
    "a data URI: decode the base64 text after its comma": rb"data:[\w/+.-]*[;,]",
    "base64 text: decode it": rb"/9j/|iVBORw0KGgo|R0lGOD|UklGR",
    "an HTML page: download the image again": rb"(\xef\xbb\xbf)?\s*<(?i:(!doctype\s+)?html\b)",
    "a Git LFS pointer: run `git lfs pull`": rb"version https://git-lfs\.",
}
_BMP_HEADERS = frozenset((12, 16, 40, 52, 56, 64, 108, 124))  # sizes in bytes
_HEAD = 132  # bytes; the longest signature (DICOM's) ends there


def image_format(head: bytes, name: str = "") -> str | None:
    """Returns the format of an image file, or None if it is not a known image format."""
    for format_name, signatures in _SIGNATURES.items():
        if head.startswith(signatures):
            is_raw = format_name == "TIFF" and _RAW_SUFFIX.search(name)
            return "camera raw" if is_raw else format_name
    if head.startswith(b"DICM", 128):
        return "DICOM"
    if head.startswith(b"RIFF") and head.startswith(b"WEBP", 8):
        return "WebP"
    if head.startswith(b"ftyp", 4):
        # The compatible brands decide if the main brand (mif1) only means "an image".
        brands = [head[8:12], *(head[i : i + 4] for i in range(16, min(len(head), 64), 4))]
        known_brands = [_BRANDS[brand] for brand in brands if brand in _BRANDS]
        return "AVIF" if "AVIF" in known_brands else known_brands[0] if known_brands else None
    # Two letters are too few: the size of the second header must also be valid.
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return "BMP"
    return _BY_SUFFIX.get(Path(name).suffix.lower())


def text_format(head: bytes) -> str | None:
    """Returns the kind of a text that is not an image, with a remedy; None if it is not known."""
    return next((kind for kind, start in _TEXTS.items() if re.match(start, head)), None)


def read_head(path: str | os.PathLike[str]) -> bytes:
    """Reads the first bytes of a file, to pass to `image_format`."""
    with open(path, "rb") as file:
        return file.read(_HEAD)


def has_image_suffix(name: str) -> bool:
    """Returns whether a file name ends with the suffix of an image format."""
    return bool(_SUFFIX.search(name) or _RAW_SUFFIX.search(name))


def leftover(name: str) -> str | None:
    """Returns the kind of a file or folder that another program left behind, or None."""
    return next((kind for kind, names in _LEFTOVERS.items() if names.fullmatch(name)), None)


def is_backup(name: str) -> bool:
    """Returns whether a file name ends like that of a backup copy."""
    return name.lower().endswith(_BACKUP_ENDINGS)
