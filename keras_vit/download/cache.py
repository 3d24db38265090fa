"""Cache of verified downloads in the Keras home folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any
from urllib.parse import urlsplit

import filelock

from keras_vit.download.http import discard, mebibytes, say, transfer
from keras_vit.download.integrity import Expected, file_digests
from keras_vit.files import write_json


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


def fetch(
    urls: Sequence[str],
    file_name: str,
    *,
    folder: str | None = None,
    size: int | None = None,
    sha256: str | None = None,
    sha256_prefix: str | None = None,
    needs_sha256: bool = False,
    limit: int | None = None,
    check: Callable[[Path], None] | None = None,
) -> Download:
    """Returns a published file from the cache, downloading it first if necessary.

    A given `sha256` is sufficient. Otherwise a file must pass all available checks: https,
    size, prefix, the SHA-256 in the Hugging Face hub's header `X-Linked-Etag`, the MD5 and the
    CRC32C in the server's header `x-goog-hash`, and `check`. The SHA-256 of the file and the
    passed checks (with the commit in the hub's header `X-Repo-Commit`) are then pinned in
    `file_name` + `.json`: a file that changes afterwards is rejected, and an unchanged file is
    used without a connection, even if the file at its URL has changed. A file without a pin (for
    example copied by hand) is verified like a download, but without the server's headers. The
    final file name exists only for a complete and verified file. A file of more than `limit` bytes
    is rejected.

    The next call resumes an interrupted download. Several processes download a file once. There
    are three environment variables:

    - `KERAS_HOME`: the cache is `models/keras_vit` in this folder; `~/.keras` if unset.
    - `KERAS_VIT_MIRROR`: base URLs, separated by spaces or commas, which are tried first and may
      be http. A mirror serves the path of the original: for
      `https://storage.googleapis.com/vit_models/augreg/X.npz` and the mirror
      `http://127.0.0.1:8000`, the request is `http://127.0.0.1:8000/vit_models/augreg/X.npz`. A
      mirror of the hub must pass on both of its headers.
    - `KERAS_VIT_OFFLINE`: any value except empty and 0 forbids connections.
    """
    expected = Expected(size, sha256, sha256_prefix, check, limit, needs_sha256)
    if isinstance(urls, str) or not urls or not all(url.startswith("https://") for url in urls):
        raise ValueError(f"`urls` must be a list of https URLs. Received: urls={urls!r}")
    inside = cache_folder() if folder is None else cache_folder() / _plain("folder", folder)
    path = inside / _plain("file_name", file_name)
    found = _unchanged(path)
    if found is None:
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            waiting = f"Waiting for another process that is downloading {path} ..."
            with _alone(path.with_name(f".{file_name}.lock"), waiting):
                found = _unchanged(path)
                if found is None and path.exists():
                    found = _inspect(path, urls, expected)
                elif found is None:
                    found = _download(path, urls, expected)
    try:
        expected.compare(path.stat().st_size, found.sha256)
    except ValueError as error:
        raise _other(path, urls, error) from error
    return dataclasses.replace(found, level="SHA-256") if sha256 else found


@contextlib.contextmanager
def _alone(path: Path, waiting: str) -> Iterator[None]:
    """Acquires a lock file; prints `waiting` if another process holds the lock."""
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        print(waiting, file=sys.stderr, flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def cache_folder() -> Path:
    """Returns the folder for downloaded weights, which may not exist yet."""
    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser().absolute()
    return home / "models" / "keras_vit"


def _download(path: Path, urls: Sequence[str], expected: Expected) -> Download:
    by_hand = (
        f"Download {urls[0]} ({mebibytes(expected.size)}) manually, and pass the file as the "
        f"weights (--weights FILE) or store it as {path}."
    )
    if os.environ.get("KERAS_VIT_OFFLINE", "") not in ("", "0"):
        raise ConnectionError(
            f"{path.name} is not in the cache, and KERAS_VIT_OFFLINE forbids connections. {by_hand}"
        )
    part = path.with_name(f"{path.name}.part")
    reasons: list[str] = []
    kind: type[Exception] = ConnectionError
    for url in _addresses(urls):
        try:
            sha256, level = _receive(url, part, expected)
        except (ConnectionError, ValueError) as error:
            reasons.append(f"{url}: {error}")
            say(reasons[-1])
            kind = ValueError if isinstance(error, ValueError) else kind
            continue
        with part.open("r+b") as file:  # Windows flushes only what may be written
            os.fsync(file.fileno())
        found = _pin(part, path, sha256, level, url)  # before the file: a pin alone is harmless
        os.replace(part, path)
        discard(part)
        say(f"Verified {path} by: {level}")
        return found
    listed = "\n  ".join(reasons)
    raise kind(f"{path.name} could not be downloaded.\n  {listed}\n{by_hand}")


def _receive(url: str, part: Path, expected: Expected) -> tuple[str, str]:
    source = transfer(
        *(url, part, expected.size), limit=expected.limit, needs_sha256=expected.needs_sha256
    )
    try:
        return expected.verify(part, source)
    except ValueError:
        discard(part)  # a wrong file must not be resumed
        raise


def _inspect(path: Path, urls: Sequence[str], expected: Expected) -> Download:
    """Verifies a cached file that was added or changed by another program."""
    pin = _read_pin(path)
    if pin is None:
        try:
            sha256, level = expected.verify(path)
        except ValueError as error:
            raise _other(path, urls, error) from error
        return _pin(path, path, sha256, level, None)
    sha256 = file_digests(path, ["sha256"])["sha256"].hex()
    if sha256 != pin["sha256"]:
        raise _other(path, urls, f"it was changed after it was verified (see {_pin_path(path)})")
    return _pin(path, path, sha256, pin["level"], pin["url"])


def _unchanged(path: Path) -> Download | None:
    """Returns the cached file if its size and modification time match the last verification."""
    pin = _read_pin(path)
    if pin is None or not path.is_file():
        return None
    stat = path.stat()
    if (stat.st_size, stat.st_mtime_ns) != (pin["bytes"], pin["mtime_ns"]):
        return None
    return Download(path, pin["sha256"], pin["level"])


def _other(path: Path, urls: Sequence[str], reason: object) -> ValueError:
    return ValueError(
        f"{path} is not the published file: {reason}. Delete it, and it will be downloaded again "
        f"from {urls[0]}."
    )


def _pin_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _pin(content: Path, path: Path, sha256: str, level: str, url: str | None) -> Download:
    """Records the hash and verification of the file `content` in a JSON file beside `path`."""
    stat = content.stat()
    pin = {
        "url": url,
        "sha256": sha256,
        "bytes": stat.st_size,
        "level": level,
        "mtime_ns": stat.st_mtime_ns,
    }
    write_json(_pin_path(path), pin)
    return Download(path, sha256, level)


def _read_pin(path: Path) -> dict[str, Any] | None:
    try:
        pin = json.loads(_pin_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    keys = {"url", "sha256", "bytes", "level", "mtime_ns"}
    if not isinstance(pin, dict) or pin.keys() != keys:
        return None
    return pin if all(isinstance(pin[key], str) for key in ("sha256", "level")) else None


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Adds details of the download to file-system errors, such as those for a full disk."""
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        raise OSError(
            error.errno,
            f"{error.strerror or error} while writing {path.name} to the cache. The partial "
            "download is kept; set KERAS_HOME to use another folder",
            error.filename or str(path.parent),
        ) from error


def _addresses(urls: Sequence[str]) -> list[str]:
    """Returns the URLs to try, in order: first the mirrors, then the original URLs."""
    mirrors = re.split(r"[\s,]+", os.environ.get("KERAS_VIT_MIRROR", "").strip(" ,"))
    found = []
    for mirror in filter(None, mirrors):
        if not re.match(r"https?://.", mirror):
            raise ValueError(
                "`KERAS_VIT_MIRROR` must contain http or https URLs, separated by spaces or "
                f"commas. Received: KERAS_VIT_MIRROR={os.environ['KERAS_VIT_MIRROR']!r}"
            )
        found += [mirror.rstrip("/") + urlsplit(url).path for url in urls]
    return list(dict.fromkeys([*found, *urls]))


def _plain(argument: str, name: str) -> str:
    plain = name == PureWindowsPath(name).name != "" and name[0] != "." and name.isprintable()
    if not plain:
        raise ValueError(
            f"`{argument}` must be a plain name without a path, drive or leading dot. Received: "
            f"{argument}={name!r}"
        )
    return name
