"""Files on a branch of the Hugging Face hub, whose content may change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_vit.download import http
from keras_vit.download.cache import Download, fetch
from tests.bad_server import Loopback, Page

CONTENT = np.random.default_rng(29).bytes(200_003)
NEW = np.random.default_rng(31).bytes(200_003)
COMMITS = {CONTENT: "0123456789" * 4, NEW: "abcdef0123" * 4}

NAME = "model.safetensors"
PATH = f"/timm/vit/resolve/main/{NAME}"
URL = f"https://127.0.0.1:1{PATH}"  # nobody listens there
STATED = f"size, SHA-256 stated for commit {COMMITS[CONTENT]}"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(server: Loopback, content: bytes, body: bytes | None = None, **page: Any) -> None:
    """Puts content on the branch as the hub does, which redirects to its storage."""
    headers = {
        "Location": server.url("/storage"),
        "X-Linked-Etag": f'"{sha256(content)}"',
        "X-Repo-Commit": COMMITS[content],
    }
    server.pages[PATH] = Page(status=302, headers=headers)
    server.pages["/storage"] = Page(content if body is None else body, **page)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("KERAS_VIT_OFFLINE", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(http, "_RETRY_DELAYS", (0.01,) * 4)
    return tmp_path / "models" / "keras_vit"


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with Loopback() as server:
        monkeypatch.setenv("KERAS_VIT_MIRROR", server.url())
        yield server


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {f".{NAME}.lock"}


def test_fetch_verifies_by_what_the_hub_states(hub: Loopback, home: Path) -> None:
    put(hub, CONTENT)
    found = fetch([URL], NAME, needs_sha256=True)
    assert found == Download(home / NAME, sha256(CONTENT), STATED)
    pin = json.loads((home / f"{NAME}.json").read_text())
    assert (pin["sha256"], pin["level"]) == (found.sha256, STATED)


def test_fetch_shows_no_password_of_a_mirror(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_VIT_MIRROR", "http://ann:secret@127.0.0.1:1/")
    message = r"without a password.* KERAS_VIT_MIRROR='http://\.\.\.@127\.0\.0\.1:1/'$"
    with pytest.raises(ValueError, match=message):
        fetch([URL], NAME)


def test_fetch_without_a_commit_names_none(hub: Loopback, home: Path) -> None:
    put(hub, CONTENT)
    hub.pages[PATH].headers["X-Repo-Commit"] = "main"
    assert fetch([URL], NAME).level == "size, SHA-256 stated for the file"


def test_fetch_refuses_content_that_the_hub_did_not_state(hub: Loopback, home: Path) -> None:
    """The branch moved between the answer and the body, or the body is damaged."""
    put(hub, CONTENT, body=NEW)
    message = f"its SHA-256 is {sha256(NEW)} instead of {sha256(CONTENT)}"
    with pytest.raises(ValueError, match=message):
        fetch([URL], NAME)
    assert names(home) == set()


def test_fetch_uses_the_cached_file_after_the_branch_moved(
    hub: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(hub, CONTENT)
    found = fetch([URL], NAME, needs_sha256=True)
    put(hub, NEW)
    hub.asked.clear()
    assert fetch([URL], NAME, needs_sha256=True) == found
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert fetch([URL], NAME, needs_sha256=True) == found
    found.path.touch()  # hashed again
    assert fetch([URL], NAME, needs_sha256=True) == found
    assert hub.asked == []
    found.path.write_bytes(NEW)
    with pytest.raises(ValueError, match="it was changed after it was verified"):
        fetch([URL], NAME, needs_sha256=True)


def interrupted(hub: Loopback, home: Path) -> None:
    put(hub, CONTENT, cuts=[70_001, 0, 0, 0, 0], headers={"ETag": '"same"'})
    with pytest.raises(ConnectionError, match="cut after 70001 of 200003 bytes"):
        fetch([URL], NAME, needs_sha256=True)
    assert (home / f"{NAME}.part").read_bytes() == CONTENT[:70_001]
    hub.asked.clear()


def test_fetch_resumes_what_the_hub_still_states(hub: Loopback, home: Path) -> None:
    interrupted(hub, home)
    assert fetch([URL], NAME, needs_sha256=True).level == STATED
    assert (home / NAME).read_bytes() == CONTENT
    assert hub.sent == len(CONTENT) - 70_001


def test_fetch_starts_anew_if_the_branch_moved(hub: Loopback, home: Path) -> None:
    """Also where the storage says that it is the same file."""
    interrupted(hub, home)
    put(hub, NEW, headers={"ETag": '"same"'})
    found = fetch([URL], NAME, needs_sha256=True)
    assert found.path.read_bytes() == NEW
    assert found.level.endswith(COMMITS[NEW])
    assert [asked.status for asked in hub.asked] == [302, 206, 302, 200]


def test_fetch_does_not_resume_what_an_earlier_version_left(hub: Loopback, home: Path) -> None:
    interrupted(hub, home)
    notes = home / f"{NAME}.part.json"
    kept = json.loads(notes.read_text())
    del kept["sha256"], kept["commit"]
    notes.write_text(json.dumps(kept))
    assert fetch([URL], NAME, needs_sha256=True).level == STATED
    assert hub.sent == len(CONTENT)


@pytest.mark.slow
@pytest.mark.parametrize("tag", [None, '"0123456789abcdef0123456789abcdef01234567"'])
def test_fetch_downloads_nothing_if_no_hash_is_stated(
    tag: str | None, hub: Loopback, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain copy of the files, and the answer for a small file, whose tag is of git."""
    hub.pages[PATH] = Page(CONTENT, headers={} if tag is None else {"X-Linked-Etag": tag})
    with pytest.raises(ValueError, match="does not return the SHA-256") as error:
        fetch([URL], NAME, needs_sha256=True)
    assert (
        f"  {hub.url(PATH)}: the server does not return the SHA-256 of the file; a mirror must "
        "pass on the headers X-Linked-Etag and X-Repo-Commit of the Hugging Face Hub\n"
    ) in str(error.value)
    assert f"or store it as {home / NAME}." in str(error.value)
    assert names(home) == set()
    with Loopback() as second:
        put(second, CONTENT)
        monkeypatch.setenv("KERAS_VIT_MIRROR", f"{hub.url()} {second.url()}")
        assert fetch([URL], NAME, needs_sha256=True).level == STATED


def test_fetch_prefers_the_hash_that_it_was_given(hub: Loopback, home: Path) -> None:
    put(hub, NEW, body=CONTENT)
    assert fetch([URL], NAME, sha256=sha256(CONTENT)).level == "SHA-256"
