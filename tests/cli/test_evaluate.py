from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from keras_vit.cli.evaluate import Method
from keras_vit.training import Run
from keras_vit.visualization.attention_maps import METHODS
from tests.cli.commands import Call, check_failure

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]


def test_evaluate_writes_a_report(
    run: Path, call: Call, tmp_path: Path, inspected: list[str]
) -> None:
    code, output, _ = call("evaluate", run, "--out", tmp_path, "--report", tmp_path / "report")
    assert code == 0
    assert len(inspected) == len({*inspected}) == 7  # for the split, not again for the page
    expected = json.loads((run / "evaluation.json").read_text())
    found = json.loads((tmp_path / "report" / "report.json").read_text())
    evaluation = json.loads((tmp_path / "evaluation.json").read_text())
    assert evaluation.pop("images") == "held out"
    assert evaluation == expected
    assert expected.pop("inventory") == {"used": 33, "unreadable": {}, "ignored": {}}
    assert found["scores"] == expected
    page = (tmp_path / "report" / "index.html").read_text()
    assert f"<h1>{run.name}</h1>" in page
    assert "7 images of photos: held out" in page
    assert found["configuration"]["model"] == "ViTNano"
    assert found["versions"]["keras"]
    assert str(run.parent) not in page
    assert "/index.html (open it in a browser)" in output


@pytest.mark.parametrize("name", ["confusion_matrix", "iou", "precision_recall", "scatter"])
def test_evaluate_replaces_no_picture_of_the_user(
    run: Path, call: Call, tmp_path: Path, name: str
) -> None:
    (tmp_path / f"{name}.png").touch()
    code, _, message = call("evaluate", run, "--out", tmp_path)
    check_failure(code, message, f"other folders are not overwritten. Received: out='{tmp_path}'")
    assert message.endswith(f"which contains {name}.png\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "earlier"),
    [
        ("", False),
        pytest.param("last.keras", False, marks=pytest.mark.slow),
        pytest.param("last.keras", True, marks=pytest.mark.slow),
    ],
)
def test_evaluate_leaves_out_what_the_run_was_trained_on(
    run: Path,
    photos: Path,
    call: Call,
    tmp_path: Path,
    inspected: list[str],
    model: str,
    earlier: bool,
) -> None:
    run = shutil.copytree(run, tmp_path / "run")
    split = run / "split.csv"
    if earlier:  # without digests
        rows = [row.rpartition(",")[0] for row in split.read_text().splitlines()]
        split.write_text("\n".join(rows) + "\n")
    copies = shutil.copytree(photos, tmp_path / "copies")
    for path in copies.glob("*/*"):  # recognized by content, whatever the name
        path.rename(path.with_name(f"copy_{path.name}"))
    options = ("--data", copies, "--out", tmp_path, "--report", tmp_path / "report")
    code, output, _ = call("evaluate", run / model, *options)
    assert code == 0
    fact = "26 of 33 images are training images of the run and are"
    assert f"{fact} left out." in output
    assert earlier or len(inspected) == len({*inspected}) == 33
    assert f"7 images of copies: {fact} left out" in (tmp_path / "report/index.html").read_text()
    assert json.loads((tmp_path / "evaluation.json").read_text())["num_examples"] == 7
    code, output, _ = call("evaluate", run / model, *options, "--with-training-images")
    assert f"{fact} included." in output
    assert json.loads((tmp_path / "evaluation.json").read_text())["num_examples"] == 33


def test_evaluate_of_training_images_alone_is_refused(
    run: Path, photos: Path, call: Call, tmp_path: Path
) -> None:
    rows = (run / "split.csv").read_text().splitlines()
    trained = [row.split(",")[0] for row in rows if ",train," in row]
    for name in trained:
        path = tmp_path / "trained" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(photos / name, path)
    code, _, message = call("evaluate", run, "--data", tmp_path / "trained", "--out", tmp_path)
    check_failure(code, message, "with 26 images, all of them training images")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folders", "part", "images"),
    [
        (("train", "val", "test"), None, "test"),
        (("train", "val", "test"), "validation", "val"),
        (("train", "val"), None, "val"),
    ],
)
def test_evaluate_of_a_folder_of_splits_takes_one(
    run: Path,
    photos: Path,
    call: Call,
    tmp_path: Path,
    folders: tuple[str, ...],
    part: str | None,
    images: str,
) -> None:
    classes = sorted(path.name for path in photos.iterdir())
    for number, folder in enumerate(folders):
        for name in classes:
            for path in sorted((photos / name).iterdir())[: number + 1]:
                copy = tmp_path / "data" / folder / name / path.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
    options = ("--part", part) if part else ()
    code, output, _ = call(
        *("evaluate", run, "--data", tmp_path / "data", "--out", tmp_path),
        *("--with-training-images", *options),
    )
    assert code == 0
    name = {"test": "test", "val": "validation"}[images]
    assert f"The {name} split." in output
    found = json.loads((tmp_path / "evaluation.json").read_text())
    assert found["num_examples"] == len(classes) * (folders.index(images) + 1)
    assert found["images"].startswith(f"the {name} split")


