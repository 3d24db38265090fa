from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from keras_vit import data
from keras_vit.evaluation import mcnemar
from keras_vit.reports import Comparison, compare, comparison
from keras_vit.reports.comparison_worker import ModelResult
from keras_vit.tasks.classification.metrics import evaluate_predictions
from keras_vit.training import Run, RunConfig
from tests.cli.commands import call_main

FLOWER_CLASSES = ("daisy", "dandelion", "roses", "sunflowers", "tulips")

pytestmark = pytest.mark.tensorflow


def entry(name: str, right: int, classes: tuple[str, ...], **changes: object) -> ModelResult:
    labels = np.arange(40) % len(classes)
    predicted = np.where(np.arange(40) < right, labels, (labels + 1) % len(classes))
    found = ModelResult(
        name=name,
        start="weights.npz",
        names=tuple(f"{k}.jpg" for k in range(40)),
        labels=labels,
        probabilities=np.eye(len(classes))[predicted],
        class_names=classes,
        history=((1.5, 0.5), (3.0, 0.96)),
        parameters=5_717_416,
        flops=2_540_000_000,
        peak_memory=2_600_000_000,
        training_minutes=3.25,
        training_speed=18.44,
        inference_speed=70.06,
    )
    return dataclasses.replace(found, **changes)


def side_by_side(classes: tuple[str, ...] = FLOWER_CLASSES) -> Comparison:
    first = entry("ViT", 38, classes)
    second = entry("ResNet", 20, classes, start=None, history=((2.0, 0.4),), flops=None)
    reports = tuple(
        evaluate_predictions(c.labels, c.probabilities, classes) for c in (first, second)
    )
    test = mcnemar(first.labels, first.predicted, second.predicted)
    return Comparison((first, second), reports, {("ViT", "ResNet"): test})


