"""Resumable HTTP download of a single URL, with retries."""

from __future__ import annotations

import dataclasses
import http.client
import json
import math
import re
import time
import urllib.error
import urllib.request
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import keras

from keras_vit._version import __version__
from keras_vit.files import write_json

_PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before each retry
_TIMEOUT = 30.0  # seconds without a byte
_BLOCK = 1 << 18  # bytes
_MIB = 1 << 20
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}  # temporary, like all 5xx


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


class _CutError(ConnectionError):
    """Raised for a temporary failure, after which the download is retried."""


def transfer(
    url: str, part: Path, size: int | None = None, *, needs_sha256: bool = False
) -> Source:
    """Downloads a file to `part`, or only the remaining bytes of a partial download.

    A partial download in `part` is resumed if it has the same URL, and the server's response to
    `If-Range`, and its SHA-256 header if present, confirm that the file has not changed; otherwise
    the download restarts. After any interruption, `part` is kept. Only the length is verified.
    """
    for pause in _PAUSES:
        try:
            return _try(url, part, size, needs_sha256)
        except _CutError:
            time.sleep(pause)
    return _try(url, part, size, needs_sha256)


def discard(part: Path) -> None:
    """Deletes a partial download and its metadata."""
    part.unlink(missing_ok=True)
    _notes(part).unlink(missing_ok=True)


def say(text: str) -> None:
    """Prints a message if Keras' interactive logging is enabled."""
    if keras.config.is_interactive_logging_enabled():
        print(text, flush=True)


def mebibytes(size: int | None) -> str:
    """Formats a file size in MiB, for messages."""
    return "unknown size" if size is None else f"{size / _MIB:.1f} MiB"


def _try(url: str, part: Path, size: int | None, needs_sha256: bool) -> Source:
    known = _resumable(part, url)
    if known and needs_sha256 and known.sha256 is None:
        known = None
    start = part.stat().st_size if known else 0
    if known and start == known.size:
        return known  # interrupted after the last byte, before verification
    redirects = _Redirects()
    with _open(url, part, known, start, redirects) as response:
        stated = _stated([*redirects.headers, response.headers])
        if known and response.status == HTTPStatus.PARTIAL_CONTENT:
            if not _continues(response, known, start) or _differs(stated[0], known.sha256):
                discard(part)
                raise _CutError("the file on the server changed while it was downloaded")
            say(f"Resuming {url} after {mebibytes(start)} of {mebibytes(known.size)}")
            source = known
        elif response.status == HTTPStatus.OK:
            source, start = _source(url, response, *stated), 0
            if needs_sha256 and source.sha256 is None:
                raise ValueError(
                    "the server does not return the SHA-256 of the file; a mirror must pass on "
                    "the headers X-Linked-Etag and X-Repo-Commit of the Hugging Face Hub"
                )
            if None not in (size, source.size) and size != source.size:
                raise ValueError(f"the server offers {source.size} bytes instead of {size}")
            discard(part)  # before the metadata, which must never describe another file's bytes
            write_json(_notes(part), dataclasses.asdict(source))
            say(f"Downloading {url} ({mebibytes(source.size)})")
        else:
            raise ConnectionError(f"an unexpected response, HTTP {response.status}")
        _receive(response, part, start, source.size)
    return source


def _differs(stated: str | None, noted: str | None) -> bool:
    return None not in (stated, noted) and stated != noted


def _receive(response: http.client.HTTPResponse, part: Path, start: int, size: int | None) -> None:
    # At least 1: Keras before 3.15 computes the logarithm of the total.
    total = None if size is None else max(math.ceil((size - start) / _MIB), 1)
    bar = keras.utils.Progbar(total, unit_name="MiB")
    received = start
    with part.open("ab") as file:
        try:
            while received != size:
                # `read1` returns the available bytes, so that no byte waits for a full block.
                data = _read(response, _BLOCK if size is None else min(_BLOCK, size - received))
                if not data:
                    break
                file.write(data)
                received += len(data)
                bar.update((received - start) / _MIB, finalize=False)
        finally:
            bar.update((received - start) / _MIB, finalize=True)
    if size is not None and received < size:
        raise _CutError(f"the connection was cut after {received} of {size} bytes")


def _read(response: http.client.HTTPResponse, size: int) -> bytes:
    try:
        return response.read1(size)
    except (OSError, http.client.HTTPException) as error:
        raise _CutError(f"the connection failed: {_words(error)}") from error


def _open(
    url: str, part: Path, known: Source | None, start: int, redirects: _Redirects
) -> http.client.HTTPResponse:
    request = urllib.request.Request(url)
    request.add_header("User-Agent", f"keras_vit/{__version__}")
    request.add_header("Accept-Encoding", "identity")
    if known and known.validator:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", known.validator)
    try:
        return urllib.request.build_opener(redirects).open(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            discard(part)
            raise _CutError("the file on the server ends before this byte range") from error
        passing = error.code in _PASSING or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR
        reason = f"HTTP {error.code}, {error.reason}"
        raise (_CutError if passing else ConnectionError)(reason) from error
    except urllib.error.URLError as error:  # no connection at all
        raise ConnectionError(_words(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise _CutError(f"the connection failed: {_words(error)}") from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self) -> None:
        self.headers: list[Message] = []  # of the redirects

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("https", req.type):
            reason = f"refused to follow a redirect from {req.type} to {newurl}"
            raise urllib.error.HTTPError(req.full_url, code, reason, headers, fp)
        self.headers.append(headers)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _source(
    url: str, response: http.client.HTTPResponse, sha256: str | None, commit: str | None
) -> Source:
    hashes = ",".join(response.headers.get_all("x-goog-hash", []))
    return Source(url, response.length, _validator(response), hashes, sha256, commit)


def _stated(answers: list[Message]) -> tuple[str | None, str | None]:
    """Returns the SHA-256 and commit in the hub's headers; None for small files in git."""
    for headers in answers:
        tag = re.fullmatch(r'"?([0-9a-f]{64})"?', headers.get("X-Linked-Etag", ""))
        if tag:
            commit = re.fullmatch(r"[0-9a-f]{40}", headers.get("X-Repo-Commit", ""))
            return tag[1], commit and commit[0]
    return None, None


def _validator(response: http.client.HTTPResponse) -> str | None:
    tag = response.headers.get("ETag")
    # RFC 9110, section 13.1.5: a weak tag does not identify the exact bytes.
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _continues(response: http.client.HTTPResponse, known: Source, start: int) -> bool:
    stated = response.headers.get("Content-Range")
    same = _validator(response) in (None, known.validator)
    return same and stated == f"bytes {start}-{(known.size or 0) - 1}/{known.size}"


def _resumable(part: Path, url: str) -> Source | None:
    """Returns the metadata of a partial download if it can be resumed from `url`, else None."""
    try:
        known = Source(**json.loads(_notes(part).read_text(encoding="utf-8")))
        start = part.stat().st_size
    except (OSError, ValueError, TypeError):
        return None
    if known.url != url or known.validator is None or known.size is None:
        return None
    return known if 0 < start <= known.size else None


def _notes(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _words(error: object) -> str:
    return str(error) or type(error).__name__
