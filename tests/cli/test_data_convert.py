from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import PIL.Image
import pytest

from tests.cli.commands import Call, check_failure

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    PIL.Image.new("RGB", (31, 23)).save(tmp_path / "source" / "a.tif")
    PIL.Image.new("RGB", (13, 17)).save(tmp_path / "source" / "b.jpg")
    return tmp_path / "source"


def test_convert_writes_and_says_what_is_next(call: Call, source: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    options = ("--max-side", 29, "--format", "png", "--processes", 1, "--window", "-3.5,700")
    code, output, _ = call("data", "convert", source, new, *options)
    assert (code, output) == (
        0,
        f"Converted from TIFF: 1\nCopied images: 1\n\nNext: keras-vit data check {new}\n",
    )
    with PIL.Image.open(new / "a.png") as image:
        assert image.size == (29, 22)
    marker = (new / ".keras_vit_convert.json").read_text(encoding="utf-8")
    assert '"window": [\n    -3.5,\n    700.0\n  ]' in marker


def test_convert_ends_with_1_if_an_image_fails(call: Call, source: Path, tmp_path: Path) -> None:
    (source / "c.tif").write_bytes(b"II*\0")
    code, output, _ = call("data", "convert", source, tmp_path / "new", "--processes", 1)
    assert code == 1
    assert "Not converted: 1\n  c.tif: cannot be read: " in output
    assert (tmp_path / "new" / "a.jpg").is_file()


def test_convert_fails_with_one_message(call: Call, source: Path, tmp_path: Path) -> None:
    for arguments, message in (
        ((source, source), "`destination` must not contain each other."),
        ((tmp_path / "none", tmp_path / "new"), "`source` must be an existing folder"),
        (
            (source, tmp_path / "new", "--window", "3"),
            "`--window` must be LOW,HIGH. Received:",
        ),
        ((source, tmp_path / "new", "--window", "5,3"), "`window` must be two numbers"),
        ((source, tmp_path / "new", "--format", "gif"), "`format` must be one of 'jpg', 'png'"),
    ):
        code, _, messages = call("data", "convert", *arguments)
        check_failure(code, messages, message)
    assert not (tmp_path / "new").exists()


def test_convert_works_in_processes_without_keras(source: Path, tmp_path: Path) -> None:
    code = """
import sys, keras_vit_toolkit
sys.argv = ["keras-vit", "data", "convert", *sys.argv[1:], "--processes", "2"]
try:
    keras_vit_toolkit.main()
finally:
    print({"keras", "tensorflow", "keras_vit.data"} & set(sys.modules))
"""
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "new")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.startswith("Converted from TIFF: 1\nCopied images: 1\n")
    assert found.stdout.endswith("\nset()\n")
    assert "Converting images" in found.stderr
    assert (tmp_path / "new" / "a.jpg").is_file()
