"""Image files of 16 bits and color profiles, which Pillow does not write."""

from __future__ import annotations

import struct
import zlib

import numpy as np

PNG_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def deep_png(values: np.ndarray) -> bytes:
    """Returns a 16-bit PNG of values (H, W, C): gray, with alpha, RGB or RGBA."""
    height, width, channels = values.shape
    # Filter 1: every byte is the difference to that of the pixel before.
    rows = values.astype(">u2").view(np.uint8).reshape(height, width, 2 * channels)
    rows = np.diff(rows, axis=1, prepend=np.zeros((height, 1, 2 * channels), np.uint8))
    data = b"".join(b"\1" + row.tobytes() for row in rows)

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", width, height, 16, PNG_TYPES[channels], 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def deep_tiff(
    values: np.ndarray, photometric: int = 2, order: str = "<", deflate: bool = False
) -> bytes:
    """Returns a 16-bit TIFF of values (H, W, C)."""
    height, width, channels = values.shape
    data = values.astype(f"{order}u2").tobytes()
    data = zlib.compress(data) if deflate else data
    entries = 10 + (channels == 4)
    bits_at = 8 + 2 + 12 * entries + 4
    data_at = bits_at + 2 * channels
    tags = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, channels, bits_at if channels > 2 else 16),
        (259, 3, 1, 8 if deflate else 1),
        (262, 3, 1, photometric),
        (273, 4, 1, data_at),
        (277, 3, 1, channels),
        (278, 4, 1, height),
        (279, 4, 1, len(data)),
        (284, 3, 1, 1),
        *([(338, 3, 1, 2)] if channels == 4 else []),
    ]
    file = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, entries)
    for tag, kind, count, value in tags:
        file += struct.pack(f"{order}HHI", tag, kind, count)
        short = kind == 3 and count == 1
        file += struct.pack(f"{order}HH", value, 0) if short else struct.pack(f"{order}I", value)
    return file + bytes(4) + struct.pack(f"{order}{channels}H", *[16] * channels) + data


def rgb_profile(primaries: tuple[tuple[float, float, float], ...], gamma: float) -> bytes:
    """Returns an ICC profile of RGB from the XYZ (D50) of its primaries."""

    def xyz(values: tuple[float, float, float]) -> bytes:
        return b"XYZ \0\0\0\0" + b"".join(struct.pack(">i", round(v * 65536)) for v in values)

    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256)) + b"\0\0"
    name = b"test\0"
    text = b"desc\0\0\0\0" + struct.pack(">I", len(name)) + name + bytes(78)
    text += bytes(-len(text) % 4)
    parts = [(b"desc", text), (b"wtpt", xyz((0.9642, 1.0, 0.8249))), (b"cprt", text)]
    parts += [(b"rXYZ", xyz(primaries[0])), (b"gXYZ", xyz(primaries[1]))]
    parts += [(b"bXYZ", xyz(primaries[2]))]
    parts += [(name, curve) for name in (b"rTRC", b"gTRC", b"bTRC")]
    at = 128 + 4 + 12 * len(parts)
    table, content = struct.pack(">I", len(parts)), b""
    for signature, part in parts:
        table += signature + struct.pack(">II", at + len(content), len(part))
        content += part
    header = struct.pack(
        ">I4sI4s4s4s", at + len(content), b"\0\0\0\0", 0x02100000, b"mntr", b"RGB ", b"XYZ "
    )
    header += struct.pack(">6H", 2026, 1, 1, 0, 0, 0) + b"acsp" + bytes(28)
    header += b"".join(struct.pack(">i", round(v * 65536)) for v in (0.9642, 1.0, 0.8249))
    return header.ljust(128, b"\0") + table + content


# Display P3's, adapted to D50, with a gamma near that of sRGB.
DISPLAY_P3 = rgb_profile(
    ((0.51512, 0.24120, -0.00105), (0.29198, 0.69225, 0.04189), (0.15710, 0.06657, 0.78407)), 2.2
)
