"""Resumable HTTP download of a single URL, with retries."""

from __future__ import annotations

import dataclasses
import errno
import math
import os
import re
import shutil
import ssl
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import keras
import requests
import urllib3

from keras_vit._version import __version__
from keras_vit.download.integrity import Expected, Source
from keras_vit.escapes import terminal
from keras_vit.files import read_object, write_json

_RETRY_DELAYS = (0.5, 1.0, 2.0, 4.0)  # seconds before each retry
_TIMEOUT = 30.0  # seconds without a byte
_SLOWEST = 1000.0  # bytes per second, on average after `_TIMEOUT`
_MAX_REDIRECTS = 10
_BLOCK = 1 << 18  # bytes
_MIB = 1 << 20
_HUB = "https://huggingface.co/"
_ACCESS_DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_TEMPORARY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}  # temporary, like all 5xx


_Headers = Mapping[str, str]


class _RetryError(ConnectionError):
    """Raised for a temporary failure, after which the download is retried."""


def transfer(url: str, part: Path, expected: Expected) -> Source:
    """Downloads a file to `part`, or only the remaining bytes of a partial download.

    A partial download in `part` is resumed if it has the same URL, and the server's response to
    `If-Range`, and its SHA-256 header if present, confirm that the file has not changed; otherwise
    the download restarts. After any interruption, `part` is kept. Only the length is verified: it
    must be the expected size, and at most the limit.
    """
    for delay in _RETRY_DELAYS:
        try:
            return _try(url, part, expected)
        except _RetryError:
            time.sleep(delay)
    return _try(url, part, expected)


def remote_source(url: str) -> Source | None:
    """Returns the metadata of a file without its content; None if the server cannot be reached."""
    try:
        response, response_headers = _open(url, {})
    except ConnectionError:
        return None
    response.close()
    return _source(url, response, response_headers) if response.ok else None


def metadata_path(path: Path) -> Path:
    """Returns the JSON file for the metadata of a partial or complete download."""
    return path.with_name(f"{path.name}.json")


def discard(part: Path) -> None:
    """Deletes a partial download and its metadata."""
    part.unlink(missing_ok=True)
    metadata_path(part).unlink(missing_ok=True)


def say(text: str) -> None:
    """Prints a message if Keras' interactive logging is enabled."""
    if keras.config.is_interactive_logging_enabled():
        print(terminal(text), flush=True)


def mebibytes(size: int | None) -> str:
    """Formats a file size in MiB, for messages."""
    return "unknown size" if size is None else f"{size / _MIB:.1f} MiB"


def _try(url: str, part: Path, expected: Expected) -> Source:
    size, partial = expected.size, _resumable(part, url)
    if partial and expected.needs_sha256 and partial.sha256 is None:
        partial = None
    start = part.stat().st_size if partial else 0
    if partial and start == partial.size:
        return partial  # interrupted after the last byte, before verification
    ranges = {}
    if partial and partial.validator:
        ranges = {"Range": f"bytes={start}-", "If-Range": partial.validator}
    response, response_headers = _open(url, ranges)
    with response:
        source = _source(url, response, response_headers)
        if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            discard(part)
            raise _RetryError("the file on the server ends before this byte range")
        if response.status_code in _TEMPORARY or response.status_code >= 500:
            raise _RetryError(f"HTTP {response.status_code}, {terminal(response.reason)}")
        if partial and response.status_code == HTTPStatus.PARTIAL_CONTENT:
            hashes = {source.sha256, partial.sha256} - {None}
            if len(hashes) > 1 or not _continues(response, partial, start):
                discard(part)
                raise _RetryError("the file on the server changed while it was downloaded")
            say(f"Resuming {url} after {mebibytes(start)} of {mebibytes(partial.size)}")
            source = partial
        elif response.status_code == HTTPStatus.OK:
            start = 0
            if expected.needs_sha256 and source.sha256 is None:
                raise ValueError(
                    "the server does not return the SHA-256 of the file; a mirror must pass on "
                    "the headers X-Linked-Etag and X-Repo-Commit of the Hugging Face Hub"
                )
            if None not in (size, source.size) and size != source.size:
                raise ValueError(f"the server offers {source.size} bytes instead of {size}")
            discard(part)  # before the metadata, which must never describe another file's bytes
            write_json(metadata_path(part), dataclasses.asdict(source))
            say(f"Downloading {url} ({mebibytes(source.size)})")
        else:
            reason = f"HTTP {response.status_code}, {terminal(response.reason)}"
            if response.status_code in _ACCESS_DENIED and url.startswith(_HUB):
                page = re.sub(r"/resolve/.*|\?.*", "", url).replace("/api/models/", "/")
                reason += (
                    f". If the repository exists, it is gated: ask for access on {page}, and set "
                    f"HF_TOKEN to a token of your account ({_HUB}settings/tokens)"
                )
            raise ConnectionError(reason)
        _receive(response, part, start, source.size, expected.limit if size is None else size)
    return source


