from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from keras_vit import models
from keras_vit.tasks.classification.network import build_network
from keras_vit.tasks.classification.task import Classification
from keras_vit.training import Recipe, RunConfig

pytestmark = pytest.mark.tensorflow

SMALL = Recipe(image_size=(8, 8), precision="float32")


def test_network_ends_in_logits_at_the_precision_of_training(nano: str) -> None:
    config = RunConfig("digits", nano, recipe=SMALL.replace(dropout_rate=0.1))
    network = build_network(config, ("a", "b", "c"), dtype="mixed_bfloat16")
    assert models.config_of(network).classifier_activation is None
    assert models.config_of(network).dropout_rate == 0.1
    assert network.get_layer("block_00").compute_dtype == "bfloat16"
    assert models.preprocessing_of(network).class_names == ("a", "b", "c")


def test_classifier_of_other_classes_is_replaced_by_zeros(
    nano: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = build_network(RunConfig("digits", nano, recipe=SMALL), ("a", "b"))
    first.get_layer("head").set_weights([np.ones((15, 2)), np.ones(2)])
    first.save(tmp_path / "first.keras")
    config = RunConfig("digits", nano, weights=str(tmp_path / "first.keras"), recipe=SMALL)
    other = build_network(config, ("b", "c"))
    assert not np.any(other.get_layer("head").kernel)
    assert "the classifier starts from zeros:" in capsys.readouterr().out
    same = build_network(config, ("a", "b"))
    assert np.all(np.asarray(same.get_layer("head").kernel) == 1)


def test_remat_changes_no_variable(nano: str) -> None:
    plain, again = (
        build_network(RunConfig("digits", nano, recipe=SMALL.replace(remat=remat)), ("a", "b"))
        for remat in (False, True)
    )
    assert [w.path for w in plain.weights] == [w.path for w in again.weights]
    blocks = [[net.get_layer(f"block_0{i}").remat for i in (0, 1)] for net in (plain, again)]
    assert blocks == [[False, False], [True, True]]


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


def test_nothing_is_said_of_weights_that_a_state_replaces(
    nano: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_network(RunConfig("digits", nano, recipe=SMALL), ("a", "b")).save(tmp_path / "m.keras")
    config = RunConfig("digits", nano, weights=str(tmp_path / "m.keras"), recipe=SMALL)
    task = Classification(config)
    examples: Any = SimpleNamespace(class_names=("c", "d", "e"))
    task.build_network(examples, "float32", resume=False)
    assert "Note: " in capsys.readouterr().out
    task.build_network(examples, "float32", resume=True)
    assert capsys.readouterr().out == ""
