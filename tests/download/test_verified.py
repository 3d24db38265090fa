"""What verifies a file: hashes of its publisher, its first download, and neither."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keras_vit.download.cache import accept, fetch
from tests.bad_server import Loopback, Page, goog_hash
from tests.download.test_cache import CONTENT, NAME, PATH, SHA256, URL, WRONG, home, server
from tests.download.test_http import secure

__all__ = ["home", "secure", "server"]

REQUIRE = "KERAS_VIT_REQUIRE_HASH"


@pytest.fixture
def publisher(secure: Loopback) -> Iterator[Loopback]:
    """The server of the original URLs, which speaks https; `server` is the mirror."""
    return secure


def linked(content: bytes) -> dict[str, str]:
    return {"X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"'}


@pytest.mark.parametrize("stated", [linked, lambda content: {"x-goog-hash": goog_hash(content)}])
def test_hashes_are_those_of_the_publisher(
    stated: Any, server: Loopback, publisher: Loopback, home: Path, capsys: Any
) -> None:
    """Not those that a mirror states for another file."""
    publisher.pages[PATH] = Page(CONTENT, headers=stated(CONTENT))
    server.pages[PATH] = Page(WRONG, headers=stated(WRONG))
    found = fetch([publisher.url(PATH)], NAME)
    assert found.path.read_bytes() == CONTENT
    assert f"{server.url(PATH)}: its " in capsys.readouterr().out


def test_file_of_a_mirror_is_verified_by_the_publisher(
    server: Loopback, publisher: Loopback, home: Path
) -> None:
    """A mirror need not pass on the headers of the hub then."""
    publisher.pages[PATH] = Page(CONTENT, headers=linked(CONTENT))
    server.pages[PATH] = Page(CONTENT)
    found = fetch([publisher.url(PATH)], NAME, needs_sha256=True)
    assert (found.level, found.verified) == ("https, size, SHA-256 stated for the file", True)
    assert json.loads((home / f"{NAME}.json").read_text())["url"] == server.url(PATH)


def test_file_of_a_mirror_alone_is_unverified(
    server: Loopback, publisher: Loopback, home: Path
) -> None:
    """The publisher cannot be reached, or states no hash."""
    for url in (URL, publisher.url("/other" + PATH)):
        publisher.pages["/other" + PATH] = Page(CONTENT)
        path = "/other" + PATH if url != URL else PATH
        server.pages[path] = Page(CONTENT, headers={"x-goog-hash": goog_hash(CONTENT)})
        found = fetch([url], NAME if url == URL else "other.npz")
        assert (found.level, found.verified) == ("size, CRC32C, MD5", False)


def test_publisher_comes_first_if_asked(server: Loopback, publisher: Loopback, home: Path) -> None:
    server.pages[PATH] = Page(WRONG)
    publisher.pages[PATH] = Page(CONTENT)
    found = fetch([publisher.url(PATH)], NAME, publisher_first=True)
    assert (found.path.read_bytes(), found.level) == (CONTENT, "https, size")
    assert server.asked == []


def test_accept_reports_an_unverified_file_at_every_use(
    server: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    server.pages[PATH] = Page(CONTENT)
    said = f"{home / NAME} is unverified: no SHA-256 or MD5 from its publisher. Verified by: size."
    for _ in range(2):
        assert accept(fetch([URL], NAME)) == home / NAME
        assert said in capsys.readouterr().out
    monkeypatch.setenv(REQUIRE, "1")
    with pytest.raises(ValueError, match="must have a published hash with KERAS_VIT_REQUIRE_HASH"):
        accept(fetch([URL], NAME))
    assert accept(fetch([URL], NAME, sha256=SHA256)) == home / NAME
    assert "unverified" not in capsys.readouterr().out


def test_first_download_pins_the_hash(server: Loopback, home: Path) -> None:
    server.pages[PATH] = Page(CONTENT)
    fetch([URL], NAME).path.unlink()
    server.pages[PATH] = Page(WRONG)
    with pytest.raises(ValueError, match=f"and {SHA256} when it was first downloaded. Delete "):
        fetch([URL], NAME)
    assert not (home / NAME).exists()
    server.pages[PATH] = Page(CONTENT)
    assert fetch([URL], NAME).path.read_bytes() == CONTENT
    (home / NAME).unlink()
    server.pages[PATH] = Page(WRONG)
    wrong = hashlib.sha256(WRONG).hexdigest()
    assert fetch([URL], NAME, sha256=wrong).path.read_bytes() == WRONG  # published, so accepted


def swap(path: Path, content: bytes, *, in_place: bool) -> None:
    """Changes a file, but neither its size nor its time."""
    stat = path.stat()
    if in_place:
        path.write_bytes(content)
    else:
        path.with_name("new").write_bytes(content)
        path.with_name("new").replace(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_another_file_of_the_same_size_and_time_is_hashed(server: Loopback, home: Path) -> None:
    server.pages[PATH] = Page(CONTENT)
    path = fetch([URL], NAME).path
    swap(path, CONTENT, in_place=False)
    assert fetch([URL], NAME).path == path
    swap(path, WRONG, in_place=False)
    with pytest.raises(ValueError, match="it was changed after it was verified"):
        fetch([URL], NAME)


def test_required_hashes_are_computed_at_every_use(
    server: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages[PATH] = Page(CONTENT)
    swap(fetch([URL], NAME, sha256=SHA256).path, WRONG, in_place=True)
    fetch([URL], NAME, sha256=SHA256)
    monkeypatch.setenv(REQUIRE, "1")
    with pytest.raises(ValueError, match="it was changed after it was verified"):
        fetch([URL], NAME, sha256=SHA256)


def test_pin_of_an_earlier_version_in_a_cache_that_cannot_be_written(
    server: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages[PATH] = Page(CONTENT)
    found = fetch([URL], NAME)
    pin = home / f"{NAME}.json"
    earlier = {key: value for key, value in json.loads(pin.read_text()).items() if key != "inode"}
    pin.write_text(json.dumps(earlier))

    def fail(*_: Any) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr("keras_vit.download.cache.write_json", fail)
        assert fetch([URL], NAME) == found
    assert fetch([URL], NAME) == found
    assert json.loads(pin.read_text())["inode"] == found.path.stat().st_ino
