"""Requests for JSON with bounded time, size and memory."""

from __future__ import annotations

import json
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from keras_vit.escapes import terminal

if TYPE_CHECKING:
    import requests

MAX_RESPONSE = 32 << 20  # bytes
_MAX_MEMORY = 160 << 20  # bytes of the parsed response
# Upper bounds of the memory in bytes that Python needs for each of these characters of JSON.
_MEMORY = {b"{": 240, b"[": 72, b'"': 45, b",": 32}


def request_json(
    session: requests.Session, method: str, url: str, timeout: float, **options: Any
) -> tuple[int, Any]:
    """Returns the status code and the JSON of a response; redirects are not followed.

    Raises `requests.RequestException` if the response is not complete within `timeout` seconds or
    cannot be received, and `ValueError` if it is compressed, too large, or not JSON.
    """
    import requests
    import urllib3

    end = time.monotonic() + timeout
    results: queue.SimpleQueue[tuple[int, bytes] | BaseException] = queue.SimpleQueue()
    options |= {"stream": True, "allow_redirects": False, "timeout": timeout}
    options["auth"] = lambda request: request  # .netrc would replace a header

    def run() -> None:
        try:
            headers = {"Accept-Encoding": "identity"}
            with session.request(method, url, headers=headers, **options) as response:
                results.put((response.status_code, _body(response, end)))
        except urllib3.exceptions.HTTPError as error:
            results.put(requests.exceptions.ChunkedEncodingError(error))
        except BaseException as error:
            results.put(error)

    # The timeout of requests is for each piece of a response. A thread that receives one piece
    # after the other ends with the next one after `end`, or with the program.
    threading.Thread(target=run, daemon=True).start()
    try:
        result = results.get(timeout=timeout)
    except queue.Empty:
        raise requests.Timeout(f"timed out after {timeout:.3g} s") from None
    if isinstance(result, BaseException):
        raise result
    return result[0], _parsed(*result)


def _body(response: requests.Response, end: float) -> bytes:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ValueError(f"{response.status_code}: a compressed response, which was not requested")
    if response.is_redirect:
        target = response.headers["Location"]
        raise ValueError(
            f"{response.status_code}: a redirect to {terminal(target)}, which is not followed"
        )
    body = bytearray()
    while (data := response.raw.read1(1 << 16)) and time.monotonic() < end:
        body += data
        if len(body) > MAX_RESPONSE:
            raise ValueError(f"a response of more than {MAX_RESPONSE >> 20} MiB")
    return bytes(body)


def _parsed(code: int, body: bytes) -> Any:
    if sum(size * body.count(character) for character, size in _MEMORY.items()) > _MAX_MEMORY:
        raise ValueError(f"{code}: a response of too many values; send fewer images, or use gRPC")
    try:
        return json.loads(body)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{code}: not JSON: {body[:200].decode(errors='replace')!r}") from error
