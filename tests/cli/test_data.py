from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from keras_vit import cli, data, training
from tests.tasks.detection.conftest import write_rectangles
from tests.training.photos import write_photos

pytestmark = pytest.mark.tensorflow

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `keras-vit data ...`; returns its exit code, its output and its messages."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["keras-vit", "data", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        return int(exit_.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos", {"ant": 5, "bee": 7})


def state(folder: Path) -> dict[Path, tuple[int, int]]:
    paths = [folder, *folder.rglob("*")]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}


def test_check_reports_and_changes_nothing(call: Call, photos: Path) -> None:
    before = state(photos)
    code, output, _ = call("check", photos)
    assert code == 0
    lines = output.splitlines()
    assert lines[0] == f"12 images in 2 classes of {photos}"
    assert lines[1:3] == ["  ant       5   41.7%", "  bee       7   58.3%"]
    assert lines[-1] == "No problems found; no two images have the same pixels."
    assert state(photos) == before


def test_check_ends_with_1_where_training_would_be_refused(call: Call, photos: Path) -> None:
    (photos / "bee" / "99.jpg").write_bytes(b"text")
    code, output, _ = call("check", photos)
    assert code == 1
    assert "1 of 13 images cannot be used:\n  bee/99.jpg: not a JPEG" in output
    (photos / "bee" / "99.jpg").unlink()
    for path in (photos / "ant").iterdir():
        path.unlink()
    code, output, _ = call("check", photos)
    assert (code, "Training needs images of at least two classes" in output) == (1, True)


def test_check_passes_what_training_takes(call: Call, photos: Path) -> None:
    """A warning is no refusal."""
    twin = next((photos / "ant").iterdir())
    (photos / "bee" / f"twin{twin.suffix}").write_bytes(twin.read_bytes())
    code, output, _ = call("check", photos)
    assert code == 0
    assert "Duplicate images with different labels (1):" in output


def test_check_writes_its_report(call: Call, photos: Path, tmp_path: Path) -> None:
    report = tmp_path / "new" / "report.json"
    report.parent.mkdir()
    code, output, _ = call("check", photos, "--json", report)
    assert code == 0
    assert output.endswith(f"\n\nWritten: {report}\n")
    content = json.loads(report.read_text(encoding="utf-8"))
    assert content["counts"] == {"ant": 5, "bee": 7}
    assert content == json.loads(json.dumps(data.check(data.load(photos)).to_json()))
    (photos / "bee" / "99.jpg").write_bytes(b"text")
    again = report.with_name("again.json")
    assert call("check", photos, "--json", again)[0] == 1
    assert "bee/99.jpg" in json.loads(again.read_text(encoding="utf-8"))["bad"]


def test_check_says_what_data_may_be(call: Call, tmp_path: Path) -> None:
    code, _, messages = call("check", tmp_path / "nowhere")
    assert code == 1
    assert messages.startswith("keras-vit: `data` must be a folder of class folders")


@pytest.fixture
def sheets(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.ndarray, np.ndarray, tuple, Path]]:
    """What would have been drawn."""
    drawn = []
    module = importlib.import_module("keras_vit.tasks.classification.task")
    monkeypatch.setattr(module, "contact_sheet", lambda *arguments: drawn.append(arguments))
    return drawn


def test_preview_draws_a_picture(call: Call, photos: Path, tmp_path: Path) -> None:
    before, out = state(photos), tmp_path / "preview.png"
    code, output, _ = call("preview", photos, "--out", out, "--image-size", "16", "--number", 6)
    assert (code, output) == (
        0,
        f"Written: {out} (6 images with the augmentation of the recipe finetune)\n",
    )
    with PIL.Image.open(out) as image:
        assert min(image.size) > 200
    assert state(photos) == before


@pytest.mark.slow
def test_preview_shows_what_the_model_sees(call: Call, photos: Path, sheets: list) -> None:
    size = ("--image-size", "16x24")
    assert call("preview", photos, *size, "--set", "mixup=3", "--set", "erasing=0")[0] == 0
    ((images, labels, names, out),) = sheets
    assert (images.shape, labels.shape) == ((12, 16, 24, 3), (12, 2))
    assert (names, out) == (("ant", "bee"), Path("preview.png"))
    assert -0.01 < images.min() < 60 < 200 < images.max() < 255.01  # pixels again
    mixed = labels[(labels > 0.02) & (labels < 0.98)]
    assert len(mixed) > 0
    np.testing.assert_allclose(labels.sum(axis=1), 1, atol=1e-6)


@pytest.mark.slow
def test_preview_follows_from_its_seed(call: Call, photos: Path, sheets: list) -> None:
    for seed in (3, 3, 5):
        assert call("preview", photos, "--image-size", "16", "--seed", seed)[0] == 0
    first, again, other = (images for images, *_ in sheets)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "shown"), [(7, 6), (400, 12)])
def test_preview_shows_an_even_number(
    call: Call, photos: Path, sheets: list, number: int, shown: int
) -> None:
    assert call("preview", photos, "--image-size", "8", "--number", number)[0] == 0
    assert len(sheets[0][0]) == shown


