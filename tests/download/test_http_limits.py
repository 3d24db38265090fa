"""What a download sends to other hosts, and how much it takes."""

from __future__ import annotations

import errno
import json
import shutil
import types
from pathlib import Path
from typing import Any

import pytest

from keras_vit.download import http
from tests.bad_server import Loopback, Page
from tests.download.test_http import CONTENT, answers, interrupted, part, server, transfer

__all__ = ["part", "server"]


def test_transfer_sends_another_host_only_the_byte_range(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = {"Range": "bytes=5-", "If-Range": '"tag"'}
    asked = answers(monkeypatch, "https://example.org/b")
    http._open("https://127.0.0.1/a", ranges)
    assert asked[0][1].keys() == {"User-Agent", "Accept-Encoding", *ranges}
    assert asked[1] == ("https://example.org/b", {"Accept-Encoding": "identity", **ranges})


def test_transfer_sends_no_password(
    server: Loopback, part: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    cookie = {"Location": server.url("/b"), "Set-Cookie": "session=secret; Path=/"}
    server.pages["/a"] = Page(status=302, headers=cookie)
    server.pages["/b"] = Page(CONTENT)
    transfer(server.url("/a"), part)
    for asked in server.asked:
        assert not {"authorization", "cookie"} & asked.headers.keys()


def test_transfer_gives_up_after_many_redirects(server: Loopback, part: Path) -> None:
    server.pages["/a"] = Page(status=302, headers={"Location": server.url("/a")})
    with pytest.raises(ConnectionError, match="more than 10 redirects"):
        transfer(server.url("/a"), part)
    assert len(server.asked) == 11


@pytest.mark.parametrize("length", [None, -1])
def test_transfer_refuses_more_than_the_limit(
    length: int | None, server: Loopback, part: Path
) -> None:
    server.pages["/a"] = Page(CONTENT, length=length)
    with pytest.raises(
        ValueError, match=r"200003 bytes, and at most 70000|more than the 70000 bytes"
    ):
        transfer(server.url("/a"), part, limit=70_000)
    assert list(part.parent.iterdir()) == []
    transfer(server.url("/a"), part, limit=len(CONTENT))
    assert part.read_bytes() == CONTENT


def test_transfer_looks_at_the_free_space(
    server: Loopback, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=150_000))
    server.pages["/a"] = page = Page(CONTENT)
    with pytest.raises(OSError, match=r"0\.2 MiB needed, 0\.1 MiB free") as error:
        transfer(server.url("/a"), part)
    assert error.value.errno == errno.ENOSPC
    assert not part.exists()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=1 << 40))
        interrupted(server, part, page)
    transfer(server.url("/a"), part)  # the rest fits
    assert part.read_bytes() == CONTENT


def test_transfer_gives_up_on_a_slow_server(
    server: Loopback, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_RETRY_DELAYS", (0.0,))
    monkeypatch.setattr(http, "_TIMEOUT", 0.5)
    server.pages["/a"] = Page(CONTENT, pause=0.1, piece=10)
    with pytest.raises(ConnectionError, match="less than 1 kB a second"):
        transfer(server.url("/a"), part)
    assert 0 < part.stat().st_size < len(CONTENT)  # is resumed later


def test_transfer_takes_no_more_than_the_known_size(server: Loopback, part: Path) -> None:
    server.pages["/a"] = Page(CONTENT, length=-1)
    with pytest.raises(ValueError, match="more than the 10 bytes that are expected"):
        transfer(server.url("/a"), part, size=10)
    server.pages["/a"] = Page(b"", length=10**400)
    with pytest.raises(ConnectionError, match="an impossible length"):
        transfer(server.url("/a"), part)


@pytest.mark.parametrize(
    "damage", [{"size": "5"}, {"hashes": 5}, {"validator": "a\nb"}, "[" * 9999]
)
def test_transfer_starts_anew_with_other_types(damage: Any, server: Loopback, part: Path) -> None:
    interrupted(server, part, Page(CONTENT))
    notes = part.with_name(f"{part.name}.json")
    text = damage if isinstance(damage, str) else json.dumps(json.loads(notes.read_text()) | damage)
    notes.write_text(text)
    transfer(server.url("/a"), part)
    assert part.read_bytes() == CONTENT
