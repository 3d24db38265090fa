"""Files that are small and claim to be large, and files that are damaged at random."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image

from tests.data.image_kinds import KINDS, TURNED, chunk, patched, save

CAMERA = (9248, 6944)  # the largest image that is decoded
FORMATS = ("jpeg", "png", "gif", "bmp", "webp")


def _png(side: int, before: bytes = b"") -> bytes:
    """A PNG of one bit a pixel and nothing but zeros, with other chunks before the first one."""
    squeezer = zlib.compressobj(9)
    row = bytes(1 + -(-side // 8))
    rows = b"".join(squeezer.compress(row * 100) for _ in range(side // 100)) + squeezer.flush()
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + before + chunks


def _scans() -> bytes:
    """The last scan of a progressive JPEG, over and over."""
    whole = save("JPEG", Image.new("RGB", (2000, 2000)), progressive=True)
    scan = whole[whole.rindex(b"\xff\xda") : -2]
    return whole[:-2] + 3000 * scan + whole[-2:]


def _camera(**settings: object) -> bytes:
    shades = Image.linear_gradient("L").resize(CAMERA)
    content = io.BytesIO()
    Image.merge("RGB", (shades,) * 3).save(content, "JPEG", progressive=True, **settings)
    return content.getvalue()


def _frames() -> bytes:
    frames = [Image.new("P", (2000, 2000), shade) for shade in range(30)]
    for frame in frames:
        frame.putpalette(bytes(range(256)) * 3)
    return save("GIF", frames[0], save_all=True, append_images=frames[1:])


def _webp() -> bytes:
    """A small WebP whose header says that it is the largest there can be."""
    side = 16383 - 1
    packed = struct.pack("<I", side | side << 14)
    return patched(save("WEBP", lossless=True), (21, packed))


def _bmp() -> bytes:
    """A BMP of 4 GB by its header, of which there are 1000 bytes."""
    head = struct.pack("<IHHIIiiHHIIiiII", 2**32 - 1, 0, 0, 54, 40, 36000, 36000, 1, 24, *[0] * 6)
    return b"BM" + head + bytes(1000)


# Name -> how it is made, and a part of what is said of it; nothing if it is read.
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "png of 30000 x 30000": (lambda: _png(30_000), "30000 x 30000 pixels, more than"),
    "png that hides it": (
        lambda: _png(30_000, chunk(b"noSe", b"\0\0\0\x07" * 2)),
        "header does not",
    ),
    "png of 8000 x 8000": (lambda: _png(8000), ""),
    "gif of 30 frames": (_frames, ""),
    "jpeg of 3000 scans": (_scans, "more than 100 scans"),
    "jpeg of a camera": (_camera, ""),
    "jpeg of a camera, turned": (lambda: _camera(exif=TURNED), ""),
    "webp of 16383 x 16383": (_webp, "16383 x 16383 pixels, more than"),
    "bmp of 4 GB": (_bmp, "36000 x 36000 pixels, more than"),
}


def mutants(number: int, seed: int) -> list[bytes]:
    """Files of five formats in turn, each damaged."""
    generator = np.random.default_rng(seed)
    kinds = {
        form: [kind.data for name, kind in KINDS.items() if name.startswith(form)]
        for form in FORMATS
    }
    found = []
    for i in range(number):
        form = FORMATS[i % len(FORMATS)]
        data = bytearray(kinds[form][generator.integers(len(kinds[form]))])
        for _ in range(generator.integers(1, 4)):
            _damage(data, form, generator)
        if form == "png" and generator.random() < 0.7:
            data = _summed(data)
        found.append(bytes(data))
    return found


def _damage(data: bytearray, form: str, generator: np.random.Generator) -> None:
    place = int(generator.integers(len(data) + 1))
    kind = generator.integers(5)
    if kind == 0:  # in the header, where the sizes are
        for at in generator.integers(0, min(len(data), 64), 3) if data else ():
            data[at] = generator.integers(256)
    elif kind == 1:
        for at in generator.integers(0, len(data), 8) if data else ():
            data[at] ^= 1 << generator.integers(8)
    elif kind == 2:
        del data[place:]
    elif kind == 3:
        other = int(generator.integers(len(data) + 1))
        data[place:place] = data[min(place, other) : max(place, other)]
    else:
        _insert(data, form, generator)


def _insert(data: bytearray, form: str, generator: np.random.Generator) -> None:
    """Puts a chunk of the format where one may stand, with random bytes in it."""
    content = generator.bytes(int(generator.integers(1, 40)))

    def one_of(*names: bytes) -> bytes:
        return names[generator.integers(len(names))]

    if form == "png":
        name = one_of(b"tRNS", b"PLTE", b"eXIf", b"acTL", b"noSe", b"IDAT", b"IHDR")
        at, new = one_of(b"\x08", b"\x21")[0], chunk(name, content)
    elif form == "jpeg":
        name = one_of(b"\xe1", b"\xee", b"\xdb", b"\xc4", b"\xdd", b"\xc0")
        at, new = 2, b"\xff" + name + struct.pack(">H", len(content) + 2) + content
    elif form == "gif":
        name = one_of(b"\x21\xf9", b"\x21\xfe", b"\x21\xff", b"\x2c" + bytes(9) + b"\2")
        at = data.find(b"\x2c\0\0") if b"\x2c\0\0" in data else len(data)
        new = name + bytes((len(content),)) + content + b"\0"
    elif form == "webp":
        name = one_of(b"ANMF", b"ANIM", b"ALPH", b"EXIF", b"VP8X", b"VP8L")
        at = one_of(b"\x0c", b"\x1e")[0]
        new = name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)
    else:
        at, new = 54, content
    data[at:at] = new


def _summed(data: bytearray) -> bytearray:
    """A PNG with the checksums that its chunks should have, so that more of it is looked at."""
    at = 8
    while at + 12 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if end + 4 > len(data):
            break
        data[end : end + 4] = zlib.crc32(data[at + 4 : end]).to_bytes(4, "big")
        at = end + 4
    return data
