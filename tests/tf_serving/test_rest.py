"""Responses over REST."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from keras_vit.tf_serving.rest import request_json
from tests.bad_server import Loopback, Page

PATH = "/v1/models/vit/metadata"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Loopback() as server:
        yield server


def ask(server: Loopback, timeout: float = 5.0, **headers: str) -> Any:
    with requests.Session() as session:
        session.headers.update(headers)
        return request_json(session, "GET", server.url(PATH), timeout)


def test_content_and_status_are_returned(server: Loopback) -> None:
    server.pages[PATH] = Page(b'{"a": [1, 2.5, "x"]}')
    assert ask(server) == (200, {"a": [1, 2.5, "x"]})
    assert server.asked[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff", b"[" * 100_000, b"1" * 5000])
def test_what_is_not_json_is_an_error(body: bytes, server: Loopback) -> None:
    server.pages[PATH] = Page(body)
    with pytest.raises(ValueError, match="200: not JSON: "):
        ask(server)


def test_dripping_server_is_left_at_the_deadline(server: Loopback) -> None:
    server.pages[PATH] = Page(b" " * 1000 + b"{}", pause=0.05, piece=1)
    with pytest.raises(requests.Timeout, match=r"timed out after 0\.3 s"):
        ask(server, 0.3)
    assert server.sent < 100  # not the 50 s of the whole response


def test_cut_response_is_an_error(server: Loopback) -> None:
    server.pages[PATH] = Page(json.dumps([1] * 99).encode(), cuts=[10])
    with pytest.raises(requests.RequestException, match="IncompleteRead"):
        ask(server)


def test_redirects_do_not_receive_headers(server: Loopback) -> None:
    with Loopback() as other:
        other.pages["/"] = Page(b"{}")
        server.pages[PATH] = Page(status=307, headers={"Location": other.url("/")})
        with pytest.raises(ValueError, match=r"307: a redirect to http://.* is not followed"):
            ask(server, **{"X-Api-Key": "secret"})
        assert other.asked == []
