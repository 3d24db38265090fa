from __future__ import annotations

from pathlib import Path

import keras
import pytest

from keras_vit import zoo
from keras_vit.cli.model_argument import load_given_model

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]


def test_a_run_stands_for_its_last_model(run: Path) -> None:
    model = load_given_model(run)
    same = load_given_model(run / "last.keras")
    assert [w.path for w in model.weights] == [w.path for w in same.weights]
    assert model.input_shape == (None, 8, 12, 3)


def test_a_weight_file_may_be_loaded_at_another_size_and_without_a_classifier(
    run: Path, tmp_path: Path
) -> None:
    model = keras.saving.load_model(run / "last.keras")
    model.save_weights(tmp_path / "nano.weights.h5")
    with pytest.warns(UserWarning, match="Position embeddings resized"):
        found = load_given_model(tmp_path / "nano.weights.h5", "ViTNano", (16, 20))
    assert found.input_shape == (None, 16, 20, 3)
    headless = zoo.constructor("ViTNano")(
        include_top=False, weights=None, input_shape=(8, 12, 3), pooling="token"
    )
    headless.save_weights(tmp_path / "headless.weights.h5")
    found = load_given_model(tmp_path / "headless.weights.h5", "ViTNano", classifier=False)
    assert len(found.weights) == len(headless.weights)
    assert found.output_shape == (None, 15)  # the class token, which a classifier would read
    with pytest.raises(ValueError, match=r"`RUN` must contain a classifier\."):
        load_given_model(tmp_path / "headless.weights.h5", "ViTNano")


def test_what_cannot_be_loaded_says_why(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`RUN` must be a run folder or a model file"):
        load_given_model(tmp_path / "nowhere.keras")
    with pytest.raises(ValueError, match="`--image-size` must be used with `--model`,"):
        load_given_model(run / "last.keras", None, (8, 8))
    (tmp_path / "weights.npz").touch()
    with pytest.raises(
        ValueError,
        match=r"A weight file must be passed with the constructor of its model",
    ):
        load_given_model(tmp_path / "weights.npz")