def test_evaluate_of_other_parts_leaves_the_evaluation_of_the_run(
    run: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = (run / "evaluation.json").read_bytes()
    code, output, _ = call("evaluate", run, "--part", "train")
    assert (code, "Written: evaluation/evaluation.json" in output) == (0, True)
    assert (run / "evaluation.json").read_bytes() == before
    found = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())
    assert (found["images"], found["num_examples"]) == ("the train split", 26)


def test_evaluate_needs_a_split_that_is_there(
    run: Path, photos: Path, call: Call, tmp_path: Path
) -> None:
    code, _, message = call("evaluate", run, "--part", "test")
    check_failure(code, message, "`--part` must be a split with images. Received: test")
    code, _, message = call("evaluate", run, "--data", photos, "--part", "test")
    check_failure(
        code,
        message,
        f"`--part` must be a split of {photos}. Received: test; available splits: none",
    )


@pytest.mark.slow
def test_evaluate_tells_the_accuracy_on_the_values_of_a_column(
    run: Path, photos: Path, call: Call, tmp_path: Path
) -> None:
    folder = shutil.copytree(photos, tmp_path / "photos")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*"))
    rows = [f"{file},{file.split('/')[0]},{'reflex' if k % 2 else 'phone'}"
            for k, file in enumerate(files)]  # fmt: skip
    (folder / "labels.csv").write_text("\n".join(["file,label,camera", *rows]))
    report = tmp_path / "report"
    code, _, _ = call(
        *("evaluate", run / "last.keras", "--data", folder),
        *("--out", tmp_path, "--report", report, "--with-training-images"),
    )
    assert code == 0
    slices = json.loads((report / "report.json").read_text())["slices"]
    assert [(row["column"], row["value"], row["images"]) for row in slices] == [
        ("camera", "phone", 17),
        ("camera", "reflex", 16),
    ]


def test_explain_draws_what_counts(run: Path, call: Call, tmp_path: Path) -> None:
    images = sorted((run / "samples").iterdir())[:2]
    code, output, _ = call("explain", run, *images, "--out", tmp_path / "all.png")
    assert code == 0
    assert f"Written: {tmp_path / 'all.png'}" in output
    code, _, _ = call(
        *("explain", run, images[0], "--method", "grad_cam", "--class", "bee"),
        *("--out", tmp_path / "one.png"),
    )
    assert code == 0
    assert (tmp_path / "one.png").stat().st_size < (tmp_path / "all.png").stat().st_size


def test_explain_refuses_what_is_not_there(run: Path, call: Call, tmp_path: Path) -> None:
    image = next((run / "samples").iterdir())
    code, _, message = call("explain", run, tmp_path / "nowhere.jpg")
    check_failure(code, message, "`IMAGE` must be an existing file.")
    code, _, message = call("explain", run, run / "samples")
    check_failure(code, message, "a file; for all images in a folder, pass FOLDER/*.")
    code, _, message = call("explain", run, image, "--out", tmp_path / "map.doc")
    check_failure(code, message, "`path` must end in an image format,")
    code, _, message = call("explain", run, image, "--class", "bees")
    check_failure(code, message, "Did you mean 'bee'? Received: of_class='bees'")


@pytest.mark.slow
def test_probe_takes_a_run_or_a_file(run: Path, photos: Path, call: Call, tmp_path: Path) -> None:
    options = ("--cache", tmp_path / "features.npz")
    code, output, _ = call("probe", run, *options, "--out", tmp_path / "probe")
    assert code == 0
    assert "accuracy on 7 held-out images, from frozen features" in output
    found = json.loads((tmp_path / "probe" / "probe.json").read_text())
    assert [row["shots"] for row in found["few_shot"]] == [1, 5, 10]
    assert (tmp_path / "probe" / "neighbors.png").is_file()
    code, output, _ = call(
        "probe", run / "last.keras", "--data", photos, *options, "--out", tmp_path / "probe"
    )
    assert code == 0
    assert "from" in output  # the same split as a training would make
    assert json.loads((tmp_path / "probe" / "probe.json").read_text()) == found


def test_probe_of_a_file_needs_images(run: Path, call: Call) -> None:
    code, _, message = call("probe", run / "last.keras")
    check_failure(code, message, "`--data` must be given unless `RUN` is a run.")


def test_methods_of_the_command_are_those_that_there_are() -> None:
    assert {method.value for method in Method} == {*METHODS, "all"}


def test_card_is_written(run: Path, call: Call, tmp_path: Path) -> None:
    code, output, _ = call("card", run, "--out", tmp_path / "card")
    assert code == 0
    card = tmp_path / "card" / "README.md"
    card.write_text("completed")
    code, _, message = call("card", run, "--out", tmp_path / "card")
    check_failure(code, message, "`folder` must not contain a README.md")
    assert card.read_text() == "completed"
    assert "Complete the parts in italics" in output


def test_card_of_what_is_no_run(call: Call, tmp_path: Path) -> None:
    code, _, message = call("card", tmp_path)
    check_failure(code, message, "`RUN` must be a run folder written by `keras-vit train --out`")
    assert not Run(tmp_path).config.exists()
