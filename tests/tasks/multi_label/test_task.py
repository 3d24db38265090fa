from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import PIL.Image
import pytest
import yaml

from keras_vit import data, export, models, training, zoo
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.predict import predict
from keras_vit.tasks.evaluate import evaluate, evaluate_in_detail
from keras_vit.tasks.multi_label.metrics import MultiLabelReport, choose_thresholds
from keras_vit.tasks.multi_label.task import MultiLabel, fit_to_labels, set_thresholds
from keras_vit.training import Recipe, Run, RunConfig
from tests.cli.commands import call_main
from tests.training.conftest import Train

pytestmark = pytest.mark.tensorflow

NAMES = ("blue", "green", "red")
RECIPE = Recipe(epochs=2, batch_size=8, learning_rate=3e-3, precision="float32")


def write_colors(folder: Path, number: int = 37) -> Path:
    """Writes dark noise with light in none, one, two or all of the channels, and labels.csv."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(5)
    lines = ["file,labels"]
    for index in range(number):
        shown = [name for bit, name in enumerate(NAMES) if index % 8 >> bit & 1]
        pixels = generator.integers(0, 90, (9 + index % 3, 13, 3), "uint8")
        for name in shown:
            pixels[..., 2 - NAMES.index(name)] += 120
        PIL.Image.fromarray(pixels).save(folder / f"{index:02d}.png")
        lines.append(f"{index:02d}.png,{'|'.join(shown)}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_colors(tmp_path_factory.mktemp("data") / "colors")


@pytest.fixture(scope="module")
def pico() -> Iterator[str]:
    """The name of a constructor of one narrow block for four patches."""
    config = models.size("Micro/4").replace(
        hidden_size=15, num_layers=1, num_heads=3, mlp_dim=19, image_size=(8, 8)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(zoo.CONSTRUCTORS, "ViTPico", zoo.Constructor("ViTPico", config))
        yield "ViTPico"


@pytest.fixture(scope="module")
def found(
    colors: Path, pico: str, train: Train, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, MultiLabelReport]:
    """A run of two epochs with mixing and class weights, and its report."""
    recipe = RECIPE.replace(class_weights="balanced", cutmix=1.0, mixing_probability=0.3)
    run = Run(tmp_path_factory.mktemp("runs") / "colors")
    return run, train(RunConfig(str(colors), pico, recipe=recipe), run.path)


def held_out(run: Run, colors: Path) -> data.Examples:
    examples = data.load(colors)
    return examples.subset(data.read_split(run.split, examples)[1])


def test_run_leaves_a_model_that_says_yes_or_no(found: tuple[Run, MultiLabelReport]) -> None:
    run, report = found
    for path in (run.last, run.best):
        model = keras.saving.load_model(path)
        assert models.config_of(model).classifier_activation == "sigmoid"
        preprocessing = models.preprocessing_of(model)
        assert preprocessing.class_names == NAMES
        assert preprocessing.thresholds not in (None, (0.5,) * 3)
    assert [row.name for row in report.per_label] == list(NAMES)
    assert report.num_examples == len(held_out_rows(run))


def held_out_rows(run: Run) -> list[dict[str, str]]:
    with run.split.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["split"] == "validation"]


def test_run_folder_tells_what_was_done(found: tuple[Run, MultiLabelReport]) -> None:
    run, report = found
    assert run.read_config().recipe.loss == "sigmoid"
    assert run.resolved()["preprocessing"]["thresholds"] == [0.5, 0.5, 0.5]
    evaluation = json.loads(run.evaluation.read_text())
    assert evaluation.pop("inventory")["unreadable"] == {}
    assert evaluation == report.to_json()
    assert run.label_scores.read_bytes().startswith(b"\x89PNG")
    assert not run.confusion_matrix.exists()
    assert run.history.read_text().splitlines()[0].split(",") == [
        *("epoch", "accuracy", "average_precision", "gradient_norm", "loss"),
        *("val_accuracy", "val_average_precision", "val_loss"),
    ]
    shown = {row["labels"].replace("|", "_") or "none" for row in held_out_rows(run)}
    assert {path.name.rpartition("_")[0] for path in run.samples.iterdir()} == shown
    assert any("_" in names for names in shown)


@pytest.mark.slow
def test_thresholds_are_the_best_ones_of_each_model(
    found: tuple[Run, MultiLabelReport], colors: Path
) -> None:
    run, report = found
    validation = held_out(run, colors)
    for path in (run.last, run.best):
        model = keras.saving.load_model(path)
        labels, probabilities, preprocessing = predict(model, validation, verbose=0)
        assert preprocessing.thresholds == choose_thresholds(labels, probabilities)
    last = evaluate(keras.saving.load_model(run.last), validation, verbose=0)
    assert last.to_json() == report.to_json()


@pytest.mark.slow
def test_run_can_be_exported_and_asked(
    found: tuple[Run, MultiLabelReport],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, _ = found
    options = ("--tflite", "none", "--no-warm-up")
    assert call_main("export", run.path, "--to", tmp_path, *options) == 0
    images = sorted(run.samples.iterdir())
    predictor = export.load_predictor(run.last)
    preprocessing = Preprocessing(thresholds=predictor.thresholds)
    expected = predictor.probabilities([path.read_bytes() for path in images])
    for artifact in (run.path, tmp_path / "vit"):
        capsys.readouterr()
        assert call_main("predict", artifact, *images) == 0
        lines = capsys.readouterr().out.splitlines()[-len(images) :]
        for line, path, row in zip(lines, images, expected, strict=True):
            name, _, said = line.partition("   ")
            order = [k for k in np.argsort(-row) if preprocessing.present(row)[k]]
            assert name.strip() == str(path)
            assert [word for word in said.split() if word in NAMES] == [NAMES[k] for k in order]
            assert order or said.strip() == "none of the labels"


def test_evaluate_command_repeats_the_report(
    found: tuple[Run, MultiLabelReport], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, report = found
    assert call_main("evaluate", run.path, "--out", tmp_path) == 0
    assert report.text() in capsys.readouterr().out
    evaluation = json.loads((tmp_path / "evaluation.json").read_text())
    assert (evaluation.pop("images"), evaluation.pop("inventory")["ignored"]) == ("held out", {})
    assert evaluation == report.to_json()
    assert (tmp_path / "label_scores.png").exists()


@pytest.mark.slow
def test_details_have_results_by_column(found: tuple[Run, MultiLabelReport], colors: Path) -> None:
    model, examples = found[0].model(), held_out(found[0], colors)
    cameras = tuple("phone" if index % 3 else "reflex" for index in range(len(examples)))
    examples = dataclasses.replace(examples, columns={"camera": cameras})
    by_value = evaluate_in_detail(model, examples).slices
    assert list(by_value) == [("camera", "phone"), ("camera", "reflex")]
    phone = examples.subset([index for index in range(len(examples)) if index % 3])
    assert by_value["camera", "phone"] == evaluate(model, phone, verbose=0)


@pytest.mark.slow
def test_resumed_run_keeps_its_loss_and_ends_alike(
    found: tuple[Run, MultiLabelReport], train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    run, report = found
    before = keras.saving.load_model(run.last).get_weights()
    again = train(run.read_config(), run.path, resume=True)
    assert again == report
    for old, new in zip(before, keras.saving.load_model(run.last).get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert "Note: the data is multi-label," not in capsys.readouterr().out


def test_loss_gives_way_only_where_it_must(
    colors: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = data.load(colors)
    config = RunConfig("colors", "ViTMicro4")
    assert fit_to_labels(config, examples).recipe == config.recipe.replace(loss="sigmoid")
    assert capsys.readouterr().out.count("so the loss is sigmoid, not softmax") == 1
    asked = RunConfig("colors", "ViTMicro4", recipe=Recipe(loss="sigmoid"))
    assert fit_to_labels(asked, examples) is asked
    assert capsys.readouterr().out == ""


def test_images_of_one_class_each_are_refused() -> None:
    config = RunConfig("digits", "ViTMicro4", task="multi_label")
    with pytest.raises(ValueError, match="`data` must have a column `labels`"):
        MultiLabel.settled(config, data.load("digits"))


def test_fields_are_checked_before_the_loss_is_changed(colors: Path) -> None:
    config = RunConfig("colors", "ViTMicro4", recipe=Recipe(ridge_head=True))
    with pytest.raises(ValueError, match="`ridge_head` must be False with the task multi_label"):
        MultiLabel.settled(config, data.load(colors))


def test_teacher_is_refused(colors: Path) -> None:
    config = RunConfig("colors", "ViTMicro4", teacher="t.keras", recipe=Recipe(distillation="soft"))
    with pytest.raises(ValueError, match=r"`distillation` must be 'none' .*='soft' with .*colors"):
        fit_to_labels(config, data.load(colors))


@pytest.mark.slow
def test_set_thresholds_leaves_the_weights(colors: Path, tmp_path: Path) -> None:
    config = models.size("Micro/4").replace(
        **{"hidden_size": 12, "num_layers": 1, "num_heads": 2, "mlp_dim": 17},
        **{"image_size": (8, 8), "classes": 3, "classifier_activation": "sigmoid"},
    )
    preprocessing = Preprocessing(size=8, class_names=NAMES, thresholds=(0.5,) * 3)
    model = models.build(config, preprocessing=preprocessing)
    head = model.get_layer("head")
    head.set_weights([np.zeros((12, 3)), np.log([3.0, 1.0, 1 / 3])])
    model.save(tmp_path / "model.keras")
    set_thresholds(tmp_path / "model.keras", data.load(colors))
    again = keras.saving.load_model(tmp_path / "model.keras")
    # Every image gets 3/4, 1/2, 1/4: the best that can be said is yes, at half of these.
    assert models.preprocessing_of(again).thresholds == pytest.approx((0.375, 0.25, 0.125))
    for old, new in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_configuration_repeats_the_run(found: tuple[Run, MultiLabelReport]) -> None:
    content = yaml.safe_load(found[0].config.read_text())
    assert content["recipe"]["loss"] == "sigmoid"
    assert training.read_config(found[0].config) == found[0].read_config()
