from __future__ import annotations

import dataclasses
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import data, models
from keras_vit.reports import feature_probe, probe

pytestmark = pytest.mark.tensorflow

DIGITS = data.load("digits")


@pytest.fixture(scope="module")
def model() -> keras.Model:
    keras.utils.set_random_seed(3)
    return models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=10))


@pytest.mark.slow
def test_probe_knows_more_with_more_examples(model: keras.Model, tmp_path: Path) -> None:
    training, test = DIGITS.subset(range(400)), DIGITS.subset(range(400, 500))
    found = probe(model, training, test, sheet=tmp_path / "neighbors.png")
    means = [row.mean for row in found.few_shot]
    assert means == sorted(means)
    assert found.linear_accuracy > means[-1] > 0.5
    assert found.knn_accuracy > 0.5
    assert all(len(row.accuracies) == 10 for row in found.few_shot)
    assert (tmp_path / "neighbors.png").read_bytes().startswith(b"\x89PNG")
    assert found.to_json()["few_shot"][0]["shots"] == 1
    assert "  25 examples per class" in found.text()


@pytest.mark.slow
def test_features_are_kept_and_made_anew_for_anything_else(
    model: keras.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "features.npz"
    parts = DIGITS.subset(range(60)), DIGITS.subset(range(60, 90))
    first = probe(model, *parts, cache=cache)
    assert probe(model, *parts, cache=cache).to_json() == first.to_json()
    assert capsys.readouterr().out == ""
    probe(model, *parts, cache=cache, verbose=1)
    assert "Reading cached features of the same model and images from" in capsys.readouterr().out
    probe(model, parts[1], parts[0], cache=cache, verbose=1)
    assert "Replacing cached features of another model or other images" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_a_file_of_something_else_is_not_replaced(
    model: keras.Model, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "own.npz").write_bytes(content)
    part = DIGITS.subset(range(9))
    with pytest.raises(ValueError, match=r"`cache` must be a file written by .*own\.npz"):
        probe(model, part, part, cache=tmp_path / "own.npz")
    assert (tmp_path / "own.npz").read_bytes() == content


def test_fingerprint_sees_weights_graph_and_images(model: keras.Model) -> None:
    parts = (DIGITS.subset(range(5)), DIGITS.subset(range(5, 9)))
    same = feature_probe.fingerprint(model, parts)
    assert feature_probe.fingerprint(model, parts) == same
    images = keras.Input((8, 8, 3))
    around = keras.Model(images, model(keras.layers.Rescaling(2.0)(images)))
    assert feature_probe.fingerprint(around, parts) != same
    assert feature_probe.fingerprint(model, parts[::-1]) != same
    assert (
        feature_probe.fingerprint(model, (DIGITS.subset(range(6)), DIGITS.subset(range(6, 9))))
        != same
    )
    other = models.rebuild(model)
    other.set_weights([w + 1e-6 for w in model.get_weights()])
    assert feature_probe.fingerprint(other, parts) != same


@pytest.mark.slow
def test_a_class_of_two_images_has_no_linear_classifier(model: keras.Model) -> None:
    labels = np.array(DIGITS.targets)
    few = np.r_[np.flatnonzero(labels == 0)[:2], np.flatnonzero(labels == 1)[:9]]
    found = probe(model, DIGITS.subset(few), DIGITS.subset(np.flatnonzero(labels < 2)[50:70]))
    assert found.linear_accuracy is None
    assert "- (a class has fewer than three images)" in found.text()


def test_images_of_several_classes_cannot_be_probed(model: keras.Model) -> None:
    several = dataclasses.replace(
        DIGITS.subset(range(5)), targets=np.eye(10, dtype=int)[DIGITS.targets[:5]]
    )
    with pytest.raises(ValueError, match="must have exactly one class per image to probe"):
        probe(model, several, several)


@pytest.mark.slow
def test_no_class_is_said_to_have_more_examples_than_it_has(model: keras.Model) -> None:
    digits = data.load("digits")
    few = digits.subset([i for k in range(10) for i in np.flatnonzero(digits.targets == k)[:7]])
    found = probe(model, few, digits.subset(range(100, 130)))
    assert [row.shots for row in found.few_shot] == [1, 5]