def test_preview_shows_a_single_image(call: Call, tmp_path: Path, sheets: list) -> None:
    single = write_photos(tmp_path / "single", {"ant": 1})
    assert call("preview", single, "--image-size", "8")[0] == 0
    assert len(sheets[0][0]) == 1


@pytest.mark.slow
def test_preview_takes_the_size_of_the_model_or_of_the_recipe(
    call: Call, photos: Path, sheets: list
) -> None:
    assert call("preview", photos, "--model", "ViTMicro4", "--number", 2)[0] == 0
    assert call("preview", photos, "--set", "image_size=[12, 20]", "--number", 2)[0] == 0
    assert sheets[0][0].shape == (2, 32, 32, 3)
    assert sheets[1][0].shape == (2, 12, 20, 3)


@pytest.fixture
def pipelines(sheets: list, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Images, preprocessing and augmentation of each training pipeline."""
    arguments: list[tuple[Any, ...]] = []
    original = data.training_dataset
    monkeypatch.setattr(
        data, "training_dataset", lambda *a, **k: (arguments.append(a), original(*a, **k))[1]
    )
    return arguments


@pytest.mark.slow
def test_preview_takes_the_augmentation_of_the_recipe(
    call: Call, photos: Path, pipelines: list[tuple[Any, ...]]
) -> None:
    assert call("preview", photos, "--image-size", "16", "--recipe", "deit")[0] == 0
    changed = ("--set", "erasing=0.1", "--set", "rand_augment_ops=1")
    assert call("preview", photos, "--image-size", "16", "--recipe", "deit", *changed)[0] == 0
    published = training.recipe("deit").augmentation
    assert pipelines[0][2] == published
    assert (
        pipelines[1][2]
        == training.recipe("deit").replace(erasing=0.1, rand_augment_ops=1).augmentation
    )


def test_preview_resizes_as_training(
    call: Call, photos: Path, tmp_path: Path, pipelines: list[tuple[Any, ...]]
) -> None:
    options = ("--number", 2, "--out", tmp_path / "preview.png", "--image-size")
    assert call("preview", photos, *options, 8, "--set", "resize=pad")[0] == 0
    assert call("preview", photos, *options, 8)[0] == 0
    boxes = write_rectangles(tmp_path / "boxes", 3)
    assert call("preview", boxes, "--task", "detection", *options, 64)[0] == 0
    assert [preprocessing.resize for _, preprocessing, *_ in pipelines] == ["pad", "crop", "squash"]
    assert [preprocessing.size for _, preprocessing, *_ in pipelines] == [(8, 8), (8, 8), (64, 64)]


@pytest.mark.slow
def test_preview_fails_with_one_message(call: Call, photos: Path, tmp_path: Path) -> None:
    out = ("--image-size", "8", "--out", tmp_path / "preview.png")
    for arguments, message in (
        ((photos, "--recipe", "dei", *out), "'dei'"),
        ((photos, "--set", "mixup", *out), "`--set` must have the form NAME=VALUE."),
        ((photos, "--set", "mixing=1", *out), "'mixing' is not a recipe field"),
        ((photos, "--model", "ViTB61", *out), "ViTB16"),
        ((photos, *out, "--image-size", "16x8000000"), "`--image-size` must be at most"),
    ):
        code, _, messages = call("preview", *arguments)
        assert code == 1
        assert messages.startswith("keras-vit: ")
        assert message in messages
        assert messages.count("\n") == 1
    for path in photos.rglob("*.*"):
        path.write_bytes(b"text")
    code, _, messages = call("preview", photos, *out)
    assert code == 1
    assert messages.startswith("keras-vit: `DATA` must contain only images that can")
    assert messages.endswith(f"Received: {photos}\n")
    assert not (tmp_path / "preview.png").exists()


def test_packed_folder_is_used_like_the_folder(call: Call, tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    code, out, _ = call("pack", tmp_path / "photos", tmp_path / "packed", "--processes", 1)
    assert code == 0
    assert f"Written: {tmp_path / 'packed'} (" in out
    assert f"Next: keras-vit data check {tmp_path / 'packed'}" in out
    checks = [call("check", tmp_path / name) for name in ("photos", "packed")]
    assert checks[0][0] == checks[1][0] == 0
    names = [str(tmp_path / name) for name in ("packed", "photos")]
    assert checks[1][1].replace(*names) == checks[0][1]
    code, out, _ = call("unpack", tmp_path / "packed", tmp_path / "again")
    assert code == 0
    assert data.load(tmp_path / "again").names == data.load(tmp_path / "photos").names


def test_pack_refuses_a_folder_of_the_user(call: Call, tmp_path: Path) -> None:
    write_photos(tmp_path / "photos")
    code, _, messages = call("pack", tmp_path / "photos", tmp_path / "photos" / "ant")
    assert code == 1
    assert "`destination` must not be inside `source`" in messages
