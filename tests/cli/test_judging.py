from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from keras_vit.cli.judging import Method
from keras_vit.training import Run
from keras_vit.visualization.relevance import METHODS
from tests.cli.commands import Call, check_failure

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]


def test_evaluate_writes_a_report(run: Path, call: Call, tmp_path: Path) -> None:
    code, output, _ = call("evaluate", run, "--out", tmp_path, "--report", tmp_path / "report")
    assert code == 0
    expected = json.loads((run / "evaluation.json").read_text())
    found = json.loads((tmp_path / "report" / "report.json").read_text())
    assert found["scores"] == expected == json.loads((tmp_path / "evaluation.json").read_text())
    page = (tmp_path / "report" / "index.html").read_text()
    assert f"<h1>{run.name}</h1>" in page
    assert "7 images of photos, held out" in page
    assert found["configuration"]["model"] == "ViTNano"
    assert found["versions"]["keras"]
    assert str(run.parent) not in page
    assert "which opens in any browser" in output


def test_evaluate_says_when_images_were_trained_on(
    run: Path, photos: Path, call: Call, tmp_path: Path
) -> None:
    code, output, _ = call("evaluate", run, "--data", photos, "--out", tmp_path)
    assert code == 0
    assert "most of these images are those that the run was trained on" in output
    code, output, _ = call("evaluate", run / "last.keras", "--data", photos, "--out", tmp_path)
    assert "trained on" not in output


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
        *("--out", tmp_path, "--report", report),
    )
    assert code == 0
    slices = json.loads((report / "report.json").read_text())["slices"]
    assert [(row["column"], row["value"], row["images"]) for row in slices] == [
        ("camera", "phone", 17),
        ("camera", "reflex", 16),
    ]


def test_evaluate_of_reassessed_labels_needs_a_report(run: Path, call: Call) -> None:
    code, _, message = call("evaluate", run, "--real", "real.json")
    check_failure(code, message, "`--real` needs `--report`")


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
    check_failure(code, message, "`IMAGE` must be existing files")
    code, _, message = call("explain", run, run / "samples")
    check_failure(code, message, "of a folder name what is in it, as in photos/*")
    code, _, message = call("explain", run, image, "--out", tmp_path / "map.doc")
    check_failure(code, message, "`path` must end in the format of a picture")
    code, _, message = call("explain", run, image, "--class", "bees")
    check_failure(code, message, "Did you mean 'bee'? Received: of_class='bees'")


@pytest.mark.slow
def test_probe_takes_a_run_or_a_file(run: Path, photos: Path, call: Call, tmp_path: Path) -> None:
    options = ("--cache", tmp_path / "features.npz")
    code, output, _ = call("probe", run, *options, "--out", tmp_path / "probe")
    assert code == 0
    assert "accuracy on 7 images held out, from frozen features" in output
    found = json.loads((tmp_path / "probe" / "probe.json").read_text())
    assert [row["shots"] for row in found["few_shot"]] == [1, 5, 10]
    assert (tmp_path / "probe" / "neighbours.png").is_file()
    code, output, _ = call(
        "probe", run / "last.keras", "--data", photos, *options, "--out", tmp_path / "probe"
    )
    assert code == 0
    assert "are read from" in output  # the same split as a training would make
    assert json.loads((tmp_path / "probe" / "probe.json").read_text()) == found


def test_probe_of_a_file_needs_images(run: Path, call: Call) -> None:
    code, _, message = call("probe", run / "last.keras")
    check_failure(code, message, "`--data` must name labelled images, unless a run is probed")


def test_methods_of_the_command_are_those_that_there_are() -> None:
    assert {method.value for method in Method} == {*METHODS, "all"}


def test_card_is_written(run: Path, call: Call, tmp_path: Path) -> None:
    code, output, _ = call("card", run, "--out", tmp_path / "card")
    assert code == 0
    assert (tmp_path / "card" / "README.md").is_file()
    assert "Complete what stands there in italics" in output


def test_card_of_what_is_no_run(call: Call, tmp_path: Path) -> None:
    code, _, message = call("card", tmp_path)
    check_failure(code, message, "`run` must be a folder that `keras-vit train --out` has written")
    assert not Run(tmp_path).config.exists()
