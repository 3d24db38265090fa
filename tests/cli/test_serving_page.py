"""The examples of docs/serving.md, against the stand-in for TensorFlow Serving."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import keras
import pytest

from keras_vit.export import load_predictor, saved_model
from tests.tf_serving.fake_serving import FakeServing, serving

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]
pytest.importorskip("tensorflow_serving", reason="needs the extra serving")

PAGE = Path(__file__).parents[2] / "docs" / "serving.md"
EXPORTS = "export.bundle("


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[FakeServing]:
    model = keras.saving.load_model(run / "last.keras", compile=False)
    with serving(saved_model.write(model, run.parent / "served")) as fake:
        yield fake


@pytest.fixture
def folder(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the examples are run."""
    shutil.copy(next((run / "samples").iterdir()), tmp_path / "photo.jpg")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "photos").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def addressed(block: str, server: FakeServing) -> str:
    found = block.replace("http://localhost:8501", server.rest_address)
    return found.replace("localhost:8500", server.grpc_address)


@pytest.mark.parametrize("block", blocks("python"))
def test_python_examples_run(
    block: str, server: FakeServing, folder: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(addressed(block, server), str(PAGE), "exec"), {})
    said = capsys.readouterr().out
    assert any(label in said for label in (run / "labels.txt").read_text().splitlines())
    if EXPORTS in block:
        assert load_predictor(folder / "export" / "models" / "vit").labels


def test_curl_example_runs(server: FakeServing, folder: Path, run: Path) -> None:
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    (block,) = blocks("bash")
    command = ["bash", "-c", addressed(block, server)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    (prediction,) = json.loads(done.stdout)["predictions"]
    assert prediction["ok"]
    assert prediction["top_labels"][0] in (run / "labels.txt").read_text().splitlines()
