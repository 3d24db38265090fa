from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import data, models
from keras_vit.runs.config import CommonConfig
from keras_vit.runs.run_folder import Run
from keras_vit.tasks.classification.distillation import DistillationObjective
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.training import Recipe, RunConfig
from keras_vit.training.build import (
    build_encoder,
    build_network,
    build_objective,
    precision_of,
    set_reading,
)
from tests.training.conftest import save_teacher

pytestmark = pytest.mark.tensorflow

SMALL = Recipe(image_size=(8, 8), precision="float32")


def test_network_ends_in_logits_at_the_precision_of_training(nano: str) -> None:
    recipe = SMALL.replace(precision="mixed_bfloat16", dropout_rate=0.1)
    network = build_network(RunConfig("digits", nano, recipe=recipe), ("a", "b", "c"))
    assert models.config_of(network).classifier_activation is None
    assert models.config_of(network).dropout_rate == 0.1
    assert network.get_layer("block_00").compute_dtype == "bfloat16"
    assert models.preprocessing_of(network).labels == ("a", "b", "c")


def test_classifier_of_other_classes_is_replaced_by_zeros(
    nano: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = build_network(RunConfig("digits", nano, recipe=SMALL), ("a", "b"))
    first.get_layer("head").set_weights([np.ones((15, 2)), np.ones(2)])
    first.save(tmp_path / "first.keras")
    config = RunConfig("digits", nano, weights=str(tmp_path / "first.keras"), recipe=SMALL)
    other = build_network(config, ("b", "c"))
    assert not np.any(other.get_layer("head").kernel)
    assert "the classifier starts from zeros" in capsys.readouterr().out
    same = build_network(config, ("a", "b"))
    assert np.all(np.asarray(same.get_layer("head").kernel) == 1)


def test_balanced_weights_of_a_class_without_images_are_zero(nano: str) -> None:
    digits = data.load("digits")
    training = digits.subset(np.flatnonzero(digits.labels < 3)[:30])
    config = RunConfig("digits", nano, recipe=SMALL.replace(class_weights="balanced"))
    network = build_network(config, digits.class_names)
    found = build_objective(config, network, training).class_weights
    counts = np.bincount(training.labels)
    np.testing.assert_allclose(found[:3], 30 / (3 * counts), rtol=1e-6)
    assert not np.any(found[3:])


def test_teacher_makes_a_distilled_classifier(nano: str, tmp_path: Path) -> None:
    names = tuple(map(str, range(10)))
    recipe = SMALL.replace(distillation="soft", distillation_weight=0.3)
    teacher = save_teacher(tmp_path / "teacher.keras", names)
    config = RunConfig("digits", nano, teacher=str(teacher), recipe=recipe)
    network = build_network(config, names)
    objective = build_objective(config, network, data.load("digits"))
    assert isinstance(objective, DistillationObjective)
    assert (objective.kind, objective.weight) == ("soft", 0.3)
    plain = RunConfig("digits", nano, recipe=SMALL)
    assert type(build_objective(plain, network, data.load("digits"))) is ClassificationObjective


def test_remat_changes_no_variable(nano: str) -> None:
    plain, again = (
        build_network(RunConfig("digits", nano, recipe=SMALL.replace(remat=remat)), ("a", "b"))
        for remat in (False, True)
    )
    assert [w.path for w in plain.weights] == [w.path for w in again.weights]
    blocks = [[net.get_layer(f"block_0{i}").remat for i in (0, 1)] for net in (plain, again)]
    assert blocks == [[False, False], [True, True]]


@pytest.mark.parametrize("model", [None, "MobileNetV2"])
def test_run_that_goes_on_reads_images_as_when_it_was_started(
    nano: str, model: str | None, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    config = RunConfig("digits", model or nano, recipe=SMALL.replace(image_size=(32, 32)))
    network = build_network(config, ("a", "b"))
    preprocessing = models.preprocessing_of(network)
    assert preprocessing.exif_orientation
    assert preprocessing.dct_scaling
    earlier = (
        dataclasses.replace(preprocessing, **dict.fromkeys(names, False))
        for names in (["exif_orientation", "dct_scaling"], ["dct_scaling"])
    )
    for stored in (preprocessing, *earlier, preprocessing):
        run.write_config(config, {"preprocessing": stored.get_config()})
        set_reading(network, run, resume=True)
        assert models.preprocessing_of(network) == stored


def test_new_run_turns_images_upright_whatever_its_weights_did(
    nano: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = build_network(RunConfig("digits", nano, recipe=SMALL), ("a", "b"))
    preprocessing = models.preprocessing_of(network)
    earlier = models.rebuild(
        network,
        preprocessing=dataclasses.replace(preprocessing, exif_orientation=False, dct_scaling=False),
    )
    earlier.save(tmp_path / "earlier.keras")
    config = RunConfig("digits", nano, weights=str(tmp_path / "earlier.keras"), recipe=SMALL)
    new = build_network(config, ("a", "b"))
    capsys.readouterr()
    set_reading(new, Run(tmp_path / "run"), resume=False)
    assert "images are turned upright by their Exif orientation" in capsys.readouterr().out
    assert models.preprocessing_of(new) == preprocessing
    set_reading(new, Run(tmp_path / "run"), resume=False)
    assert capsys.readouterr().out == ""


def test_encoder_has_no_classifier_and_the_precision_of_training(nano: str) -> None:
    recipe = SMALL.replace(precision="mixed_bfloat16", dropout_rate=0.1, remat=True)
    encoder = build_encoder(CommonConfig("photos", nano, recipe=recipe))
    config = models.config_of(encoder)
    assert (config.classes, config.pooling, config.dropout_rate) == (0, "token", 0.1)
    assert encoder.output_shape == (None, 15)
    block = encoder.get_layer("block_01")
    assert (block.compute_dtype, block.remat) == ("bfloat16", True)


def test_encoder_says_which_weights_were_resized(
    nano: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_encoder(CommonConfig("photos", nano, recipe=SMALL)).save(tmp_path / "first.keras")
    config = CommonConfig("photos", nano, weights=str(tmp_path / "first.keras"))
    build_encoder(dataclasses.replace(config, recipe=SMALL.replace(image_size=(12, 16))))
    output = capsys.readouterr().out
    assert output.startswith("Note: ")
    assert "resized from (4, 4) to (6, 8)" in output


def test_precision_of_a_recipe_is_the_machine_s_only_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = importlib.import_module("keras_vit.training.build")
    best = {"auto": "mixed_bfloat16", "cpu": "mixed_float16"}
    monkeypatch.setattr(module, "best_precision", best.__getitem__)
    config = CommonConfig("photos", "ViTMicro4", recipe=Recipe())
    assert precision_of(config) == "mixed_bfloat16"
    assert precision_of(dataclasses.replace(config, strategy="cpu")) == "mixed_float16"
    config = dataclasses.replace(config, recipe=Recipe(precision="float32"))
    assert precision_of(config) == "float32"
    assert keras.config.dtype_policy().name == "float32"


def test_network_of_several_labels_has_thresholds(nano: str, tmp_path: Path) -> None:
    config = RunConfig("digits", nano, recipe=SMALL)
    first = build_network(config, ("a", "b"), multi_label=True)
    assert models.preprocessing_of(first).thresholds == (0.5, 0.5)
    assert models.preprocessing_of(build_network(config, ("a", "b"))).thresholds is None
    # From weights that have them to classes that exclude one another, with the same classifier.
    first.get_layer("head").set_weights([np.ones((15, 2)), np.ones(2)])
    first.save(tmp_path / "first.keras")
    config = RunConfig("digits", nano, weights=str(tmp_path / "first.keras"), recipe=SMALL)
    other = build_network(config, ("a", "b"))
    assert models.preprocessing_of(other).thresholds is None
    assert np.all(np.asarray(other.get_layer("head").kernel) == 1)


def test_balanced_weights_of_several_labels(nano: str) -> None:
    digits = data.load("digits").subset(range(7))
    labels = [[1, 0, 1, 1]] * 2 + [[0, 0, 1, 1]] * 3 + [[0, 0, 1, 0]] * 2
    training = dataclasses.replace(digits, labels=np.array(labels), class_names=tuple("abcd"))
    config = RunConfig("digits", nano, recipe=SMALL.replace(class_weights="balanced"))
    network = build_network(config, tuple("abcd"), multi_label=True)
    objective = build_objective(config, network, training)
    assert objective.multi_label
    # Shown by 2, 0, 7 and 5 of 7; where one of both never happens nothing can be balanced.
    np.testing.assert_allclose(objective.class_weights, [5 / 2, 1, 1, 2 / 5])


def test_nothing_is_said_of_weights_that_a_state_replaces(
    nano: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_network(RunConfig("digits", nano, recipe=SMALL), ("a", "b")).save(tmp_path / "m.keras")
    config = RunConfig("digits", nano, weights=str(tmp_path / "m.keras"), recipe=SMALL)
    build_network(config, ("c", "d", "e"))
    assert "Note: " in capsys.readouterr().out
    build_network(config, ("c", "d", "e"), resume=True)
    assert capsys.readouterr().out == ""
