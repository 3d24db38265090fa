"""Messages where object storage cannot be read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from keras_vit.storage.errors import reading
from keras_vit.storage.paths import StoredFiles, to_path


@pytest.mark.parametrize("url", ["s3://nowhere/folder", "s3://photos/nothing"])
def test_missing_bucket_or_folder(s3: str, url: str) -> None:
    with pytest.raises(ValueError, match=f"Received: {url} .there is no such bucket or folder"):
        to_path(url)


def test_missing_credentials(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises(ValueError, match="there are no credentials; set AWS_ACCESS_KEY_ID"):
            to_path(s3)
    finally:
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(), "these credentials have no permission to read it"),
        (TimeoutError("too slow"), "TimeoutError: too slow"),
    ],
)
def test_reading_says_what_is_missing(error: Exception, reason: str) -> None:
    with (
        pytest.raises(ValueError, match=rf"Received: \.\.\.@host/x \({reason}\)"),
        reading("u:p@host/x"),
    ):
        raise error


def test_reading_names_the_extra() -> None:
    with pytest.raises(ImportError, match=r"\[cloud\]"), reading("gs://photos"):
        raise ImportError("no gcsfs")


def test_a_lost_connection_is_opened_again(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        s3fs.S3FileSystem().pipe(f"{s3}/again/a.txt", b"content")
        files = StoredFiles(to_path(f"{s3}/again"), ["a.txt"])
        assert files[0] == b"content"
        server.stop()
        again = ThreadedMotoServer(host, port=port)
        threading.Timer(1.5, again.start).start()
        assert files[0] == b"content"
        again.stop()
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
