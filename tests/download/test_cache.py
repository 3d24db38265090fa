from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.download import http
from keras_vit.download.cache import Download, cache_folder, fetch
from tests.bad_server import Loopback, Page, goog_hash

CONTENT = np.random.default_rng(19).bytes(300_007)
WRONG = CONTENT[:150_001] + bytes([CONTENT[150_001] ^ 1]) + CONTENT[150_002:]
SHA256 = hashlib.sha256(CONTENT).hexdigest()

# Nothing listens on port 1: whoever gets past the mirror fails at once.
URL = "https://127.0.0.1:1/vit_models/augreg/Ti_16.npz"
PATH = "/vit_models/augreg/Ti_16.npz"
NAME = "Ti_16.npz"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KERAS_VIT_MIRROR", "KERAS_VIT_OFFLINE", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(http, "_RETRY_DELAYS", (0.01,) * 4)
    return tmp_path / "models" / "keras_vit"


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with Loopback() as server:
        monkeypatch.setenv("KERAS_VIT_MIRROR", server.url())
        yield server


def names(folder: Path) -> set[str]:
    """The files in the cache, without the locks."""
    return {path.name for path in folder.iterdir()} - {f".{NAME}.lock"}


def test_fetch_downloads_once(
    server: Loopback, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.pages[PATH] = Page(CONTENT)
    found = fetch([URL], NAME, size=len(CONTENT), sha256=SHA256)
    assert found == Download(home / NAME, SHA256, "SHA-256")
    assert found.path.read_bytes() == CONTENT
    assert names(home) == {NAME, f"{NAME}.json"}
    assert f"Verified {home / NAME} by: SHA-256\n" in capsys.readouterr().out
    assert fetch([URL], NAME, size=len(CONTENT), sha256=SHA256) == found
    assert len(server.asked) == 1
    assert capsys.readouterr().out == ""


def test_fetch_pins_the_file(server: Loopback, home: Path) -> None:
    server.pages[PATH] = Page(CONTENT, headers={"x-goog-hash": goog_hash(CONTENT)})
    found = fetch([URL], NAME, check=lambda path: None)
    stat = found.path.stat()
    assert found == Download(home / NAME, SHA256, "size, CRC32C, MD5, content")
    assert json.loads((home / f"{NAME}.json").read_text()) == {
        "url": server.url(PATH),
        "sha256": SHA256,
        "level": found.level,
        **{"bytes": len(CONTENT), "mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino},
    }
    assert fetch([URL], NAME) == found
    assert fetch([URL], NAME, sha256=SHA256) == dataclasses.replace(found, level="SHA-256")


def test_fetch_into_a_folder(server: Loopback, home: Path) -> None:
    server.pages[PATH] = Page(CONTENT)
    assert fetch([URL], NAME, folder="hf--a--b").path == home / "hf--a--b" / NAME
    assert names(home) == {"hf--a--b"}


def test_fetch_checks_before_the_file_has_its_name(server: Loopback, home: Path) -> None:
    server.pages[PATH] = Page(CONTENT)
    seen = []

    def check(path: Path) -> None:
        seen.append(path)
        assert path.read_bytes() == CONTENT
        assert not (home / NAME).exists()
        raise ValueError("it has no class token")

    with pytest.raises(ValueError, match=r"could not be downloaded.*\n.*it has no class token"):
        fetch([URL], NAME, check=check)
    assert seen == [home / f"{NAME}.part"]
    assert names(home) == set()


@pytest.mark.parametrize(
    ("headers", "arguments", "message"),
    [
        ({}, {"sha256": SHA256}, "its SHA-256 is [0-9a-f]{64} instead of " + SHA256),
        (
            {},
            {"sha256_prefix": SHA256[:8]},
            f"its SHA-256 is [0-9a-f]{{8}} instead of {SHA256[:8]}",
        ),
        ({"x-goog-hash": goog_hash(CONTENT).split(",")[0]}, {}, "its CRC32C is "),
        ({"x-goog-hash": goog_hash(CONTENT).split(",")[1]}, {}, "its MD5 is "),
    ],
)
def test_fetch_refuses_a_wrong_byte(
    headers: dict[str, str], arguments: dict[str, Any], message: str, server: Loopback, home: Path
) -> None:
    server.pages[PATH] = Page(WRONG, headers=headers)
    with pytest.raises(ValueError, match=message):
        fetch([URL], NAME, **arguments)
    assert names(home) == set()
    server.pages[PATH] = Page(CONTENT, headers=headers)
    assert fetch([URL], NAME, **arguments).sha256 == SHA256


@pytest.mark.parametrize("length", [-1, 299_993])
def test_fetch_refuses_a_truncated_file(length: int, server: Loopback, home: Path) -> None:
    """The server says it is complete."""
    server.pages[PATH] = Page(CONTENT[:299_993], length=length)
    with pytest.raises(ValueError, match=r"is 299993 instead of 300007|offers 299993 bytes"):
        fetch([URL], NAME, size=len(CONTENT))
    assert names(home) == set()


def test_fetch_lists_all_reasons_and_the_way_by_hand(server: Loopback, home: Path) -> None:
    server.pages["/b" + PATH] = Page(CONTENT[:7])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_VIT_MIRROR", f"{server.url()}, {server.url('/b/')}")
        with pytest.raises(ValueError, match="could not be downloaded") as error:
            fetch([URL], NAME, size=39_000_000)
    assert str(error.value).splitlines() == [
        f"{NAME} could not be downloaded.",
        f"  {server.url(PATH)}: HTTP 404, Not Found",
        f"  {server.url('/b' + PATH)}: the server offers 7 bytes instead of 39000000",
        f"  {URL}: [Errno {errno.ECONNREFUSED}] Connection refused",
        f"Download {URL} (37.2 MiB) manually, and pass the file as the weights "
        f"(--weights FILE) or store it as {home / NAME}.",
    ]


def test_fetch_without_a_network(home: Path) -> None:
    with pytest.raises(ConnectionError, match=f"{URL}: .*refused\nDownload {URL} "):
        fetch([URL], NAME)


def test_fetch_tries_mirrors_and_addresses_in_order(
    server: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("KERAS_VIT_MIRROR", f" {server.url('/a')} {server.url('/b')}/,")
    server.pages["/b/two.npz"] = Page(CONTENT)
    fetch([URL, "https://127.0.0.1:1/two.npz?download=true"], NAME, sha256=SHA256)
    assert [asked.path for asked in server.asked] == [
        f"/a{PATH}",
        "/a/two.npz",
        f"/b{PATH}",
        "/b/two.npz",
    ]
    assert f"{server.url('/a/two.npz')}: HTTP 404, Not Found\n" in capsys.readouterr().out


def test_fetch_takes_the_next_mirror_after_a_wrong_file(
    server: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_VIT_MIRROR", f"{server.url('/a')},{server.url('/b')}")
    server.pages[f"/a{PATH}"] = Page(WRONG)
    server.pages[f"/b{PATH}"] = Page(CONTENT)
    assert fetch([URL], NAME, sha256=SHA256).path.read_bytes() == CONTENT
    assert server.sent == 2 * len(CONTENT)


def test_fetch_resumes_at_the_next_call(server: Loopback, home: Path) -> None:
    server.pages[PATH] = Page(CONTENT, cuts=[120_011, 0, 0, 0, 0])
    with pytest.raises(ConnectionError, match="cut after 120011 of 300007 bytes"):
        fetch([URL], NAME, sha256=SHA256)
    assert names(home) == {f"{NAME}.part", f"{NAME}.part.json"}
    fetch([URL], NAME, sha256=SHA256)
    assert (home / NAME).read_bytes() == CONTENT
    assert server.asked[-1].headers["range"] == "bytes=120011-"
    assert server.sent == len(CONTENT)
    assert names(home) == {NAME, f"{NAME}.json"}


def test_fetch_resumes_after_an_interrupt(
    server: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupt(keras.utils.Progbar):
        def update(self, current: float, *args: Any, **kwargs: Any) -> None:
            if current > 0.1:
                raise KeyboardInterrupt

    server.pages[PATH] = Page(CONTENT, pause=0.002)
    with monkeypatch.context() as patch:
        patch.setattr(keras.utils, "Progbar", Interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch([URL], NAME, sha256=SHA256)
    assert names(home) == {f"{NAME}.part", f"{NAME}.part.json"}
    kept = (home / f"{NAME}.part").stat().st_size
    assert 100_000 < kept < len(CONTENT)
    fetch([URL], NAME, sha256=SHA256)
    assert (home / NAME).read_bytes() == CONTENT
    assert server.asked[-1].sent == len(CONTENT) - kept


def test_fetch_interrupted_while_it_verifies(server: Loopback, home: Path) -> None:
    def interrupt(path: Path) -> None:
        raise KeyboardInterrupt

    server.pages[PATH] = Page(CONTENT, headers={"x-goog-hash": goog_hash(CONTENT)})
    with pytest.raises(KeyboardInterrupt):
        fetch([URL], NAME, check=interrupt)
    assert names(home) == {f"{NAME}.part", f"{NAME}.part.json"}
    server.pages[PATH].headers["x-goog-hash"] = goog_hash(WRONG)
    assert fetch([URL], NAME).level == "size, CRC32C, MD5"  # as the server had stated them
    assert len(server.asked) == 1


def test_fetch_to_a_full_disk(server: Loopback, home: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits file sizes as POSIX does")
    server.pages[PATH] = Page(CONTENT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_003, hard))  # fails as a full disk does
    try:
        with pytest.raises(OSError, match="The partial download is kept;") as error:
            fetch([URL], NAME, sha256=SHA256)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.errno == errno.EFBIG
    assert "KERAS_HOME" in str(error.value)
    assert str(home) in str(error.value)
    assert names(home) == {f"{NAME}.part", f"{NAME}.part.json"}
    fetch([URL], NAME, sha256=SHA256)
    assert (home / NAME).read_bytes() == CONTENT
    assert server.asked[-1].headers["range"] == "bytes=100003-"


def test_fetch_into_a_folder_that_cannot_be_made(home: Path) -> None:
    home.parent.write_text("a file where the folder should be")
    with pytest.raises(NotADirectoryError, match="KERAS_HOME to use another folder"):
        fetch([URL], NAME)


@pytest.fixture
def cached(server: Loopback, home: Path) -> Path:
    server.pages[PATH] = Page(CONTENT)
    path = fetch([URL], NAME).path
    server.pages.clear()
    server.asked.clear()
    return path


def test_fetch_hashes_again_only_if_the_file_was_touched(
    cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("hashed")

    with monkeypatch.context() as patch:
        patch.setattr("keras_vit.download.cache.file_digests", fail)
        fetch([URL], NAME)
        os.utime(cached, ns=(1, 1))
        with pytest.raises(AssertionError, match="hashed"):
            fetch([URL], NAME)
    assert fetch([URL], NAME).level == "size"
    assert json.loads(cached.with_name(f"{NAME}.json").read_text())["mtime_ns"] == 1
    monkeypatch.setattr("keras_vit.download.cache.file_digests", fail)
    fetch([URL], NAME)


@pytest.mark.parametrize("content", [WRONG, CONTENT[:-1]], ids=["byte", "size"])
def test_fetch_refuses_a_changed_file(content: bytes, cached: Path, server: Loopback) -> None:
    cached.write_bytes(content)
    os.utime(cached, ns=(1, 1))
    for _ in range(2):
        with pytest.raises(ValueError, match="changed after it was verified") as error:
            fetch([URL], NAME)
    assert str(error.value) == (
        f"{cached} is not the published file: it was changed after it was verified (see "
        f"{cached}.json). Delete it, and it will be downloaded again from {URL}."
    )
    assert cached.read_bytes() == content
    cached.unlink()
    server.pages[PATH] = Page(CONTENT)
    assert fetch([URL], NAME).path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sha256": "0" * 64}, f"its SHA-256 is {SHA256} instead of 0000"),
        ({"sha256_prefix": "0" * 8}, f"its SHA-256 is {SHA256[:8]} instead of 00000000"),
        ({"size": 300_011}, "its size in bytes is 300007 instead of 300011"),
    ],
)
def test_fetch_compares_the_file_with_what_is_asked_for_now(
    arguments: dict[str, Any], message: str, cached: Path
) -> None:
    with pytest.raises(ValueError, match=f"is not the published file: {message}.*. Delete it, and"):
        fetch([URL], NAME, **arguments)
    assert cached.exists()


@pytest.fixture
def by_hand(home: Path) -> Path:
    home.mkdir(parents=True)
    (home / NAME).write_bytes(CONTENT)
    return home / NAME


def test_fetch_verifies_a_file_put_there_by_hand(by_hand: Path, home: Path) -> None:
    seen: list[Path] = []
    found = fetch([URL], NAME, size=len(CONTENT), check=seen.append)
    assert found == Download(by_hand, SHA256, "size, content")
    assert seen == [by_hand]
    assert fetch([URL], NAME, check=seen.append) == found
    assert len(seen) == 1
    assert json.loads((home / f"{NAME}.json").read_text())["url"] is None


def test_fetch_refuses_a_wrong_file_put_there_by_hand(by_hand: Path, home: Path) -> None:
    by_hand.write_bytes(WRONG)
    with pytest.raises(ValueError, match=r"is not the published file: its SHA-256 .* Delete it"):
        fetch([URL], NAME, sha256=SHA256)
    assert by_hand.read_bytes() == WRONG
    assert names(home) == {NAME}


@pytest.mark.parametrize("pin", ["", "[]", '{"sha256": 1}', {"sha256": None}, {"level": None}])
def test_fetch_verifies_anew_if_the_pin_is_damaged(pin: Any, cached: Path) -> None:
    path = cached.with_name(f"{NAME}.json")
    whole = json.loads(path.read_text()) | {"mtime_ns": 1}
    path.write_text(pin if isinstance(pin, str) else json.dumps(whole | pin))
    assert fetch([URL], NAME, size=len(CONTENT)) == Download(cached, SHA256, "size")


def test_fetch_offline(server: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.pages[PATH] = Page(CONTENT)
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    with pytest.raises(ConnectionError) as error:
        fetch([URL], NAME, size=len(CONTENT))
    assert str(error.value) == (
        f"{NAME} is not in the cache, and KERAS_VIT_OFFLINE forbids connections. Download {URL} "
        f"(0.3 MiB) manually, and pass the file as the weights (--weights FILE) or "
        f"store it as {home / NAME}."
    )
    assert server.asked == []
    (home / NAME).write_bytes(CONTENT)
    assert fetch([URL], NAME, sha256=SHA256).level == "SHA-256"
    assert server.asked == []
    (home / NAME).unlink()
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "0")
    fetch([URL], NAME)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "/a", "a\\b", "C:a", "a/", "a\n", "a\0b"]
)
def test_fetch_takes_plain_names_only(name: str, home: Path) -> None:
    with pytest.raises(ValueError, match=r"`file_name` must be a plain name without .* file_name="):
        fetch([URL], name)
    with pytest.raises(ValueError, match=r"`folder` must be a plain name without .* folder="):
        fetch([URL], NAME, folder=name)
    assert not home.exists()


@pytest.mark.parametrize("urls", [[], URL, [URL, "http://example.org/a"], ["file:///etc/passwd"]])
def test_fetch_takes_https_only(urls: Any, home: Path) -> None:
    with pytest.raises(ValueError, match=r"`urls` must be a list of https URLs\. Received: u"):
        fetch(urls, NAME)


@pytest.mark.parametrize("mirror", ["ftp://127.0.0.1", "/folder", "https://"])
def test_fetch_takes_mirrors_of_http_only(
    mirror: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_VIT_MIRROR", mirror)
    with pytest.raises(ValueError, match=r"`KERAS_VIT_MIRROR` must contain http.* KERAS_VIT_"):
        fetch([URL], NAME)


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for value in ("", "~/.keras"):
        monkeypatch.setenv("KERAS_HOME", value)
        assert cache_folder() == tmp_path / ".keras" / "models" / "keras_vit"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", "here")
    assert cache_folder() == tmp_path / "here" / "models" / "keras_vit"