def cells(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_names_of_models_are_no_markup() -> None:
    found = side_by_side()
    named = dataclasses.replace(found.results[1], name="<b>|x", start="<i>")
    tests = {("ViT", "<b>|x"): found.tests[("ViT", "ResNet")]}
    text = dataclasses.replace(found, results=(found.results[0], named), tests=tests).markdown()
    assert r"\<b\>\|x" in text
    assert "<b>" not in text.replace("\\<b\\>", "")
    assert r"\<i\>" in text


def test_table_says_what_each_model_reached_and_cost() -> None:
    text = side_by_side().markdown()
    assert cells(text, "started from") == ["weights.npz", "**random weights**"]
    assert cells(text, "accuracy") == ["**0.9500**", "**0.5000**"]
    assert cells(text, "parameters, millions") == ["5.72", "5.72"]
    assert cells(text, "GFLOPs per image") == ["2.54", "-"]
    assert cells(text, "peak host memory in training, GB") == ["2.60", "2.60"]
    assert cells(text, "minutes to 95% accuracy") == ["3.0", "-"]
    assert cells(text, "images/s in training") == ["18.4", "18.4"]
    assert len(cells(text, "F1 of tulips")) == 2
    assert "ViT alone is right on 18 images, ResNet alone on 0: p < 0.0001" in text
    assert "**Started from random weights: ResNet.**" in text


def test_table_has_no_training_speed_of_one_epoch() -> None:
    found = side_by_side()
    results = tuple(dataclasses.replace(result, training_speed=None) for result in found.results)
    text = dataclasses.replace(found, results=results).markdown()
    assert cells(text, "images/s in training") == ["-", "- (one epoch)"]


def test_scores_of_one_model_alone_have_a_row() -> None:
    first, second = (entry(name, 9, ("a",), scores={name: 0.5}) for name in ("AP", "AP50"))
    text = Comparison((first, second), (), {}).markdown()
    assert [cells(text, name) for name in ("AP", "AP50")] == [["0.5", "-"], ["-", "0.5"]]


@pytest.mark.slow
def test_models_of_other_images_are_not_compared(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = iter([entry("a", 3, ("x", "y")), entry("b", 3, ("x", "z"))])
    monkeypatch.setattr(comparison, "run_model", lambda *a: next(entries))
    with pytest.raises(ValueError, match=r"same images and classes\. Received: a with 40 images"):
        compare(RunConfig(str(photos), ""), ["ViTTi16", "ResNet50"], tmp_path)


def test_an_incomplete_run_is_refused_before_anything_is_trained(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, tmp_path / "half")
    (tmp_path / "half" / "evaluation.json").unlink()
    monkeypatch.setattr(comparison, "run_model", lambda *a: pytest.fail("trained"))
    with pytest.raises(ValueError, match="`run` must be complete"):
        compare(RunConfig(str(photos), ""), ["ViTTi16", str(tmp_path / "half")], tmp_path / "out")


def test_three_models_come_with_a_word_on_chance() -> None:
    found = side_by_side()
    pair = found.tests[("ViT", "ResNet")]
    more = dataclasses.replace(found, tests={("a", "b"): pair, ("a", "c"): pair, ("b", "c"): pair})
    assert "Of 3 tests, one in twenty is expected to have p < 0.05 by chance" in more.markdown()


def test_a_thousand_classes_are_cut_short() -> None:
    text = side_by_side(tuple(f"class_{k}" for k in range(30))).markdown()
    assert text.count("| F1 of ") == 20
    assert "... and 10 more classes" in text


def test_comparison_writes_table_numbers_and_curves(tmp_path: Path) -> None:
    found = side_by_side()
    found.write(tmp_path)
    assert (tmp_path / "comparison.md").read_text() == found.markdown()
    content = json.loads((tmp_path / "comparison.json").read_text())
    assert [model["accuracy"] for model in content["models"]] == [0.95, 0.5]
    assert content["models"][0]["minutes_to_0.95"] == 3.0
    assert content["mcnemar"][0]["only_first"] == 18
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_two_runs_are_compared_without_training(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, tmp_path / "other")
    monkeypatch.setattr(comparison, "run_model", lambda *a: pytest.fail("trained"))
    names = [str(run), str(tmp_path / "other")]
    found = compare(RunConfig(str(photos), ""), names, tmp_path / "out")
    assert found.tests[(run.name, "other")] == (0, 0, 1.0)
    written = (tmp_path / "out" / "comparison.md").read_text()
    assert str(tmp_path) not in written + (tmp_path / "out" / "comparison.json").read_text()
    stored = json.loads((run / "evaluation.json").read_text())
    assert found.reports[0].to_json() == {k: v for k, v in stored.items() if k != "inventory"}


@pytest.mark.slow
def test_a_run_with_another_split_is_refused_before_anything_is_trained(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "run_model", lambda *a: pytest.fail("trained"))
    config = RunConfig(str(photos), "", split_seed=5)
    with pytest.raises(ValueError, match="A run must have the same validation images"):
        compare(config, [str(run), "ViTTi16"], tmp_path / "out")
    out = tmp_path / "elsewhere"
    options = ("--image-size", "8x12", "--epochs", 1, "--batch-size", 8, "--precision", "float32")
    more = ("--split-seed", 5, "--no-tensorboard")
    call_main("train", "--data", photos, "--model", "ViTNano", "--out", out, *options, *more)
    with pytest.raises(
        ValueError, match=r"elsewhere, whose split\.csv contains different validation images"
    ):
        compare(RunConfig(str(photos), ""), [str(run), str(out)], tmp_path / "out")


def test_split_by_groups_is_that_of_an_existing_run(tmp_path: Path) -> None:
    digits, writers = data.load("digits").subset(range(100)), tuple(str(i // 3) for i in range(100))
    examples, audit = data.usable_images(dataclasses.replace(digits, columns={"writer": writers}))
    config, runs = RunConfig("digits", "", group_by="writer"), {"run": Run(tmp_path)}
    parts = data.split(examples, audit.digests, audit.twins, group_by="writer")
    data.write_split(runs["run"].split, examples, *parts)
    comparison._check_images(config, ["ViTTi16", "run"], runs, examples)
    for other in ({"group_by": None}, {"folds": 5, "fold": 1}):
        with pytest.raises(ValueError, match="A run must have the same validation images as the"):
            comparison._check_images(
                dataclasses.replace(config, **other), ["ViTTi16", "run"], runs, examples
            )


@pytest.mark.parametrize(
    ("models", "start", "message"),
    [
        (["ViTTi16"], {}, r"`models` must contain at least two models with.*\['ViTTi16'\]"),
        (
            ["ViTTi16", "ViTTi16"],
            {},
            "`models` must contain at least two models with different names.",
        ),
        (["ViTTi16", "ResNet51"], {}, "`model` must be one of"),
        (
            ["ViTTi16", "ResNet50"],
            {"ViTS16": "a"},
            "`start` must contain weights only for models that are",
        ),
        (["ViTTi16", "ResNet50"], {"ResNet50": "nowhere.h5"}, "Weights of ResNet50 must be"),
        (["ViTTi16", "ResNet50"], {"ViTTi16": "nowhere.npz"}, r"nowhere\.npz"),
    ],
)
def test_compare_refuses_before_it_trains(
    models: list[str], start: dict[str, str], message: str, photos: Path, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        compare(RunConfig(str(photos), ""), models, tmp_path, start=start)
    assert list(tmp_path.iterdir()) == []


def test_compare_refuses_models_of_other_tasks(photos: Path, tmp_path: Path) -> None:
    config = RunConfig(str(photos), "", task="regression")
    with pytest.raises(ValueError, match="`model` must be one of"):
        compare(config, ["ViTTi16", "ResNet50"], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_images_of_several_classes_are_refused(photos: Path, tmp_path: Path) -> None:
    table = photos / "several.csv"
    table.write_text("file,labels\nant/00.jpg,ant|bee\nbee/00.jpg,\n")
    with pytest.raises(
        ValueError, match=r"`data` must have exactly one class per image to compare models\."
    ):
        compare(RunConfig(str(table), ""), ["ViTTi16", "ResNet50"], tmp_path)
    table.unlink()


@pytest.mark.slow
def test_models_are_trained_and_compared(photos: Path, tmp_path: Path) -> None:
    from keras_vit.training import Recipe

    recipe = Recipe(epochs=2, batch_size=8, image_size=(32, 32), precision="float32")
    config = RunConfig(str(photos), "", recipe=recipe)
    found = compare(config, ["ViTMicro4", "MobileNetV2"], tmp_path)
    names = [c.name for c in found.results]
    assert names == ["ViTMicro4", "MobileNetV2"]
    for name in names:
        run = Run(tmp_path / "runs" / name / "run")
        assert run.read_config().recipe == recipe
        assert run.last.is_file()
    splits = {(tmp_path / "runs" / name / "run" / "split.csv").read_text() for name in names}
    assert len(splits) == 1
    assert found.results[1].parameters == 2_261_827
