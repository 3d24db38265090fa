from __future__ import annotations

import dataclasses
import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from keras_vit.data import Examples, ImageAudit, audit, load, usable_images

Save = Callable[..., bytes]
Write = Callable[..., Path]


@pytest.fixture
def bad_folder(tmp_path: Path, write: Write, save: Save) -> Path:
    jpeg = save(1, (61, 43), format="JPEG")
    return write(
        tmp_path,
        {
            "a/good.png": None,
            "a/text.jpg": b"This is a text file.\n",
            "a/empty.png": b"",
            "a/truncated.jpg": jpeg[: len(jpeg) // 2],
            "b/good.jpg": jpeg,
            "b/one.bmp": save(2, (1, 1), format="BMP"),
            "b/thin.gif": save(3, (7, 1), format="GIF"),
            "b/truncated.png": save(4, (61, 43))[:500],
        },
    )


def test_bad_images_are_named_with_their_reason(bad_folder: Path) -> None:
    report = audit(load(bad_folder), progress=False)
    no_image = "not a JPEG, PNG, GIF, BMP or WebP"
    assert dict(report.bad) == {
        "a/empty.png": "empty file",
        "a/text.jpg": no_image,
        "a/truncated.jpg": "damaged or truncated JPEG",
        "b/one.bmp": "1 x 1 pixels; the shorter side must be at least 2",
        "b/thin.gif": "7 x 1 pixels; the shorter side must be at least 2",
        "b/truncated.png": "damaged or truncated PNG",
    }
    assert sorted(report.digests) == ["a/good.png", "b/good.jpg"]


@pytest.mark.slow
def test_many_bad_images_are_all_reported(
    noise: Callable[..., Examples], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error raised in two threads at once stops TensorFlow for ever from Python 3.12 on."""
    encoded = (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(32),) * 3000
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        found = audit(noise(3000, encoded=encoded), progress=False)
    finally:
        sys.setswitchinterval(interval)
    assert [reason for _, reason in found.bad] == ["damaged or truncated PNG"] * 3000


def test_bad_images_are_refused_or_left_out(bad_folder: Path) -> None:
    examples = load(bad_folder)
    report = audit(examples, progress=False)
    message = (
        r"must be readable\. Repair .*--on-bad-image skip\. Received: 6 of 8 .*\n  a/empty.png: em"
    )
    with pytest.raises(ValueError, match=message):
        report.accept(examples)
    kept = report.accept(examples, on_bad_image="skip")
    assert kept.names == ("a/good.png", "b/good.jpg")
    assert kept.targets.tolist() == [0, 1]
    with pytest.raises(ValueError, match="`on_bad_image` must be one of 'fail', 'skip'"):
        report.accept(examples, on_bad_image="ignore")


def test_audit_of_some_images_needs_no_second_look(
    bad_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(bad_folder / "a", bad_folder / "c")
    examples = load(bad_folder)
    some = examples.subset(range(1, len(examples), 2))
    found, expected = (audit(each, progress=False) for each in (examples, some))
    assert expected.bad
    assert expected.digests
    monkeypatch.setattr("keras_vit.data.image_audit.inspect_images", None)
    assert found.subset(some) == expected != found


def test_nothing_left_is_an_error(noise: Callable[..., Examples]) -> None:
    examples = noise(2, encoded=(b"", b"x"))
    with pytest.raises(
        ValueError, match=r"2 of 2 images cannot (.|\n)*No images are left for the classes a, b\."
    ):
        audit(examples, progress=False).accept(examples, on_bad_image="skip")


def test_command_of_the_remedy_has_the_folder(tmp_path: Path) -> None:
    report, table = ImageAudit(bad=(("a", "HEIC"),), digests={}), tmp_path / "labels.csv"
    table.touch()
    for source in (tmp_path, table):
        assert f"`keras-vit data convert {tmp_path} NEW_FOLDER`, or" in report.remedy(str(source))
    for source in ("hf:beans", "s3://bucket/photos"):
        assert report.remedy(source).startswith("Convert the images to JPEG or PNG, or train with")


def test_photographs_in_an_unknown_format_stop_training(
    tmp_path: Path, save: Callable[..., bytes]
) -> None:
    for name, jpegs, heics in (("rose", 3, 1), ("tulip", 2, 2), ("daisy", 0, 1)):
        (tmp_path / name).mkdir()
        for i in range(jpegs):
            (tmp_path / name / f"{i}.jpg").write_bytes(save(i, format="JPEG"))
        for i in range(heics):
            head = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
            (tmp_path / name / f"{i}.HEIC").write_bytes(head)
    (tmp_path / "rose" / "notes.txt").touch()
    examples = load(tmp_path)
    report = audit(examples, progress=False)
    assert report.inventory.text().splitlines() == [
        "5  images that can be used",
        "4  HEIC: daisy 1, rose 1, tulip 2",
        "1  ignored: .txt",
    ]
    with pytest.raises(ValueError, match=rf"Convert .* data convert {tmp_path} NEW_FOLDER`, or"):
        report.accept(examples)
    with pytest.raises(ValueError, match=r"No images are left for the classes daisy\."):
        report.accept(examples, "skip")
    (tmp_path / "daisy" / "1.jpg").write_bytes(save(7, format="JPEG"))
    kept, _ = usable_images(load(tmp_path), "skip", progress=False)
    assert kept.class_counts().tolist() == [1, 3, 2]


def test_unreadable_file_is_named(write: Callable[..., Path], tmp_path: Path) -> None:
    write(tmp_path, ["a/1.png", "b/2.png"])
    (tmp_path / "a" / "3.png").symlink_to("nowhere")
    examples = load(tmp_path)
    (tmp_path / "b" / "2.png").unlink()
    found = audit(examples, progress=False)
    reason = "cannot be read: No such file or directory"
    assert found.inventory.unreadable == {reason: {"a": 1, "b": 1}}
    assert list(found.digests) == ["a/1.png"]


def test_user_folder_is_never_written_to(bad_folder: Path) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        paths = [bad_folder, *bad_folder.rglob("*")]
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}

    before = state()
    examples = load(bad_folder)
    audit(examples, progress=False).accept(examples, on_bad_image="skip")
    assert state() == before


def test_file_that_vanished_is_reported(tmp_path: Path, write: Write) -> None:
    examples = load(write(tmp_path, ["a/1.png", "b/2.png"]))
    (tmp_path / "a" / "1.png").unlink()
    assert audit(examples, progress=False).bad == (
        ("a/1.png", "cannot be read: No such file or directory"),
    )


def test_same_content_is_found_in_any_format(tmp_path: Path, write: Write, save: Save) -> None:
    def reencoded(seed: int, format: str, **options: object) -> bytes:
        file = io.BytesIO()
        PIL.Image.open(io.BytesIO(save(seed))).save(file, format, **options)
        return file.getvalue()

    write(
        tmp_path,
        {
            "a/1.png": save(1),
            "a/1_copy.bmp": reencoded(1, "BMP"),
            "a/2.png": save(2),
            "b/2_again.webp": reencoded(2, "WEBP", lossless=True),
            "b/3.png": save(3),
        },
    )
    report = audit(load(tmp_path), progress=False)
    assert report.duplicates == (("a/1.png", "a/1_copy.bmp"), ("a/2.png", "b/2_again.webp"))
    assert report.contradictions == (("a/2.png", "b/2_again.webp"),)
    assert report.text() == (
        "Duplicate images with different labels (1):\n"
        "  a/2.png = b/2_again.webp\n"
        "Duplicate images with the same label (1):\n"
        "  a/1.png = a/1_copy.bmp"
    )


def test_equal_bytes_of_another_shape_are_another_image(noise: Callable[..., Examples]) -> None:
    def black(width: int, height: int) -> bytes:
        file = io.BytesIO()
        PIL.Image.fromarray(np.zeros((height, width, 3), "uint8")).save(file, "PNG")
        return file.getvalue()

    report = audit(noise(3, encoded=(black(4, 3), black(3, 4), black(6, 2))), progress=False)
    assert report.duplicates == ()
    assert len(set(report.digests.values())) == 3


def test_sizes_and_ranges_are_those_of_the_usable_images(noise: Callable[..., Examples]) -> None:
    def png(values: np.ndarray) -> bytes:
        file = io.BytesIO()
        PIL.Image.fromarray(values.astype("uint8")).save(file, "PNG")
        return file.getvalue()

    rising = np.arange(5 * 7 * 3).reshape(5, 7, 3) + 11
    encoded = (png(rising), b"text", png(np.full((13, 3), 97)))
    report = audit(noise(3, encoded=encoded), progress=False)
    assert report.sizes == {"000.png": (5, 7), "002.png": (13, 3)}
    assert report.ranges == {"000.png": (11, 115), "002.png": (97, 97)}
    assert all(type(number) is int for pair in report.ranges.values() for number in pair)
    assert report.digests.keys() == report.sizes.keys()
    plain = ImageAudit(bad=(), digests={})
    assert (plain.sizes, plain.ranges) == ({}, {})


def test_text_lists_twenty_names_at_most() -> None:
    bad = tuple((f"{i:02d}.jpg", "reason") for i in range(23))
    lines = ImageAudit(bad=bad, digests={}).text().splitlines()
    assert lines[0] == "23 of 23 images cannot be used:"
    assert lines[1] == "  00.jpg: reason"
    assert lines[20:] == ["  19.jpg: reason", "  ... and 3 more"]


def test_progress_bar_is_shown_on_the_error_stream(
    noise: Callable[..., Examples], capsys: pytest.CaptureFixture[str]
) -> None:
    examples = noise(3)
    audit(examples, progress=False)
    assert capsys.readouterr() == ("", "")
    audit(examples)
    output = capsys.readouterr()
    assert output.out == ""
    assert "Checking images" in output.err


# Measured 10 to 15 s of processor time for all 3670, so the copies are sought among a part of
# them in the everyday run.
COPIES = {
    ("roses/15922772266_1167a06620.jpg", "tulips/15922772266_1167a06620.jpg"),
    ("sunflowers/14889392928_9742aed45b_m.jpg", "sunflowers/15066430311_fb57fa92b0_m.jpg"),
    ("sunflowers/15069459615_7e0fd61914_n.jpg", "sunflowers/15072973261_73e2912ef2_n.jpg"),
}


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_flower_photographs_hold_three_identical_pairs(test_data: Path, step: int) -> None:
    examples = load(test_data / "data" / "flower_photos")
    assert len(examples) == 3670
    assert examples.class_names == ("daisy", "dandelion", "roses", "sunflowers", "tulips")
    known = {name for pair in COPIES for name in pair}
    part = [i for i, name in enumerate(examples.names) if i % step == 0 or name in known]
    report = audit(examples.subset(part), progress=False)
    assert report.bad == ()
    assert set(report.duplicates) == COPIES
    assert report.contradictions == (
        ("roses/15922772266_1167a06620.jpg", "tulips/15922772266_1167a06620.jpg"),
    )


def test_images_that_show_other_classes_contradict(several: Examples) -> None:
    encoded = list(several.encoded or ())
    encoded[5] = encoded[2]  # both show nothing
    encoded[6] = encoded[3]  # a, b and c; b and c
    found = audit(dataclasses.replace(several, encoded=tuple(encoded)), progress=False)
    assert found.duplicates == (("002.png", "005.png"), ("003.png", "006.png"))
    assert found.contradictions == (("003.png", "006.png"),)
