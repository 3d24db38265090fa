"""Verification of downloaded files by size, hashes and checksums."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import google_crc32c

from keras_vit.arguments import positive_int

_MAX_BYTES = 1 << 50  # bytes


@dataclasses.dataclass(frozen=True)
class Source:
    """File metadata from the server's headers, for resuming and verifying a download.

    Args:
        url: The requested URL, before redirects.
        size: Size in bytes; None if the server does not send it.
        validator: Strong `ETag`, else `Last-Modified`; None without either header.
        hashes: `x-goog-hash` headers, joined by commas.
        sha256: SHA-256 in the header `X-Linked-Etag` of the Hugging Face hub's redirect; None
            without the header.
        commit: Commit of the file in the header `X-Repo-Commit`; None without the header.
    """

    url: str
    size: int | None
    validator: str | None
    hashes: str
    sha256: str | None = None
    commit: str | None = None


@dataclasses.dataclass(frozen=True)
class Expected:
    """Expected size, hashes and content of a published file.

    Args:
        size: Size in bytes.
        sha256: SHA-256, 64 hexadecimal digits.
        sha256_prefix: First 8 digits of the SHA-256.
        check: Reads the file and raises `ValueError` if its content is wrong.
        limit: Largest size in bytes, for a file of unknown size.
        needs_sha256: Whether the publisher's server must state the SHA-256.
    """

    size: int | None = None
    sha256: str | None = None
    sha256_prefix: str | None = None
    check: Callable[[Path], object] | None = None
    limit: int | None = None
    needs_sha256: bool = False

    def __post_init__(self) -> None:
        if self.size is not None and positive_int("size", self.size) > _MAX_BYTES:
            raise ValueError(f"`size` must be at most 2**50 bytes. Received: {self.size}")
        for argument, digits in (("sha256", 64), ("sha256_prefix", 8)):
            value = getattr(self, argument)
            valid = isinstance(value, str) and re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", value)
            if value is not None and not valid:
                raise ValueError(
                    f"`{argument}` must be {digits} hexadecimal digits. "
                    f"Received: {argument}={value!r}"
                )

    def compare(self, size: int, sha256: str) -> None:
        """Raises `ValueError` unless the size and SHA-256 match the expected values."""
        _same("size in bytes", size, self.size)
        _same("SHA-256", sha256, self.sha256 and self.sha256.lower())
        _same("SHA-256", sha256[:8], self.sha256_prefix and self.sha256_prefix.lower())

    def verify(
        self, path: Path, source: Source | None = None, *, of_publisher: bool = True
    ) -> tuple[str, str]:
        """Verifies a file by `sha256` if it is given, otherwise by all other available checks.

        The metadata `source` is that of the publisher's server, or of a mirror.
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
        revision = f"commit {source.commit}" if source and source.commit else "the file"
        steps = {
            "https": of_publisher and source and source.url.startswith("https:"),
            "size": self.size or (source and source.size is not None),
            "8 digits of the SHA-256": self.sha256_prefix,
            f"SHA-256 stated for {revision}": hub,
            **{name.upper(): True for name in sorted(stated)},
            "content": self.check,
        }
        return sha256, ", ".join(step for step, done in steps.items() if done) or "nothing"


def _stated_hashes(source: Source) -> dict[str, str]:
    """Returns the base64-encoded hashes in the `x-goog-hash` header, by algorithm."""
    items = (item.strip().partition("=") for item in source.hashes.split(","))
    return {name: value for name, _, value in items if name in ALGORITHMS}


def _same(what: str, actual: object, expected: object) -> None:
    if expected is not None and actual != expected:
        raise ValueError(f"its {what} is {actual} instead of {expected}")


_BLOCK = 1 << 22  # bytes

ALGORITHMS: dict[str, Callable[[], Any]] = {
    "sha256": hashlib.sha256,
    "md5": functools.partial(hashlib.md5, usedforsecurity=False),
    "crc32c": google_crc32c.Checksum,
}


def file_digests(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Computes several digests of a file, reading it only once."""
    checksums = {name: ALGORITHMS[name]() for name in names}
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            for checksum in checksums.values():
                checksum.update(block)
    return {name: checksum.digest() for name, checksum in checksums.items()}
