"""SHA-256, MD5 and CRC32C of a file; the last, which Python has not, in NumPy."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

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
    """What `length` zero bytes make of each of the 32 bits of a state."""
    if length < 2:
        return _shift(np.uint32(1) << _BITS, 8 * length)
    half = _zeros(length // 2)
    both = _apply(half, half)
    return _apply(_zeros(1), both) if length % 2 else both


def _apply(operator: np.ndarray, states: np.ndarray) -> np.ndarray:
    bits = (states[:, None] >> _BITS) & 1
    return np.bitwise_xor.reduce(bits * operator, axis=1)
