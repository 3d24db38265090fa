"""Image files of every kind, written by Pillow or by hand: the rows of test_kinds_of_files.py."""

from __future__ import annotations

import dataclasses
import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageOps

HEIGHT, WIDTH = 21, 35
_GENERATOR = np.random.default_rng(19)
_ROWS, _COLUMNS = np.mgrid[:HEIGHT, :WIDTH]
_WAVES = [np.sin(_ROWS / 5), np.cos(_COLUMNS / 7), np.sin((_ROWS + _COLUMNS) / 9)]
_NOISE = _GENERATOR.integers(-20, 20, (HEIGHT, WIDTH, 3))
PHOTO = Image.fromarray((127 + 100 * np.stack(_WAVES, axis=-1) + _NOISE).astype(np.uint8))
ALPHA = PHOTO.convert("RGBA")
ALPHA.putalpha(Image.fromarray((_COLUMNS * 7).astype(np.uint8)))
TURNED = Image.Exif()
TURNED[0x0112] = 6


@dataclasses.dataclass(frozen=True)
class Kind:
    """A file of one kind.

    Args:
        data: The file.
        why: A part of what all decoders say of it; nothing if it is read.
        checked: A part of what `data check` says, where it knows more than the others.
        levels: Gray levels by which a pixel may differ from Pillow's.
        pixels: What is expected where Pillow does otherwise on purpose, (HEIGHT, WIDTH, 3).
        suffix: Of the file's name.
    """

    data: bytes
    why: str = ""
    checked: str = ""
    levels: int = 0
    pixels: np.ndarray | None = None
    suffix: str = ""

    def expected(self) -> np.ndarray:
        """Pixels as Pillow converts them to RGB."""
        if self.pixels is not None:
            return self.pixels
        with Image.open(io.BytesIO(self.data)) as image:
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def save(form: str, image: Image.Image = PHOTO, **settings: object) -> bytes:
    content = io.BytesIO()
    image.save(content, form, **settings)
    return content.getvalue()


def patched(data: bytes, *changes: tuple[int, bytes]) -> bytes:
    changed = bytearray(data)
    for place, new in changes:
        changed[place : place + len(new)] = new
    return bytes(changed)


def chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a PNG."""
    checksum = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)


def png(
    samples: np.ndarray, color: int, bits: int = 8, *extra: bytes, interlaced: bool = False
) -> bytes:
    """A PNG of samples (H, W, channels); `extra` are chunks before the pixels."""
    height, width, _ = samples.shape
    passes = [(0, 0, 1, 1)]
    if interlaced:  # Adam7: first row and column, and steps between them
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2)]
        passes += [(0, 1, 2, 2), (1, 0, 2, 1)]
    lines = b""
    for row, column, down, right in passes:
        for line in samples[row::down, column::right]:
            flat = line.ravel()
            if bits == 16:
                packed = flat.astype(">u2").tobytes()
            else:
                places = flat[:, np.newaxis] >> np.arange(bits - 1, -1, -1) & 1
                packed = np.packbits(places.ravel().astype(np.uint8)).tobytes()
            lines += b"\0" + packed
    head = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, int(interlaced))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + b"".join(extra)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


def bmp(
    bits: int,
    rows: bytes,
    *,
    header: int = 40,
    compression: int = 0,
    colors: bytes = b"",
    masks: tuple[int, ...] = (),
    height: int = HEIGHT,
) -> bytes:
    """A BMP of rows that are packed already; the masks stand in a header of 108 bytes or behind."""
    if header == 12:
        head = struct.pack("<IHHHH", 12, WIDTH, height, 1, bits)
    else:
        count = len(colors) // 4
        sizes = (compression, len(rows), 2835, 2835, count, 0)
        head = struct.pack("<IiiHHIIiiII", header, WIDTH, height, 1, bits, *sizes)
        head += struct.pack(f"<{len(masks)}I", *masks)
        head = head.ljust(header, b"\0")
    start = 14 + len(head) + len(colors)
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + head + colors + rows


def bmp_rows(samples: np.ndarray, bits: int = 8) -> bytes:
    """Rows from the bottom up, each filled to four bytes; samples (H, W) are packed to `bits`."""
    found = b""
    for line in samples[::-1]:
        if bits < 8:
            places = line[:, np.newaxis] >> np.arange(bits - 1, -1, -1) & 1
            line = np.packbits(places.ravel().astype(np.uint8))
        row = line.tobytes()
        found += row + bytes(-len(row) % 4)
    return found


def _jpegs() -> dict[str, Kind]:
    cmyk = save("JPEG", PHOTO.convert("CMYK"), quality=95)
    adobe = cmyk.index(b"\xff\xee\0\x0eAdobe")
    baseline = save("JPEG").index(b"\xff\xc0")
    moved = [PHOTO.rotate(90)]
    plain = save("JPEG")
    return {
        "jpeg baseline": Kind(plain),
        "jpeg progressive": Kind(save("JPEG", progressive=True)),
        "jpeg gray": Kind(save("JPEG", PHOTO.convert("L"))),
        # Measured 0 here; what multiplies the ink by black may round otherwise.
        "jpeg cmyk": Kind(cmyk, levels=1),
        # The samples of CMYK said to be luma and chroma: a file as Photoshop writes it.
        "jpeg ycck": Kind(patched(cmyk, (adobe + 15, b"\2")), levels=1),
        "jpeg cmyk unmarked": Kind(cmyk[:adobe] + cmyk[adobe + 16 :], "a CMYK JPEG without"),
        "jpeg 12 bits": Kind(patched(plain, (baseline + 4, b"\x0c")), "damaged"),
        "jpeg lossless": Kind(patched(plain, (baseline + 1, b"\xc3")), "damaged"),
        "jpeg no height": Kind(patched(plain, (baseline + 5, b"\0\0")), "damaged"),
        "jpeg rgb": Kind(save("JPEG", keep_rgb=True)),
        "jpeg 4:4:4": Kind(save("JPEG", subsampling=0)),
        "jpeg 4:2:2": Kind(save("JPEG", subsampling=1)),
        "jpeg quality 5": Kind(save("JPEG", quality=5)),
        "jpeg turned": Kind(save("JPEG", PHOTO.transpose(Image.Transpose.ROTATE_90), exif=TURNED)),
        "jpeg mpo": Kind(save("MPO", save_all=True, append_images=moved), suffix=".mpo"),
        "jpeg restarts": Kind(save("JPEG", restart_marker_blocks=1)),
        "jpeg jfif": Kind(plain, suffix=".jfif"),
        "jpeg called png": Kind(plain, suffix=".png"),
        "jpeg rest": Kind(plain + bytes(300)),
        "jpeg behind a line": Kind(b"\n" + plain, "not a JPEG,", "not a JPEG"),
        "jpeg half": Kind(plain[: len(plain) // 2], "damaged"),
        "jpeg head": Kind(plain[:20], "damaged"),
        "jpeg truncated": Kind(plain[:-30], "damaged"),
        "jpeg without end": Kind(plain[:-2], "damaged"),
    }


def _pngs() -> dict[str, Kind]:
    rgb, gray = np.asarray(PHOTO), np.asarray(PHOTO.convert("L"))[..., np.newaxis]
    deep = _GENERATOR.integers(0, 2**16, (HEIGHT, WIDTH, 4)).astype(np.uint16)
    cut = (deep >> 8).astype(np.uint8)  # the upper bits; Pillow would clip
    cut_gray = np.repeat(cut[..., :1], 3, axis=-1)
    palette = chunk(b"PLTE", bytes(range(48)))
    whole, hidden = save("PNG"), "a PNG whose header does not come first"
    moved = {"save_all": True, "append_images": [PHOTO.rotate(90)]}
    turned = PHOTO.transpose(Image.Transpose.ROTATE_90)
    return {
        "png rgb": Kind(whole),
        "png rgba": Kind(save("PNG", ALPHA)),
        "png gray": Kind(save("PNG", PHOTO.convert("L"))),
        "png gray alpha": Kind(save("PNG", ALPHA.convert("LA"))),
        "png 1 bit": Kind(save("PNG", PHOTO.convert("1"))),
        "png gray 2 bits": Kind(png(gray >> 6, 0, 2)),
        "png gray 4 bits": Kind(png(gray >> 4, 0, 4)),
        "png palette": Kind(save("PNG", PHOTO.quantize(200))),
        "png palette 2 bits": Kind(save("PNG", PHOTO.quantize(4), bits=2)),
        "png palette 4 bits": Kind(save("PNG", PHOTO.quantize(15), bits=4)),
        "png palette tRNS": Kind(save("PNG", PHOTO.quantize(40), transparency=3)),
        "png palette of alphas": Kind(png(gray >> 4, 3, 8, palette, chunk(b"tRNS", bytes(16)))),
        "png rgb tRNS": Kind(png(rgb, 2, 8, chunk(b"tRNS", bytes(6)))),
        "png gray tRNS": Kind(png(gray, 0, 8, chunk(b"tRNS", b"\0\x7f"))),
        "png gamma": Kind(png(rgb, 2, 8, chunk(b"gAMA", struct.pack(">I", 100_000)))),
        "png 16 bits gray": Kind(png(deep[..., :1], 0, 16), pixels=cut_gray),
        "png 16 bits gray alpha": Kind(png(deep[..., :2], 4, 16), pixels=cut_gray),
        "png 16 bits rgb": Kind(png(deep[..., :3], 2, 16), pixels=cut[..., :3]),
        "png 16 bits rgba": Kind(png(deep, 6, 16), pixels=cut[..., :3]),
        "png interlaced": Kind(png(rgb, 2, interlaced=True)),
        "png interlaced gray 4 bits": Kind(png(gray >> 4, 0, 4, interlaced=True)),
        "png turned": Kind(save("PNG", turned, exif=TURNED)),
        "png without palette": Kind(png(gray >> 4, 3), "damaged"),
        "png unknown critical chunk": Kind(png(rgb, 2, 8, chunk(b"ABCD", b"x")), "damaged"),
        "png of an iPhone": Kind(whole[:8] + chunk(b"CgBI", bytes(4)) + whole[8:], hidden),
        "png hidden size": Kind(whole[:8] + chunk(b"noSe", bytes(8)) + whole[8:], hidden),
        "png animated": Kind(save("PNG", **moved)),
        "png rest": Kind(whole + bytes(300)),
        "png truncated": Kind(whole[: len(whole) // 2], "damaged"),
        "png zero size": Kind(png(rgb[:0], 2), "damaged"),
        "png without end": Kind(whole[:-12], "damaged"),
        "png wrong checksum": Kind(patched(whole, (29, b"\0\0\0\0")), "damaged"),
    }


def _gifs() -> dict[str, Kind]:
    plain = save("GIF", interlace=0)
    frames, small = (
        [PHOTO.rotate(90), PHOTO.rotate(180)],
        "a GIF whose first frame does not cover the whole image",
    )
    animated = save("GIF", save_all=True, append_images=frames)
    transparent = PHOTO.quantize(40)
    place = plain.index(b"\x2c\0\0\0\0")
    flags = plain[10]
    table = plain[13 : 13 + 6 * 2 ** (flags % 8)]
    bare = plain[:10] + bytes((flags % 128,)) + plain[11:13]  # without its table of colors
    own = plain[13 + len(table) : place + 9] + bytes((flags % 8 + 128,)) + table
    behind = patched(plain, (place + 1, b"\3\0\2\0"))  # the frame begins at column 3 and row 2
    return {
        "gif": Kind(plain),
        "gif interlaced": Kind(save("GIF", interlace=1)),
        "gif animated": Kind(animated),
        "gif transparent": Kind(save("GIF", transparent, transparency=3)),
        "gif gray": Kind(save("GIF", PHOTO.convert("L"))),
        "gif 2 colors": Kind(save("GIF", PHOTO.convert("1"))),
        "gif 87a": Kind(patched(plain, (0, b"GIF87a"))),
        "gif small frame": Kind(patched(plain, (6, b"\x28\0\x18\0")), small),
        "gif shifted frame": Kind(behind, small),
        "gif large frame": Kind(patched(plain, (6, b"\x1e\0\x12\0"))),
        "gif colors of a frame": Kind(bare + own + plain[place + 10 :]),
        "gif without colors": Kind(bare + plain[13 + len(table) :], "damaged"),
        "gif truncated": Kind(plain[: len(plain) // 2], "damaged"),
        "gif half a second frame": Kind(animated[: len(animated) // 2]),
        "gif head": Kind(plain[:13], "damaged"),
    }


def _bmps() -> dict[str, Kind]:
    rgb, gray = np.asarray(PHOTO), np.asarray(PHOTO.convert("L"))
    with_fourth = np.concatenate([rgb[..., ::-1], np.full((HEIGHT, WIDTH, 1), 255, np.uint8)], -1)
    wide, true = bmp_rows(with_fourth), bmp_rows(rgb[..., ::-1])
    usual = (0xFF0000, 0xFF00, 0xFF)
    grays = b"".join(bytes((i, i, i, 0)) for i in range(256))
    sixteen = b"".join(bytes((i, 255 - i, i // 2, 0)) for i in range(0, 256, 16))
    runs = b"".join(
        b"".join(bytes((1, value)) for value in line) + b"\0\0" for line in (gray >> 4)[::-1]
    )
    short = (rgb[..., 0] >> 3).astype("<u2") << 11 | (rgb[..., 1] >> 2).astype("<u2") << 5
    short |= rgb[..., 2] >> 3
    mirrored = (0xFF, 0xFF00, 0xFF0000)
    shallow = gray >> 4
    rare = "a BMP that is compressed, has fewer than 8 or exactly 16 bits"
    return {
        "bmp 24": Kind(save("BMP")),
        "bmp 32": Kind(bmp(32, wide)),
        "bmp 32 by Pillow": Kind(save("BMP", ALPHA)),
        "bmp 32 usual masks": Kind(bmp(32, wide, compression=3, header=56, masks=(*usual, 0))),
        "bmp 32 masks behind": Kind(bmp(32, wide, compression=3, masks=usual)),
        "bmp 32 other masks": Kind(bmp(32, wide, compression=3, header=56, masks=mirrored), rare),
        "bmp gray": Kind(bmp(8, bmp_rows(gray), colors=grays)),
        "bmp palette": Kind(save("BMP", PHOTO.quantize(256))),
        "bmp palette 40": Kind(save("BMP", PHOTO.quantize(40))),
        "bmp 40 colors": Kind(bmp(8, bmp_rows(gray >> 3), colors=grays[: 4 * 40])),
        "bmp 1": Kind(bmp(1, bmp_rows(gray >> 7, 1), colors=grays[:8]), rare),
        "bmp 4": Kind(bmp(4, bmp_rows(shallow, 4), colors=sixteen), rare),
        "bmp rle8": Kind(bmp(8, runs + b"\0\1", compression=1, colors=sixteen), rare),
        "bmp 565": Kind(bmp(16, bmp_rows(short), compression=3, masks=(0xF800, 0x7E0, 0x1F)), rare),
        "bmp 555": Kind(bmp(16, bmp_rows(short)), rare),
        "bmp os/2": Kind(bmp(24, true, header=12), rare),
        "bmp top-down": Kind(bmp(24, bmp_rows(rgb[::-1, :, ::-1]), height=-HEIGHT)),
        "bmp version 4": Kind(bmp(24, true, header=108)),
        "bmp version 5": Kind(bmp(24, true, header=124)),
        "bmp version 5 masks": Kind(bmp(32, wide, compression=3, header=124, masks=usual)),
        "bmp version 5 palette": Kind(bmp(8, bmp_rows(gray), header=124, colors=grays)),
        "bmp palette top-down": Kind(bmp(8, bmp_rows(gray[::-1]), colors=grays, height=-HEIGHT)),
        "bmp 2": Kind(bmp(2, bmp_rows(gray >> 6, 2), colors=sixteen[:16]), rare),
        "bmp os/2 version 2": Kind(bmp(24, true, header=64)),
        "bmp called dib": Kind(bmp(24, true), suffix=".dib"),
        "bmp truncated": Kind(bmp(24, true[:-200]), "damaged"),
        "bmp head": Kind(bmp(24, true)[:40], "damaged"),
    }


def _webps() -> dict[str, Kind]:
    plain = save("WEBP")  # measured 0 here; the level of 2 is for another version of libwebp
    frames = {"save_all": True, "append_images": [PHOTO.rotate(90)]}
    turned = PHOTO.transpose(Image.Transpose.ROTATE_90)
    return {
        "webp": Kind(plain, levels=2),
        "webp lossless": Kind(save("WEBP", lossless=True)),
        "webp alpha": Kind(save("WEBP", ALPHA), levels=2),
        "webp alpha lossless": Kind(save("WEBP", ALPHA, lossless=True, exact=True)),
        "webp turned": Kind(save("WEBP", turned, exif=TURNED), levels=2),
        "webp gray": Kind(save("WEBP", PHOTO.convert("L")), levels=2),
        "webp cut at its end": Kind(plain[:-4], "damaged"),
        "webp animated": Kind(save("WEBP", **frames), "an animated WebP"),
        "webp truncated": Kind(plain[: len(plain) // 2], "damaged"),
        "webp head": Kind(plain[:30], "damaged"),
    }


def _others() -> dict[str, Kind]:
    foreign = "not a JPEG, PNG, GIF, BMP or WebP"
    names = {
        "tiff": (save("TIFF"), "TIFF"),
        "jpeg 2000": (save("JPEG2000"), "JPEG 2000"),
        "dicom": (bytes(128) + b"DICM" + bytes(300), "DICOM"),
        "psd": (b"8BPS\0\1" + bytes(300), "PSD"),
        "svg": (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        "ico": (save("ICO"), "not a JPEG"),
        "text": (b"This is a text file.\n", "not a JPEG"),
        "zeros": (bytes(500), "not a JPEG"),
        "html called jpg": (b"<!DOCTYPE html><title>404</title>", "not a JPEG"),
    }
    suffixes = {"svg": ".svg", "text": ".jpg", "html called jpg": ".jpg"}
    found = {
        name: Kind(data, foreign, checked, suffix=suffixes.get(name, ""))
        for name, (data, checked) in names.items()
    }
    return found | {"empty": Kind(b"", "empty", "empty file", suffix=".png")}


def apple() -> dict[str, Kind]:
    """Kinds that need pillow_heif."""
    import pillow_heif

    found = {}
    for name in ("HEIC", "AVIF"):
        content = io.BytesIO()
        if name == "HEIC":
            pillow_heif.from_pillow(PHOTO).save(content, quality=50)
        else:
            PHOTO.save(content, "AVIF")
        found[name.lower()] = Kind(content.getvalue(), "not a JPEG, PNG, GIF, BMP or WebP", name)
    return found


TABLES: dict[str, Callable[[], dict[str, Kind]]] = {
    "jpeg": _jpegs,
    "png": _pngs,
    "gif": _gifs,
    "bmp": _bmps,
    "webp": _webps,
    "other": _others,
}
KINDS = {name: kind for table in TABLES.values() for name, kind in table().items()}
