"""Size, hashes and checksums of downloaded files."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.arguments import positive_int
from keras_vit.download.http import Source


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is known of a published file.

    Args:
        size: Bytes.
        sha256: 64 hexadecimal digits.
        sha256_prefix: The first 8 of them.
        check: Reads the file and raises `ValueError` if the content is not the right one.

    Raises:
        ValueError: If an argument is malformed.

    Example:
        >>> _ = Path("a.npz").write_bytes(bytes(7))
        >>> Expected(size=7).verify(Path("a.npz"))[1]
        'size'
    """

    size: int | None = None
    sha256: str | None = None
    sha256_prefix: str | None = None
    check: Callable[[Path], None] | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            positive_int("size", self.size)
        for argument, digits in (("sha256", 64), ("sha256_prefix", 8)):
            value = getattr(self, argument)
            if value is None:
                continue
            if not isinstance(value, str) or not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", value):
                raise ValueError(
                    f"`{argument}` must be {digits} hexadecimal digits. "
                    f"Received: {argument}={value!r}"
                )

    def compare(self, size: int, sha256: str) -> None:
        """Raises `ValueError` if a file with these figures is another one.

        Args:
            size: Its size in bytes.
            sha256: Its SHA-256, in lower case.

        Raises:
            ValueError: With what is wrong.
        """
        _same("size in bytes", size, self.size)
        _same("SHA-256", sha256, self.sha256 and self.sha256.lower())
        _same("SHA-256", sha256[:8], self.sha256_prefix and self.sha256_prefix.lower())

    def verify(self, path: Path, source: Source | None = None) -> tuple[str, str]:
        """Verifies a file by `sha256`, or else by everything else that is known.

        Args:
            path: The file.
            source: What its server said of it.

        Returns:
            Its SHA-256, and what it was verified by, in words.

        Raises:
            ValueError: With what is wrong.
        """
        size = path.stat().st_size
        _same("size in bytes", size, self.size)
        _same("size in bytes", size, source and source.size)
        hub = None if self.sha256 or source is None else source.sha256
        stated = _stated_hashes(source) if source and not self.sha256 else {}
        digests = file_digests(path, {"sha256", *stated})
        sha256 = digests["sha256"].hex()
        self.compare(size, sha256)
        if self.sha256:
            return sha256, "SHA-256"
        _same("SHA-256", sha256, hub)
        for name, value in stated.items():
            _same(name.upper(), base64.b64encode(digests[name]).decode(), value)
        if self.check:
            self.check(path)
        steps = {
            "https": source and source.url.startswith("https:"),
            "size": self.size or (source and source.size is not None),
            "8 digits of the SHA-256": self.sha256_prefix,
            f"SHA-256 stated for {_revision(source)}": hub,
            **{name.upper(): True for name in sorted(stated)},
            "content": self.check,
        }
        return sha256, ", ".join(step for step, done in steps.items() if done) or "nothing"


def _revision(source: Source | None) -> str:
    return f"commit {source.commit}" if source and source.commit else "the file"


def _stated_hashes(source: Source) -> dict[str, str]:
    """What `x-goog-hash` says, in base64, by algorithm."""
    items = (item.strip().partition("=") for item in source.hashes.split(","))
    return {name: value for name, _, value in items if name in ALGORITHMS}


def _same(what: str, actual: object, expected: object) -> None:
    if expected is not None and actual != expected:
        raise ValueError(f"its {what} is {actual} instead of {expected}")


_BLOCK = 1 << 22  # bytes

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, with the bits reversed
_LANES = 8192  # stretches of the data that are worked on side by side
_BITS = np.arange(32, dtype=np.uint32)


class CRC32C:
    """The checksum of RFC 3720, appendix B.4, with the interface of `hashlib`.

    A CRC is linear: the stretches of a block are taken by themselves, all of them two bytes
    further with one look-up, and then joined in pairs.

    Example:
        >>> checksum = CRC32C()
        >>> checksum.update(b"1234")
        >>> checksum.update(b"56789")
        >>> checksum.digest().hex()
        'e3069283'

    Reference:
        https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4
    """

    def __init__(self) -> None:
        self._state = np.array([0xFFFFFFFF], np.uint32)

    def update(self, data: bytes) -> None:
        before = _apply(_zeros(len(data)), self._state)
        # Zeros in front change nothing for a state of zero, and make all stretches equally long.
        steps = -(-len(data) // (2 * _LANES))
        padded = bytes(2 * steps * _LANES - len(data)) + data
        words = np.frombuffer(padded, "<u2").reshape(_LANES, steps)
        states = np.zeros(_LANES, np.uint32)
        for word in np.ascontiguousarray(words.T):
            states ^= word
            states = _table().take(states & 0xFFFF) ^ (states >> 16)
        length = 2 * steps  # bytes of a stretch
        while len(states) > 1:
            states = _apply(_zeros(length), states[0::2]) ^ states[1::2]
            length *= 2
        self._state = before ^ states

    def digest(self) -> bytes:
        return (int(self._state[0]) ^ 0xFFFFFFFF).to_bytes(4, "big")


ALGORITHMS: dict[str, Callable[[], Any]] = {
    "sha256": hashlib.sha256,
    "md5": functools.partial(hashlib.md5, usedforsecurity=False),
    "crc32c": CRC32C,
}


def file_digests(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Reads a file once for several checksums.

    Args:
        path: The file.
        names: Keys of `ALGORITHMS`.

    Returns:
        Digests by name.

    Example:
        >>> path = Path("a.txt")
        >>> _ = path.write_bytes(b"123456789")
        >>> file_digests(path, ["crc32c"])["crc32c"].hex()
        'e3069283'
    """
    checksums = {name: ALGORITHMS[name]() for name in names}
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            for checksum in checksums.values():
                checksum.update(block)
    return {name: checksum.digest() for name, checksum in checksums.items()}


def _shift(states: np.ndarray, bits: int) -> np.ndarray:
    """The states after so many zero bits."""
    for _ in range(bits):
        states = (states >> 1) ^ (states & 1) * np.uint32(_POLYNOMIAL)
    return states


@functools.cache
def _table() -> np.ndarray:
    """The state after each of the words of two bytes."""
    return _shift(np.arange(1 << 16, dtype=np.uint32), 16)


@functools.cache
def _zeros(length: int) -> np.ndarray:
    """Returns the CRC of each of the 32 bits of a state followed by `length` zero bytes."""
    if length < 2:
        return _shift(np.uint32(1) << _BITS, 8 * length)
    half = _zeros(length // 2)
    both = _apply(half, half)
    return _apply(_zeros(1), both) if length % 2 else both


def _apply(operator: np.ndarray, states: np.ndarray) -> np.ndarray:
    bits = (states[:, None] >> _BITS) & 1
    return np.bitwise_xor.reduce(bits * operator, axis=1)
