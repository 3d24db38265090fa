from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from keras_vit.download import integrity
from keras_vit.download.integrity import Expected, Source, file_digests
from tests.bad_server import goog_hash

CONTENT = np.random.default_rng(17).bytes(5003)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.npz"
    path.write_bytes(CONTENT)
    return path


def source(hashes: str = "", size: int | None = len(CONTENT), scheme: str = "https") -> Source:
    return Source(f"{scheme}://example.org/a.npz", size, None, hashes)


def reject(path: Path) -> None:
    raise ValueError(f"{path.name} has not the tensors of a ViT")


def accept(path: Path) -> None:
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("expected", "stated", "level"),
    [
        (Expected(sha256=SHA256), None, "SHA-256"),
        (Expected(5003, SHA256.upper(), SHA256[:8], reject), None, "SHA-256"),
        (Expected(sha256_prefix=SHA256[:8]), None, "8 digits of the SHA-256"),
        (Expected(sha256_prefix=SHA256[:8].upper()), None, "8 digits of the SHA-256"),
        (Expected(5003, check=accept), None, "size, content"),
        (Expected(), None, "nothing"),
        (Expected(), source(), "https, size"),
        (Expected(), source(size=None, scheme="http"), "nothing"),
        (Expected(), source(goog_hash(CONTENT)), "https, size, CRC32C, MD5"),
        (Expected(), source("sha9=xyz, " + goog_hash(CONTENT).split(",")[1]), "https, size, MD5"),
        (
            Expected(5003, None, SHA256[:8], accept),
            source(goog_hash(CONTENT), scheme="http"),
            "size, 8 digits of the SHA-256, CRC32C, MD5, content",
        ),
    ],
)
def test_verify_says_how_far_it_went(
    expected: Expected, stated: Source | None, level: str, path: Path
) -> None:
    assert expected.verify(path, stated) == (SHA256, level)


@pytest.mark.parametrize(
    ("expected", "stated", "message"),
    [
        (Expected(5002), None, "its size in bytes is 5003 instead of 5002"),
        (Expected(), source(size=5004), "its size in bytes is 5003 instead of 5004"),
        (Expected(sha256="0" * 64), None, f"its SHA-256 is {SHA256} instead of {'0' * 64}"),
        (Expected(sha256_prefix="0" * 8), None, f"its SHA-256 is {SHA256[:8]} instead of 00000000"),
        (Expected(check=reject), None, "a.npz has not the tensors of a ViT"),
        (
            Expected(),
            source("md5=7Qdih1MuhjZehB6Sv8UNjA=="),
            f"its MD5 is {goog_hash(CONTENT).split('md5=')[1]} instead of 7Qdih1MuhjZehB6Sv8UNjA==",
        ),
        (
            Expected(),
            source("crc32c=AAAAAA=="),
            f"its CRC32C is {goog_hash(CONTENT)[7:15]} instead of AAAAAA==",
        ),
    ],
)
def test_verify_says_what_is_wrong(
    expected: Expected, stated: Source | None, message: str, path: Path
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        expected.verify(path, stated)


def test_compare() -> None:
    expected = Expected(5003, SHA256.upper(), SHA256[:8])
    expected.compare(5003, SHA256)
    with pytest.raises(ValueError, match="size in bytes is 5001 instead of 5003"):
        expected.compare(5001, SHA256)
    with pytest.raises(ValueError, match="SHA-256"):
        expected.compare(5003, "1" * 64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "`size` must be"),
        ({"sha256": SHA256[:8]}, "`sha256` must be 64 hexadecimal digits. Received: sha256="),
        ({"sha256": SHA256[:-1] + "g"}, "`sha256` must be 64 hexadecimal digits."),
        ({"sha256": 123}, "`sha256` must be 64 hexadecimal digits. Received: sha256=123"),
        ({"sha256_prefix": SHA256}, "`sha256_prefix` must be 8 hexadecimal digits. Received: sha"),
    ],
)
def test_expected_rejects_malformed_figures(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Expected(**arguments)


# RFC 3720, appendix B.4, with the bytes of its values in the usual order.
PUBLISHED = [
    (bytes(32), "8a9136aa"),
    (b"\xff" * 32, "62a8ab43"),
    (bytes(range(32)), "46dd794e"),
    (bytes(range(31, -1, -1)), "113fdb5c"),
]


def checksum(data: bytes, folder: Path) -> str:
    (folder / "data.bin").write_bytes(data)
    return file_digests(folder / "data.bin", ["crc32c"])["crc32c"].hex()


def bit_by_bit(data: bytes) -> str:
    """The definition: one division by the polynomial."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return f"{state ^ 0xFFFFFFFF:08x}"


@pytest.mark.parametrize(("data", "expected"), PUBLISHED)
def test_crc32c_equals_the_published_values(data: bytes, expected: str, tmp_path: Path) -> None:
    assert checksum(data, tmp_path) == expected


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 8191, 16384, 16385, 70001])
def test_crc32c_equals_the_definition(size: int, tmp_path: Path) -> None:
    data = np.random.default_rng(size).bytes(size)
    assert checksum(data, tmp_path) == bit_by_bit(data)


def test_file_digests_reads_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "_BLOCK", 1009)
    data = np.random.default_rng(5).bytes(4001)
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    assert file_digests(path, ["sha256", "md5", "crc32c"]) == {
        "sha256": hashlib.sha256(data).digest(),
        "md5": hashlib.md5(data).digest(),
        "crc32c": bytes.fromhex(bit_by_bit(data)),
    }