def _receive(
    response: requests.Response, part: Path, start: int, size: int | None, limit: int | None
) -> None:
    response.raw.enforce_content_length = False  # the length is compared below
    free_bytes = shutil.disk_usage(part.parent).free
    if limit is not None and (size or 0) > limit:
        discard(part)
        raise ValueError(f"the server offers {size} bytes, and at most {limit} are expected")
    if (size or 0) - start > free_bytes:
        raise OSError(
            errno.ENOSPC, f"{mebibytes(size and size - start)} needed, {mebibytes(free_bytes)} free"
        )
    # At least 1: Keras before 3.15 computes the logarithm of the total.
    total = None if size is None else max(math.ceil((size - start) / _MIB), 1)
    bar = keras.utils.Progbar(total, unit_name="MiB")
    received, start_time = start, time.monotonic()
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
                seconds = time.monotonic() - start_time
                if seconds > _TIMEOUT and received - start < _SLOWEST * seconds:
                    raise _RetryError(f"the server sends less than {_SLOWEST / 1000:g} kB a second")
                if limit is not None and received > limit:
                    break
        finally:
            bar.update((received - start) / _MIB, finalize=True)
    if limit is not None and received > limit:
        discard(part)
        raise ValueError(f"the server sends more than the {limit} bytes that are expected")
    if size is not None and received < size:
        raise _RetryError(f"the connection was cut after {received} of {size} bytes")


def _read(response: requests.Response, size: int) -> bytes:
    try:
        return response.raw.read1(size)
    except (OSError, urllib3.exceptions.HTTPError) as error:
        raise _RetryError(f"the connection failed: {_root_message(error)}") from error


def _open(url: str, ranges: Mapping[str, str]) -> tuple[requests.Response, Sequence[_Headers]]:
    """Returns the response after all redirects, and the headers of each response."""
    response_headers: list[_Headers] = []
    request_headers = {"User-Agent": f"keras_vit/{__version__}"}
    token = os.environ.get("HF_TOKEN", "").strip()
    if url.startswith(_HUB) and re.fullmatch(r"[!-~]+", token):
        request_headers["Authorization"] = f"Bearer {token}"
    while len(response_headers) <= _MAX_REDIRECTS:
        response = _get(url, {**request_headers, "Accept-Encoding": "identity", **ranges})
        response_headers.append(response.headers)
        if not response.is_redirect:
            return response, response_headers
        response.close()  # without reading the body, which may be of any length
        target = urljoin(url, response.headers["Location"])
        old, new = urlsplit(url), urlsplit(target)
        if new.scheme not in ("https", old.scheme):
            safe_url = new._replace(netloc=new.netloc.rpartition("@")[2]).geturl()  # no password
            raise ConnectionError(
                f"refused to follow a redirect from {old.scheme} to {terminal(safe_url)}"
            )
        if old.netloc != new.netloc:
            request_headers = {}
        url = target
    raise ConnectionError(f"more than {_MAX_REDIRECTS} redirects")


def _get(url: str, headers: Mapping[str, str]) -> requests.Response:
    session = requests.Session()  # a new one for each request: it carries cookies along
    session.mount("https://", _SystemCertificates())
    session.auth = lambda request: request  # no password from .netrc
    session.headers.clear()
    try:
        return session.get(
            url, headers=headers, stream=True, timeout=_TIMEOUT, allow_redirects=False
        )
    except OSError as error:  # of requests, and for missing certificate files
        temporary = isinstance(error, (requests.ConnectionError, requests.Timeout))
        if temporary and not isinstance(error.args[0], urllib3.exceptions.MaxRetryError):
            raise _RetryError(f"the connection failed: {_root_message(error)}") from error
        raise ConnectionError(_root_message(error)) from error  # no connection at all


class _SystemCertificates(requests.adapters.HTTPAdapter):
    """Also trusts the certificates of the system and of `SSL_CERT_FILE`."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=ssl.create_default_context(), **kwargs)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        return super().proxy_manager_for(*args, ssl_context=ssl.create_default_context(), **kwargs)


def _source(url: str, response: requests.Response, response_headers: Sequence[_Headers]) -> Source:
    length = response.raw.length_remaining
    if (length or 0) > 1 << 50:
        raise ConnectionError("an impossible length of more than 2**50 bytes")
    hashes = response.headers.get("x-goog-hash", "")
    return Source(url, length, _validator(response), hashes, *_linked(response_headers))


def _linked(response_headers: Sequence[_Headers]) -> tuple[str | None, str | None]:
    """Returns the SHA-256 and commit in the hub's headers; None for small files in git."""
    for headers in response_headers:
        if tag := re.fullmatch(r'"?([0-9a-f]{64})"?', headers.get("X-Linked-Etag", "")):
            commit = re.fullmatch(r"[0-9a-f]{40}", headers.get("X-Repo-Commit", ""))
            return tag[1], commit and commit[0]
    return None, None


def _validator(response: requests.Response) -> str | None:
    tag = response.headers.get("ETag")
    # RFC 9110, section 13.1.5: a weak tag does not identify the exact bytes.
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _continues(response: requests.Response, partial: Source, start: int) -> bool:
    content_range = response.headers.get("Content-Range")
    same = _validator(response) in (None, partial.validator)
    return same and content_range == f"bytes {start}-{(partial.size or 0) - 1}/{partial.size}"


def _resumable(part: Path, url: str) -> Source | None:
    """Returns the metadata of a partial download if it can be resumed from `url`, else None."""
    try:
        partial, start = Source(**read_object(metadata_path(part))), part.stat().st_size
    except (OSError, TypeError):
        return None
    header_values = (partial.validator, partial.hashes)
    printable = all(isinstance(text, str) and text.isprintable() for text in header_values)
    size_matches = isinstance(partial.size, int) and 0 < start <= partial.size
    return partial if partial.url == url and printable and size_matches else None


def _root_message(error: BaseException) -> str:
    """Returns the message of the root cause of a chained exception."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return terminal(error) or type(error).__name__
