from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from keras_vit import checksums
from keras_vit.checksums import CRC32C, file_digests

# RFC 3720, appendix B.4, with the bytes of its values in the usual order.
PUBLISHED = [
    (bytes(32), "8a9136aa"),
    (b"\xff" * 32, "62a8ab43"),
    (bytes(range(32)), "46dd794e"),
    (bytes(range(31, -1, -1)), "113fdb5c"),
]


def checksum(*pieces: bytes) -> str:
    crc = CRC32C()
    for piece in pieces:
        crc.update(piece)
    return crc.digest().hex()


def bit_by_bit(data: bytes) -> str:
    """The definition: one division by the polynomial."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return f"{state ^ 0xFFFFFFFF:08x}"


@pytest.mark.parametrize(("data", "expected"), PUBLISHED)
def test_crc32c_equals_the_published_values(data: bytes, expected: str) -> None:
    assert checksum(data) == expected


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 8191, 16384, 16385, 70001])
def test_crc32c_equals_the_definition(size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert checksum(data) == bit_by_bit(data)


def test_crc32c_goes_on_from_piece_to_piece() -> None:
    data = np.random.default_rng(3).bytes(40009)
    assert checksum(data[:7], b"", data[7:30011], data[30011:]) == checksum(data)


def test_file_digests_reads_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "_BLOCK", 1009)
    data = np.random.default_rng(5).bytes(4001)
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    assert file_digests(path, ["sha256", "md5", "crc32c"]) == {
        "sha256": hashlib.sha256(data).digest(),
        "md5": hashlib.md5(data).digest(),
        "crc32c": bytes.fromhex(checksum(data)),
    }
