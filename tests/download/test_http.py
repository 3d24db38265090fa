from __future__ import annotations

import io
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import requests

from keras_vit.download import http as module
from keras_vit.download.http import discard, mebibytes, say
from keras_vit.download.integrity import Expected, Source
from tests.bad_server import Loopback, Page, goog_hash

CONTENT = np.random.default_rng(11).bytes(200_003)
OTHER = np.random.default_rng(13).bytes(200_003)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "_RETRY_DELAYS", (0.01,) * 4)
    with Loopback() as server:
        yield server


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "a.npz.part"


def transfer(url: str, part: Path, **expected: Any) -> Source:
    return module.transfer(url, part, Expected(**expected))


def test_transfer_downloads(
    server: Loopback, part: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = goog_hash(CONTENT)
    server.pages["/a"] = page = Page(CONTENT, headers={"x-goog-hash": stated})
    source = transfer(server.url("/a"), part, size=len(CONTENT))
    assert part.read_bytes() == CONTENT
    assert source == Source(server.url("/a"), len(CONTENT), page.headers["ETag"], stated)
    assert f"Downloading {server.url('/a')} (0.2 MiB)" in capsys.readouterr().out
    (asked,) = server.asked
    assert asked.headers["user-agent"].startswith("keras_vit/")
    assert asked.headers["accept-encoding"] == "identity"
    assert "range" not in asked.headers


def test_transfer_resumes_after_a_cut(server: Loopback, part: Path) -> None:
    server.pages["/a"] = page = Page(CONTENT, cuts=[50_021, 30_011])
    transfer(server.url("/a"), part)
    assert part.read_bytes() == CONTENT
    assert [asked.headers.get("range") for asked in server.asked] == [
        None,
        "bytes=50021-",
        "bytes=80032-",
    ]
    assert {asked.headers.get("if-range") for asked in server.asked} == {None, page.headers["ETag"]}
    assert [asked.sent for asked in server.asked] == [50_021, 30_011, 119_971]


def test_transfer_resumes_by_date(server: Loopback, part: Path) -> None:
    date = "Fri, 13 Nov 2020 10:11:12 GMT"
    headers = {"ETag": 'W/"weak"', "Last-Modified": date}  # a weak tag may stand for other bytes
    server.pages["/a"] = Page(CONTENT, headers=headers, cuts=[50_021])
    transfer(server.url("/a"), part)
    assert part.read_bytes() == CONTENT
    assert server.asked[1].headers["if-range"] == date
    assert server.sent == len(CONTENT)


def test_transfer_starts_anew_without_a_validator(server: Loopback, part: Path) -> None:
    server.pages["/a"] = page = Page(CONTENT, cuts=[50_021])
    del page.headers["ETag"]
    transfer(server.url("/a"), part)
    assert part.read_bytes() == CONTENT
    assert [asked.sent for asked in server.asked] == [50_021, len(CONTENT)]


def interrupted(server: Loopback, part: Path, page: Page, path: str = "/a") -> None:
    """Leaves 70,001 bytes of a page in the partial file."""
    page.cuts = [70_001, 0, 0, 0, 0]
    server.pages[path] = page
    with pytest.raises(ConnectionError):
        transfer(server.url(path), part)
    assert part.read_bytes() == page.content[:70_001]
    assert page.cuts == []
    server.asked.clear()


def test_transfer_gives_up_and_resumes_at_the_next_call(
    server: Loopback, part: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted(server, part, Page(CONTENT))
    transfer(server.url("/a"), part)
    assert part.read_bytes() == CONTENT
    assert server.sent == len(CONTENT) - 70_001
    assert f"Resuming {server.url('/a')} after 0.1 MiB of 0.2 MiB" in capsys.readouterr().out


def test_transfer_says_how_far_it_came(server: Loopback, part: Path) -> None:
    server.pages["/a"] = Page(CONTENT, cuts=[7] + [0] * 4)
    with pytest.raises(ConnectionError, match="cut after 7 of 200003 bytes"):
        transfer(server.url("/a"), part)
    assert len(server.asked) == 5


def test_transfer_starts_anew_if_the_file_changed(server: Loopback, part: Path) -> None:
    interrupted(server, part, Page(CONTENT))
    server.pages["/a"] = Page(OTHER)
    transfer(server.url("/a"), part)
    assert part.read_bytes() == OTHER
    assert [asked.status for asked in server.asked] == [200]


@pytest.mark.parametrize("lost", ["tag", "size"])
def test_transfer_starts_anew_if_the_server_ignores_if_range(
    lost: str, server: Loopback, part: Path
) -> None:
    interrupted(server, part, Page(CONTENT, headers={"ETag": '"first"'}))
    tag = '"second"' if lost == "tag" else '"first"'
    # The server compares with the date, so to it the wrong part of a file is the right one.
    headers = {"ETag": tag, "Last-Modified": '"first"'}
    changed = OTHER if lost == "tag" else OTHER[:-1]
    server.pages["/a"] = Page(changed, headers=headers)
    transfer(server.url("/a"), part)
    assert part.read_bytes() == changed
    assert [asked.status for asked in server.asked] == [206, 200]


def test_transfer_starts_anew_if_the_server_ignores_range(server: Loopback, part: Path) -> None:
    interrupted(server, part, Page(CONTENT))
    server.pages["/a"].ranges = False
    transfer(server.url("/a"), part)
    assert part.read_bytes() == CONTENT
    assert server.asked[0].headers["range"] == "bytes=70001-"
    assert server.sent == len(CONTENT)


def test_transfer_starts_anew_if_the_range_is_refused(server: Loopback, part: Path) -> None:
    interrupted(server, part, Page(CONTENT))
    server.pages["/a"].statuses = [416]
    transfer(server.url("/a"), part)
    assert part.read_bytes() == CONTENT
    assert [asked.status for asked in server.asked] == [416, 200]


def test_transfer_starts_anew_from_another_address(server: Loopback, part: Path) -> None:
    interrupted(server, part, Page(CONTENT))
    server.pages["/b"] = Page(CONTENT)
    transfer(server.url("/b"), part)
    assert part.read_bytes() == CONTENT
    assert "range" not in server.asked[0].headers


@pytest.mark.parametrize("notes", ["", "{}", "[1]", '{"url": 1}'])
def test_transfer_starts_anew_with_damaged_notes(notes: str, server: Loopback, part: Path) -> None:
    interrupted(server, part, Page(CONTENT))
    part.with_name(f"{part.name}.json").write_text(notes)
    transfer(server.url("/a"), part)
    assert part.read_bytes() == CONTENT


def test_transfer_does_not_ask_again_for_a_complete_file(server: Loopback, part: Path) -> None:
    server.pages["/a"] = Page(CONTENT)
    source = transfer(server.url("/a"), part)
    assert transfer(server.url("/a"), part) == source
    assert len(server.asked) == 1


def test_transfer_tries_again_after_an_error_of_the_server(server: Loopback, part: Path) -> None:
    server.pages["/a"] = Page(CONTENT, statuses=[503, 429, 408, 500])
    transfer(server.url("/a"), part)
    assert part.read_bytes() == CONTENT


@pytest.mark.parametrize("status", [404, 403, 204])
def test_transfer_believes_a_refusal(status: int, server: Loopback, part: Path) -> None:
    server.pages["/a"] = Page(CONTENT, status=status)
    with pytest.raises(ConnectionError, match=f"HTTP {status}"):
        transfer(server.url("/a"), part)
    assert len(server.asked) == 1
    assert not part.exists()


def test_transfer_waits_for_a_slow_server(server: Loopback, part: Path) -> None:
    server.pages["/a"] = Page(CONTENT[:13], pause=0.02, piece=1)
    transfer(server.url("/a"), part)
    assert part.read_bytes() == CONTENT[:13]


def test_transfer_does_not_wait_for_a_silent_server(
    server: Loopback, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0.1)
    server.pages["/a"] = Page(CONTENT, pause=0.4)
    with pytest.raises(ConnectionError, match="the connection failed: timed out"):
        transfer(server.url("/a"), part)
    assert len(server.asked) == 5


def test_transfer_without_a_server(part: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionError, match="refused"):
            transfer(f"http://127.0.0.1:{port}/a", part)


def test_transfer_of_a_server_that_hangs_up(
    server: Loopback, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "finish_request", lambda *_: None)
    with pytest.raises(ConnectionError, match="the connection failed: Remote end closed"):
        transfer(server.url("/a"), part)


def test_transfer_refuses_another_size(server: Loopback, part: Path) -> None:
    interrupted(server, part, Page(CONTENT), "/b")
    server.pages["/a"] = Page(OTHER[:-2])
    with pytest.raises(ValueError, match="the server offers 200001 bytes instead of 200003"):
        transfer(server.url("/a"), part, size=len(CONTENT))
    assert part.read_bytes() == CONTENT[:70_001]  # the other address can still be resumed


def test_transfer_of_too_short_a_body(server: Loopback, part: Path) -> None:
    server.pages["/a"] = Page(CONTENT, length=len(CONTENT) + 2, ranges=False)
    with pytest.raises(ConnectionError, match="cut after 200003 of 200005 bytes"):
        transfer(server.url("/a"), part)


def test_transfer_of_unknown_length(server: Loopback, part: Path) -> None:
    server.pages["/a"] = Page(CONTENT, length=-1)
    assert transfer(server.url("/a"), part, size=len(CONTENT)).size is None
    assert part.read_bytes() == CONTENT


def test_transfer_follows_redirects(server: Loopback, part: Path) -> None:
    server.pages["/b"] = Page(CONTENT, cuts=[50_021])
    server.pages["/a"] = Page(status=302, headers={"Location": server.url("/b")})
    assert transfer(server.url("/a"), part).url == server.url("/a")
    assert part.read_bytes() == CONTENT
    assert server.asked[-1].headers["range"] == "bytes=50021-"


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A server that speaks https and is trusted."""
    openssl = shutil.which("openssl")
    if not openssl:
        pytest.skip("needs the command openssl to make a certificate")
    pem = tmp_path / "both.pem"
    options = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    options += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = subprocess.run([openssl, *options, "-keyout", pem], capture_output=True, check=True)
    with pem.open("ab") as file:
        file.write(made.stdout)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    with Loopback(pem) as server:
        yield server


def test_transfer_speaks_https_and_never_falls_back(
    server: Loopback, secure: Loopback, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages["/a"] = secure.pages["/a"] = Page(CONTENT)
    secure.pages["/down"] = Page(status=302, headers={"Location": server.url("/a")})
    server.pages["/up"] = Page(status=302, headers={"Location": secure.url("/a")})
    server.pages["/away"] = Page(status=302, headers={"Location": "ftp://127.0.0.1/a"})

    with pytest.raises(ConnectionError, match="refused to follow a redirect from https to http:"):
        transfer(secure.url("/down"), part)
    assert server.asked == []
    with pytest.raises(ConnectionError, match="refused to follow a redirect from http to ftp:"):
        transfer(server.url("/away"), part)
    assert not part.exists()
    for url in (secure.url("/a"), server.url("/up")):
        transfer(url, part)
        assert part.read_bytes() == CONTENT
        discard(part)
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ConnectionError, match="certificate verify failed"):
        transfer(secure.url("/a"), part)


def answers(monkeypatch: pytest.MonkeyPatch, location: str) -> list[tuple[str, dict[str, str]]]:
    """Redirects the first request to `location`, and notes the headers of each request."""
    asked: list[tuple[str, dict[str, str]]] = []

    def get(url: str, headers: dict[str, str]) -> requests.Response:
        response = requests.Response()
        response.status_code, response.raw = (404 if asked else 302), io.BytesIO()
        response.headers["Location"] = location
        asked.append((url, headers))
        return response

    monkeypatch.setattr(module, "_get", get)
    return asked


def test_transfer_shows_no_password_of_a_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "http://ann:secret@127.0.0.1/a")
    with pytest.raises(ConnectionError, match=r"from https to http://127\.0\.0\.1/a$"):
        module._open("https://127.0.0.1/a", {})


def test_transfer_refuses_redirects_from_https(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, where there is no openssl."""
    asked = answers(monkeypatch, "http://127.0.0.1/a")
    with pytest.raises(ConnectionError, match="refused to follow a redirect from https to http:"):
        module._open("https://127.0.0.1/a", {})
    assert len(asked) == 1
    for location in ("https://127.0.0.1/b", "//127.0.0.1/b", "b"):
        asked = answers(monkeypatch, location)
        module._open("https://127.0.0.1/a", {})
        assert [url for url, _ in asked] == ["https://127.0.0.1/a", "https://127.0.0.1/b"]


def test_transfer_of_an_empty_file(server: Loopback, part: Path) -> None:
    server.pages["/a"] = Page()
    assert transfer(server.url("/a"), part).size == 0
    assert part.read_bytes() == b""


def test_discard_takes_the_notes_along(server: Loopback, part: Path) -> None:
    interrupted(server, part, Page(CONTENT))
    discard(part)
    assert list(part.parent.iterdir()) == []


def test_say_keeps_silent_with_keras(capsys: pytest.CaptureFixture[str]) -> None:
    say("first")
    keras.config.disable_interactive_logging()
    try:
        say("second")
    finally:
        keras.config.enable_interactive_logging()
    assert capsys.readouterr().out == "first\n"


def test_mebibytes() -> None:
    assert mebibytes(1_303_000) == "1.2 MiB"
    assert mebibytes(None) == "unknown size"


@pytest.mark.parametrize(
    ("token", "sent"),
    [("hf_abc", "Bearer hf_abc"), (" hf_abc\n", "Bearer hf_abc"), ("", None), ("a\nb", None)],
)
def test_token_is_sent_only_to_the_hub(
    token: str, sent: str | None, server: Loopback, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setattr(module, "_HUB", server.url("/hub/"))
    with Loopback() as storage:
        storage.pages["/file"] = Page(CONTENT)
        for path in ("/hub/a", "/other"):
            headers = {"Location": storage.url("/file")}
            server.pages[path] = Page(status=302, headers=headers)
            transfer(server.url(path), part)
            discard(part)
    asked = {asked.path: asked.headers.get("authorization") for asked in server.asked}
    assert asked == {"/hub/a": sent, "/other": None}
    assert ["authorization" in asked.headers for asked in storage.asked] == [False, False]


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("path", ["/api/models/a/b?blobs=true", "/a/b/resolve/main/c.npz"])
def test_refusal_of_the_hub_says_how_to_get_access(
    path: str, status: int, server: Loopback, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages[path] = server.pages[path.partition("?")[0]] = Page(status=status)
    with pytest.raises(ConnectionError, match=rf"^HTTP {status}, \w+$"):
        transfer(server.url(path), part)
    monkeypatch.setattr(module, "_HUB", server.url("/"))
    expected = (
        rf"^HTTP {status}, \w+\. If the repository exists, it is gated: ask for access on "
        rf"{re.escape(server.url('/a/b'))}, and set HF_TOKEN to a token of your account "
        rf"\({re.escape(server.url('/settings/tokens'))}\)$"
    )
    with pytest.raises(ConnectionError, match=expected):
        transfer(server.url(path), part)
