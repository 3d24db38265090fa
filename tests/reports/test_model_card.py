from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from keras_vit.reports import write_card
from keras_vit.reports.model_card import weights_license
from keras_vit.runs.config import write_config
from keras_vit.training import Run, RunConfig

pytestmark = pytest.mark.tensorflow


@pytest.mark.slow
def test_card_has_what_a_hub_expects(run: Path, tmp_path: Path) -> None:
    path = write_card(run, tmp_path / "card")
    text = path.read_text()
    _, front, body = text.split("---\n", 2)
    content = yaml.safe_load(front)
    assert content["library_name"] == "keras"
    assert content["pipeline_tag"] == "image-classification"
    scores = json.loads((run / "evaluation.json").read_text())
    metric = content["model-index"][0]["results"][0]["metrics"][0]
    assert metric == {"type": "accuracy", "value": round(scores["accuracy"], 4)}
    assert re.findall(r"^## (.+)$", body, re.MULTILINE) == [
        *("Intended use", "Data", "Metrics", "How to load it", "Training", "License")
    ]
    assert "3 classes an image shows: ant, bee, cow" in " ".join(body.split())
    assert f"**{scores['accuracy']:.4f}**" in body
    assert "none (random initialization)" in body
    assert str(run.parent) not in text
    pictures = re.findall(r"!\[.+\]\((.+)\)", body)
    assert {"confusion_matrix.png", "curves.png"} <= set(pictures)
    assert all((tmp_path / "card" / name).is_file() for name in pictures)


@pytest.mark.slow
def test_the_code_of_a_card_runs(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = re.search(r"```python\n(.*?)```", write_card(run, tmp_path).read_text(), re.DOTALL)[1]
    shutil.copy(run / "last.keras", tmp_path)
    shutil.copy(next((run / "samples").iterdir()), tmp_path / "image.jpg")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.split()[-1] in ("ant", "bee", "cow")


def test_card_goes_beside_the_run_by_default_and_changes_nothing_else(
    run: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    before = set((tmp_path / "run").rglob("*"))
    path = write_card(tmp_path / "run")
    assert path == tmp_path / "run" / "card" / "README.md"
    new = set((tmp_path / "run").rglob("*")) - before
    assert {item.parent.name for item in new if item.is_file()} == {"card"}


def test_card_replaces_no_other_file(run: Path, tmp_path: Path) -> None:
    card = write_card(run, tmp_path)
    card.write_text("completed")
    with pytest.raises(ValueError, match=r"`folder` must not contain a README\.md.*completed"):
        write_card(run, tmp_path)
    assert card.read_text() == "completed"
    card.unlink()
    write_card(run, tmp_path).unlink()
    (tmp_path / "curves.png").write_bytes(b"of the user")
    with pytest.raises(ValueError, match=r"`folder` must not contain other figures.*curves\.png"):
        write_card(run, tmp_path)


def test_card_of_an_incomplete_run(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="`run` must be a run folder written by `keras-vit train --out`"
    ):
        write_card(tmp_path)
    write_config(Run(tmp_path).config, RunConfig("photos", "ViTTi16"))
    with pytest.raises(
        ValueError, match=r"`run` must be complete\. .*has no evaluation\.json; resume"
    ):
        write_card(tmp_path)


def test_card_has_the_epochs_of_a_run_that_stopped_early(run: Path, tmp_path: Path) -> None:
    path = shutil.copytree(run, tmp_path / "run") / "config.yaml"
    assert "\n1 epochs, batch size 8" in write_card(path.parent, tmp_path / "all").read_text()
    content = yaml.safe_load(path.read_text())
    content["recipe"]["epochs"] = 5
    path.write_text(yaml.safe_dump(content))
    assert "\n1 of at most 5 epochs, batch size 8" in write_card(path.parent).read_text()


@pytest.mark.parametrize("content", ["{}", "[]", '{"accuracy": "high"}', "{"])
def test_card_of_a_damaged_evaluation(content: str, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "evaluation.json").write_text(content)
    with pytest.raises(ValueError, match=r"`run` must have a complete evaluation\.json"):
        write_card(tmp_path / "run")


@pytest.mark.parametrize("images", ["held out", "the test split"])
def test_card_is_of_held_out_images_only(images: str, run: Path, tmp_path: Path) -> None:
    path = shutil.copytree(run, tmp_path / "run") / "evaluation.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "images": images}))
    if images == "held out":
        assert write_card(path.parent).is_file()
        return
    with pytest.raises(ValueError, match=r"of its held-out images; .* the test split"):
        write_card(path.parent)


@pytest.mark.parametrize(
    ("weights", "model", "license", "said"),
    [
        ("imagenet", "ViTTi16", "apache-2.0", "Apache-2.0"),
        ("/home/me/own.npz", "ViTTi16", "unknown", "check where own.npz came from"),
        ("imagenet", "ResNet50", "unknown", "check where imagenet came from"),
        (None, "ViTTi16", "unknown", "random initialization"),
    ],
)
def test_license_is_that_of_the_weights(
    weights: str | None, model: str, license: str, said: str
) -> None:
    found = weights_license(weights, model)
    assert found[0] == license
    assert said in found[1]
    assert "/home/me" not in found[1]
