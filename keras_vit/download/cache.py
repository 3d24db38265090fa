"""Cache of verified downloads in the Keras home folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from typing import Any
from urllib.parse import urlsplit

import filelock

from keras_vit import arguments
from keras_vit.download.http import discard, mebibytes, metadata_path, remote_source, say, transfer
from keras_vit.download.integrity import Expected, file_digests
from keras_vit.files import read_object, write_json


@dataclasses.dataclass(frozen=True)
class Download:
    """Verified file in the download cache.

    Args:
        path: Path of the file.
        sha256: SHA-256 of the file, 64 hexadecimal digits.
        level: How the file was verified: `"SHA-256"`, or a list of the other checks, for example
            `"https, size, MD5, content"`.
    """

    path: Path
    sha256: str
    level: str

    @property
    def verified(self) -> bool:
        """True if a published SHA-256, or a hash that the publisher states over https, matched."""
        steps = self.level.split(", ")
        hashed = any(step.startswith(("SHA-256", "MD5")) for step in steps)
        return self.level == "SHA-256" or ("https" in steps and hashed)


def fetch(
    urls: Sequence[str],
    file_name: str,
    *,
    folder: str | None = None,
    publisher_first: bool = False,
    **fields: Any,
) -> Download:
    """Returns a published file from the cache, downloading it first if necessary.

    The other arguments are the fields of `Expected`.

    `sha256` alone is sufficient. Otherwise a file must pass all available checks: https,
    size, prefix, the SHA-256 in the Hugging Face hub's header `X-Linked-Etag`, the MD5 and the
    CRC32C in the server's header `x-goog-hash`, and `check`. The headers are those of the
    publisher, also for a file from a mirror; those of the mirror count only if the publisher
    cannot be reached. The SHA-256 of the file and the passed checks (with the commit in the hub's
    header `X-Repo-Commit`) are then stored in `file_name` + `.json`: a file that changes afterwards
    is rejected, also after a second download, and an unchanged file is used without a connection,
    even if the file at its URL has changed. A file without this metadata (such as a copied file) is
    verified like a download, but without the server's headers. The final file name exists only for
    a complete and verified file. A file of more than `limit` bytes is rejected.

    The next call resumes an interrupted download. Several processes download a file once. There
    are four environment variables:

    - `KERAS_HOME`: the cache is `models/keras_vit` in this folder; `~/.keras` if unset.
    - `KERAS_VIT_MIRROR`: base URLs, separated by spaces or commas, which are tried first and may
      be http. A mirror serves the path of the original: for
      `https://storage.googleapis.com/vit_models/augreg/X.npz` and the mirror
      `http://127.0.0.1:8000`, the request is `http://127.0.0.1:8000/vit_models/augreg/X.npz`. A
      mirror of the hub must pass on both of its headers if the hub itself cannot be reached.
      With `publisher_first`, mirrors are tried last.
    - `KERAS_VIT_OFFLINE`: any value except empty and 0 forbids connections.
    - `KERAS_VIT_REQUIRE_HASH`: any value except empty and 0 hashes cached files at every use, and
      `accept` rejects those without a published hash.
    """
    expected = Expected(**fields)
    if isinstance(urls, str) or not urls or not all(url.startswith("https://") for url in urls):
        raise ValueError(f"`urls` must be a list of https URLs. Received: urls={urls!r}")
    parent = cache_folder() if folder is None else cache_folder() / _plain_name("folder", folder)
    path = parent / _plain_name("file_name", file_name)
    download = _cached(path, urls)
    if download is None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            waiting_message = f"Waiting for another process that is downloading {path} ..."
            with _locked(path.with_name(f".{file_name}.lock"), waiting_message):
                download = _cached(path, urls)
                if download is None and path.exists():
                    download = _inspect(path, urls, expected)
                elif download is None:
                    download = _download(path, _addresses(urls, publisher_first), expected)
        except ConnectionError:
            raise
        except OSError as error:  # such as a full disk
            raise OSError(
                error.errno,
                f"{error.strerror or error} while writing {path.name} to the cache. The partial "
                "download is kept; set KERAS_HOME to use another folder",
                error.filename or str(path.parent),
            ) from error
    try:
        expected.compare(path.stat().st_size, download.sha256)
    except ValueError as error:
        raise _mismatch_error(path, urls, error) from error
    return dataclasses.replace(download, level="SHA-256") if expected.sha256 else download


def accept(download: Download) -> Path:
    """Returns the path of a weight file; reports it, or rejects it, if no hash verified it."""
    if not download.verified:
        text = (
            f"unverified: no SHA-256 or MD5 from its publisher. Verified by: {download.level}. "
            f"SHA-256: {download.sha256}"
        )
        if is_set("KERAS_VIT_REQUIRE_HASH"):
            raise ValueError(
                "`weights` must have a published hash with KERAS_VIT_REQUIRE_HASH. "
                f"Received: {download.path}, which is {text}"
            )
        say(f"{download.path} is {text}")
    return download.path


def is_set(variable: str) -> bool:
    """Returns whether an environment variable has a value except empty and 0."""
    return os.environ.get(variable, "") not in ("", "0")


def _locked(path: Path, message: str) -> filelock.AcquireReturnProxy:
    """Acquires a lock file; prints `message` if another process holds the lock."""
    lock = filelock.FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except filelock.Timeout:
        print(message, file=sys.stderr, flush=True)
        return lock.acquire()


def cache_folder() -> Path:
    """Returns the folder for downloaded weights, which may not exist yet."""
    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser().absolute()
    return home / "models" / "keras_vit"


def _download(path: Path, addresses: Sequence[tuple[str, str]], expected: Expected) -> Download:
    hint = (
        f"Download {addresses[0][1]} ({mebibytes(expected.size)}) manually, and pass the file as "
        f"the weights (--weights FILE) or store it as {path}."
    )
    if is_set("KERAS_VIT_OFFLINE"):
        raise ConnectionError(
            f"{path.name} is not in the cache, and KERAS_VIT_OFFLINE forbids connections. {hint}"
        )
    part = path.with_name(f"{path.name}.part")
    reasons: list[str] = []
    error_class: type[Exception] = ConnectionError
    for url, publisher in addresses:
        try:
            download = _receive(url, publisher, path, part, expected)
        except (ConnectionError, ValueError) as error:
            reasons.append(f"{url}: {error}")
            say(reasons[-1])
            error_class = ValueError if isinstance(error, ValueError) else error_class
            continue
        with part.open("r+b") as file:  # Windows flushes only what may be written
            os.fsync(file.fileno())
        _write_metadata(part, download, url)  # before the file: metadata without a file are ignored
        os.replace(part, path)
        discard(part)
        say(f"Verified {path} by: {download.level}")
        return download
    listed = "\n  ".join(reasons)
    raise error_class(f"{path.name} could not be downloaded.\n  {listed}\n{hint}")


def _receive(url: str, publisher: str, path: Path, part: Path, expected: Expected) -> Download:
    published = None if url == publisher or expected.sha256 else remote_source(publisher)
    if published and not (published.sha256 or published.hashes):
        published = None
    needed = expected.needs_sha256 and not (published and published.sha256)
    transferred = transfer(url, part, dataclasses.replace(expected, needs_sha256=needed))
    of_publisher = published is not None or url == publisher
    metadata = published or transferred
    try:
        download = Download(path, *expected.verify(part, metadata, of_publisher=of_publisher))
        earlier = _read_metadata(path)
        if earlier and earlier["sha256"] != download.sha256 and not download.verified:
            raise ValueError(
                f"its SHA-256 is {download.sha256}, and {earlier['sha256']} when it was first "
                f"downloaded. Delete {metadata_path(path)} to accept the new file"
            )
    except ValueError:
        discard(part)  # a wrong file must not be resumed
        raise
    return download


def _inspect(path: Path, urls: Sequence[str], expected: Expected) -> Download:
    """Verifies a cached file without metadata, which was added by another program."""
    try:
        download = Download(path, *expected.verify(path))
    except ValueError as error:
        raise _mismatch_error(path, urls, error) from error
    _write_metadata(path, download, None)
    return download


def _cached(path: Path, urls: Sequence[str]) -> Download | None:
    """Returns the cached file; verified again if it may have changed afterwards."""
    metadata = _read_metadata(path)
    if metadata is None or not path.is_file():
        return None
    download = Download(path, metadata["sha256"], metadata["level"])
    unchanged = all(metadata.get(key) == value for key, value in _stat(path).items())
    if unchanged and not is_set("KERAS_VIT_REQUIRE_HASH"):
        return download
    if file_digests(path, ["sha256"])["sha256"].hex() != download.sha256:
        reason = f"it was changed after it was verified (see {metadata_path(path)})"
        raise _mismatch_error(path, urls, reason)
    with contextlib.suppress(OSError):  # a cache that may only be read
        _write_metadata(path, download, metadata["url"])
    return download


def _mismatch_error(path: Path, urls: Sequence[str], reason: object) -> ValueError:
    return ValueError(
        f"{path} is not the published file: {reason}. Delete it, and it will be downloaded again "
        f"from {urls[0]}."
    )


def _stat(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino}


def _write_metadata(content: Path, download: Download, url: str | None) -> None:
    """Records the hash and verification of the file `content` in a JSON file beside it."""
    metadata = {"url": url, "sha256": download.sha256, "level": download.level, **_stat(content)}
    write_json(metadata_path(download.path), metadata)


def _read_metadata(path: Path) -> dict[str, Any] | None:
    metadata = read_object(metadata_path(path))
    texts = (metadata.get("sha256"), metadata.get("level"))
    valid = "url" in metadata and all(isinstance(text, str) for text in texts)
    return metadata if valid else None


def _addresses(urls: Sequence[str], publisher_first: bool) -> list[tuple[str, str]]:
    """Returns the URLs to try, in order, each with the original URL of the file."""
    mirrors = re.split(r"[\s,]+", os.environ.get("KERAS_VIT_MIRROR", "").strip(" ,"))
    mirrored = []
    for mirror in filter(None, mirrors):
        if not re.match(r"https?://[^/@]+(/|$)", mirror):
            raise ValueError(
                "`KERAS_VIT_MIRROR` must contain http or https URLs without a password, "
                "separated by spaces or commas. Received: "
                f"KERAS_VIT_MIRROR={arguments.without_password(mirror)!r}"
            )
        mirrored += [(mirror.rstrip("/") + urlsplit(url).path, url) for url in urls]
    direct = [(url, url) for url in urls]
    return list(dict.fromkeys([*direct, *mirrored] if publisher_first else [*mirrored, *direct]))


def _plain_name(argument: str, name: str) -> str:
    is_plain = name == PureWindowsPath(name).name != "" and name[0] != "." and name.isprintable()
    if not is_plain:
        raise ValueError(
            f"`{argument}` must be a plain name without a path, drive or leading dot. Received: "
            f"{argument}={name!r}"
        )
    return name
