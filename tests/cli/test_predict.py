from __future__ import annotations

import csv
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from keras_vit import save_weights, zoo
from keras_vit.export import embed, load_predictor
from keras_vit.storage.packing import pack
from tests.cli.commands import Call, check_failure

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def folder(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five photographs at two depths, a damaged one, and a text."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "inner").mkdir()
    samples = sorted((run / "samples").iterdir())
    for index, path in enumerate(samples[:5]):
        shutil.copy(path, folder / ("inner" if index % 2 else ".") / f"{index}{path.suffix}")
    jpeg = next(path for path in samples if path.suffix == ".jpg")
    (folder / "inner" / "half.jpg").write_bytes(jpeg.read_bytes()[:150])
    (folder / "notes.txt").write_text("none")
    return folder


def read_table(path: Path) -> list[dict[str, object]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return [dict(row) for row in csv.DictReader(file)]
    return parquet.read_table(path).to_pylist()


@pytest.mark.slow
def test_predict_takes_folders_and_a_list_on_standard_input(
    run: Path, folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output, _ = call("predict", run, folder)
    assert code == 1
    lines = dict(line.split(maxsplit=1) for line in output.splitlines()[-6:])
    images = {str(path) for path in folder.rglob("*.*") if path.suffix != ".txt"}
    assert lines.keys() == images
    assert lines[str(folder / "inner" / "half.jpg")] == "The image is damaged"
    lined = folder / "a\nb.txt"
    lined.write_text("none")
    assert call("predict", run, lined)[1].count("\n") == 1  # a name is no line of its own
    lined.unlink()
    listed = sorted(images)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(listed) + "\n\n"))
    code, output, _ = call("predict", run, "-")
    assert code == 1
    assert dict(line.split(maxsplit=1) for line in output.splitlines()[-6:]) == lines


@pytest.mark.parametrize(
    "suffix", [".csv", *(pytest.param(s, marks=pytest.mark.slow) for s in (".jsonl", ".parquet"))]
)
def test_predict_writes_a_table(
    run: Path, folder: Path, call: Call, tmp_path: Path, suffix: str
) -> None:
    to = tmp_path / f"answers{suffix}"
    code, output, _ = call("predict", run, folder, "--to", to, "--top", 1)
    assert code == 1
    assert f"Written: {to} (6 images, 1 of which cannot be read)" in output
    assert [path.name for path in tmp_path.iterdir()] == [to.name]
    rows = {str(row["file"]): row for row in read_table(to)}
    assert rows.pop(str(folder / "inner" / "half.jpg"))["message"] == "The image is damaged"
    expected = load_predictor(run).predict(sorted(rows))
    for prediction, (_, row) in zip(expected, sorted(rows.items()), strict=True):
        assert row["label"] == prediction.label
        assert float(row["score"]) == pytest.approx(prediction.score, abs=1e-5)
        assert row["label_2"] == prediction.top_labels[1]
        assert not row.get("message")


@pytest.mark.slow
def test_predict_writes_the_probability_of_every_class(
    run: Path, folder: Path, call: Call, tmp_path: Path
) -> None:
    image = folder / "0.jpg" if (folder / "0.jpg").exists() else folder / "0.png"
    to = tmp_path / "answers.jsonl"
    assert call("predict", run, image, "--to", to, "--all")[0] == 0
    (row,) = read_table(to)
    labels = (run / "labels.txt").read_text().splitlines()
    scores = [row[f"probability_{label}"] for label in labels]
    assert sum(scores) == pytest.approx(1, abs=1e-5)
    assert row["score"] == max(scores)


@pytest.mark.parametrize(
    "suffix", [".parquet", *(pytest.param(s, marks=pytest.mark.slow) for s in (".csv", ".jsonl"))]
)
def test_predict_writes_features(
    run: Path, folder: Path, call: Call, tmp_path: Path, suffix: str
) -> None:
    to = tmp_path / f"features{suffix}"
    assert call("predict", run, folder, "--embed", "--to", to)[0] == 1
    rows = {Path(str(row["file"])).name: row for row in read_table(to)}
    assert len(rows) == 6
    assert rows.pop("half.jpg")["message"] == "The image is damaged"
    found = [row["embedding"] for _, row in sorted(rows.items())]
    found = [json.loads(row) if isinstance(row, str) else row for row in found]
    images = sorted(folder.rglob("[0-9].*"), key=lambda path: path.name)
    expected = np.stack([row for row, _ in embed(run, images)])
    np.testing.assert_allclose(np.float32(found), expected, atol=1e-6)


@pytest.mark.slow
def test_predict_writes_features_of_weights_without_a_classifier(
    folder: Path, call: Call, tmp_path: Path
) -> None:
    model = zoo.constructor("ViTNano")(weights=None, include_top=False, pooling="token")
    save_weights(model, tmp_path / "features.npz")
    to = tmp_path / "features.jsonl"
    options = ("--model", "ViTNano", "--embed", "--to", to)
    assert call("predict", tmp_path / "features.npz", folder, *options)[0] == 1
    assert {len(row.get("embedding", ())) for row in read_table(to)} == {0, 15}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--embed",), "`--embed` needs `--to`"),
        (("--to", "pyproject.toml/answers.csv"), "`--to` must be inside a folder"),
        (("--to", "answers.txt"), "`--to` must end in .csv, .jsonl, .parquet"),
        (("--all",), "`--all` needs `--to`"),
        (("--image-size", "512"), "`--image-size` needs `--model`"),
    ],
)
def test_predict_checks_before_it_loads(
    run: Path, folder: Path, call: Call, options: tuple[str, ...], message: str
) -> None:
    code, _, said = call("predict", run, folder, *options)
    check_failure(code, said, message)


def test_predict_overwrites_nothing(run: Path, folder: Path, call: Call, tmp_path: Path) -> None:
    to = tmp_path / "answers.csv"
    to.write_text("mine")
    code, _, said = call("predict", run, folder, "--to", to)
    check_failure(code, said, "`--to` must not exist yet.")
    assert to.read_text() == "mine"


@pytest.mark.slow
def test_predict_that_is_killed_ends_as_an_undisturbed_one(
    run: Path, folder: Path, tmp_path: Path
) -> None:
    images = sorted(str(path) for path in folder.rglob("*.*") if path.suffix != ".txt") * 400
    words = [sys.executable, "-m", "keras_vit_toolkit", "predict", str(run), "-", "--to"]

    def start(to: Path) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*words, str(to)], stdin=subprocess.PIPE)
        assert process.stdin
        process.stdin.write("\n".join(images).encode())
        process.stdin.close()
        return process

    alone, to = tmp_path / "alone.csv", tmp_path / "answers.csv"
    assert start(alone).wait() == 1
    for part in ("unfinished", "unfinished", "00000000-*.part", "00000001-*.part"):
        process = start(to)
        while process.poll() is None and not any(tmp_path.glob(f".answers.csv.parts/{part}")):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not to.exists()
    assert start(to).wait() == 1
    assert to.read_bytes() == alone.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"alone.csv", "answers.csv"}


def test_predict_reads_packed_images(run: Path, folder: Path, call: Call, tmp_path: Path) -> None:
    pack(folder, tmp_path / "packed", processes=1, progress=False)
    tables = []
    for source in (folder, tmp_path / "packed"):
        to = tmp_path / f"{source.name}.csv"
        call("predict", run, source, "--to", to)
        tables.append(to.read_text().replace(f"{source}/", ""))
    assert tables[0] == tables[1]
    assert tables[0].count("\n") > 2
