"""An HTTP server on 127.0.0.1 that misbehaves as told, and notes what it was asked for."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import google_crc32c


@dataclasses.dataclass
class Page:
    """How one path is answered.

    Args:
        content: The body.
        status: Of the answer; anything but 200 has no body and ignores `ranges`.
        headers: Further headers; an `ETag` made from the content unless there is one. Assign or
            delete them at will.
        statuses: Taken by the first requests instead of `status`, one each.
        cuts: Bytes of the body after which the connection of the first requests is cut, one each.
        length: The Content-Length to state instead of the true one; -1 for none.
        ranges: Whether `Range` is heeded.
        pause: Seconds before each piece of the body.
        piece: Bytes of a piece.
    """

    content: bytes = b""
    status: int = 200
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    statuses: list[int] = dataclasses.field(default_factory=list)
    cuts: list[int] = dataclasses.field(default_factory=list)
    length: int | None = None
    ranges: bool = True
    pause: float = 0.0
    piece: int = 8192

    def __post_init__(self) -> None:
        self.headers.setdefault("ETag", f'"{hashlib.md5(self.content).hexdigest()}"')


@dataclasses.dataclass
class Asked:
    """A request: its path and headers (names in lower case), the answer's status, bytes sent."""

    path: str
    headers: dict[str, str]
    status: int = 0
    sent: int = 0


class Loopback(ThreadingHTTPServer):
    """Serves `pages` while its `with` block runs; 404 for all other paths.

    Args:
        certificate: A PEM file with key and certificate, to speak https.
    """

    def __init__(self, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, Page] = {}
        self.asked: list[Asked] = []
        self._scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    def url(self, path: str = "") -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_port}{path}"

    @property
    def sent(self) -> int:
        """Bytes of all bodies together."""
        return sum(asked.sent for asked in self.asked)

    def __enter__(self) -> Loopback:
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


def goog_hash(content: bytes) -> str:
    """The header that Google Cloud Storage would send."""
    crc = google_crc32c.Checksum()
    crc.update(content)
    digests = {"crc32c": crc.digest(), "md5": hashlib.md5(content).digest()}
    return ",".join(f"{name}={base64.b64encode(d).decode()}" for name, d in digests.items())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Loopback

    def do_GET(self) -> None:
        asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()})
        self.server.asked.append(asked)
        page = self.server.pages.get(self.path, Page(status=404))
        asked.status = page.statuses.pop(0) if page.statuses else page.status
        body = memoryview(page.content if asked.status == 200 else b"")
        start = self._start(page, asked.status)
        if start is not None:
            asked.status = 206 if start < len(body) else 416
            body = body[start:]
        self.send_response(asked.status)
        for name, value in page.headers.items():
            self.send_header(name, value)
        if asked.status == 206:
            last = len(page.content) - 1
            self.send_header("Content-Range", f"bytes {start}-{last}/{len(page.content)}")
        length = len(body) if page.length is None else page.length
        if length >= 0:
            self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.end_headers()
        end = page.cuts.pop(0) if page.cuts else len(body)
        try:
            for begin in range(0, end, page.piece):
                time.sleep(page.pause)
                piece = body[begin : min(begin + page.piece, end)]
                asked.sent += len(piece)  # before the client can have it, and look
                self.wfile.write(piece)
        except ConnectionError:
            pass  # the client went away

    def _start(self, page: Page, status: int) -> int | None:
        """The first byte of the range, if one is asked for and may be sent."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        validator = self.headers.get("If-Range")
        same = validator in (None, page.headers.get("ETag"), page.headers.get("Last-Modified"))
        return int(asked[1]) if asked and same and page.ranges and status == 200 else None

    def log_message(self, *_: Any) -> None:
        pass
