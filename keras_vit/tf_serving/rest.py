"""Requests for JSON with a timeout for the whole response."""

from __future__ import annotations

import json
import time
from typing import Any

import requests
import urllib3

from keras_vit.escapes import terminal


def request_json(
    session: requests.Session, method: str, url: str, timeout: float, **options: Any
) -> tuple[int, Any]:
    """Returns the status code and the JSON of a response; redirects are not followed.

    Raises `requests.RequestException` if the response is not complete after `timeout` seconds or
    cannot be received, and `ValueError` if it is a redirect or not JSON. A stalled response can
    take longer, since each wait for the network has the same timeout.
    """
    end = time.monotonic() + timeout
    options |= {"stream": True, "allow_redirects": False, "timeout": timeout}
    options["auth"] = lambda request: request  # .netrc would replace a header
    headers = {"Accept-Encoding": "identity"}
    body = bytearray()
    try:
        with session.request(method, url, headers=headers, **options) as response:
            code = response.status_code
            if response.is_redirect:
                target = terminal(response.headers["Location"])
                raise ValueError(f"{code}: a redirect to {target}, which is not followed")
            # The timeout of requests is for each piece of a response.
            while piece := response.raw.read1(1 << 16):
                body += piece
                if time.monotonic() > end:
                    raise requests.Timeout(f"timed out after {timeout:.3g} s")
    except urllib3.exceptions.HTTPError as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error
    try:
        return code, json.loads(body)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{code}: not JSON: {body[:200].decode(errors='replace')!r}") from error
