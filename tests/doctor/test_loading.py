from __future__ import annotations

import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.doctor.loading import check_input, load_model_and_run, preprocessing_for
from keras_vit.preprocessing import Preprocessing
from keras_vit.training import Run, RunConfig
from keras_vit.weights.containers.guards import MAX_JSON_BYTES
from tests.doctor.conftest import PREPROCESSING, solve

pytestmark = pytest.mark.tensorflow

L = keras.layers


def test_load_model_compiles_what_was_compiled(tmp_path: Path) -> None:
    model = solve()
    model.compile("sgd", "mse")
    model.save(tmp_path / "m.keras")
    loaded, run = load_model_and_run(tmp_path / "m.keras")
    assert (loaded.loss, run) == ("mse", None)
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])


def test_load_model_does_without_a_loss_that_keras_does_not_know(tmp_path: Path) -> None:
    def mine(y: object, p: object) -> object:
        return keras.losses.mean_squared_error(y, p)

    model = solve()
    model.compile("sgd", mine)
    model.save(tmp_path / "m.keras")
    assert not load_model_and_run(tmp_path / "m.keras")[0].compiled


def test_load_model_says_what_is_over_large(tmp_path: Path) -> None:
    solve().save(tmp_path / "m.keras")
    with (
        zipfile.ZipFile(tmp_path / "m.keras") as old,
        zipfile.ZipFile(tmp_path / "n.keras", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        new.writestr("config.json", old.read("config.json") + b" " * MAX_JSON_BYTES)
        new.writestr("model.weights.h5", old.read("model.weights.h5"))
    with pytest.raises(ValueError, match=r"n\.keras is too large: its config\.json has 16,"):
        load_model_and_run(tmp_path / "n.keras")


def test_load_model_takes_the_last_model_of_a_run(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.write_config(RunConfig("digits", "ViTMicro4"), {})
    with pytest.raises(ValueError, match=r"must have completed at least one epoch..*no last.keras"):
        load_model_and_run(run.path)
    solve().save(run.last)
    model, found = load_model_and_run(run.path)
    assert model.output_shape == (None, 10)
    assert found is not None
    assert found.path == run.path


def test_load_model_refuses_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        ValueError, match="`run` must be a run folder written by `keras-vit train --out`"
    ):
        load_model_and_run(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"a .keras or .h5 file that contains a complete model."):
        load_model_and_run(tmp_path / "nowhere.keras")
    (tmp_path / "weights.npz").touch()
    with pytest.raises(ValueError, match=r"a .keras or .h5 file that contains a complete model."):
        load_model_and_run(tmp_path / "weights.npz")
    (tmp_path / "broken.keras").write_text("no model")
    with pytest.raises(ValueError, match=r"must be a model that keras.saving.load_model can load"):
        load_model_and_run(tmp_path / "broken.keras")


def test_load_model_says_what_to_do_about_layers_of_ones_own(tmp_path: Path) -> None:
    class Mine(L.Dense):
        pass

    keras.Sequential([keras.Input((5,)), Mine(3)]).save(tmp_path / "m.keras")
    with pytest.raises(
        ValueError, match=r"If the model has custom layers, load it in Python and call .*examine"
    ):
        load_model_and_run(tmp_path / "m.keras")


def test_contract_of_our_own_models_is_known() -> None:
    assert preprocessing_for(solve()) == (PREPROCESSING, True)


def test_contract_of_other_models_is_guessed_from_their_input() -> None:
    other = keras.Sequential([keras.Input((11, None, 1)), L.GlobalAveragePooling2D()])
    preprocessing, known = preprocessing_for(other)
    assert not known
    assert (preprocessing.size, preprocessing.channels, preprocessing.resize) == (
        (11, 224),
        "grayscale",
        "squash",
    )
    pixels = np.array([[[[3.0], [200.0]]]])
    np.testing.assert_allclose(preprocessing.scale(pixels), pixels, rtol=1e-6)


class Plain(keras.Model):
    """A subclass, which has no input shape until it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = L.Flatten()

    def call(self, inputs: object) -> object:
        return self.flatten(inputs)


def test_contract_of_a_subclass_is_guessed_from_what_it_was_called_with() -> None:
    model = Plain()
    model(np.zeros((1, 7, 5, 3), "float32"))
    assert preprocessing_for(model)[0].size == (7, 5)


@pytest.mark.parametrize("shape", [(8,), (8, 8, 4), (3, 8, 8), (2, 8, 8, 3)])
def test_contract_of_what_takes_no_images_is_refused(shape: tuple[int, ...]) -> None:
    model = keras.Sequential([keras.Input(shape), L.Flatten()])
    with pytest.raises(
        ValueError, match="`model` must accept one batch of images with one or three channels,"
    ):
        preprocessing_for(model)
    with pytest.raises(ValueError, match="input shape None"):
        preprocessing_for(Plain())


def test_check_input_refuses_another_size_and_several_inputs() -> None:
    one = keras.Sequential([keras.Input((None, 8, 3)), L.Flatten()])
    check_input(one, Preprocessing(size=(5, 8)))
    check_input(Plain(), Preprocessing(size=(5, 8)))
    with pytest.raises(ValueError, match=r"\(8, 5, 3\). Received: .*\(None, None, 8, 3\)"):
        check_input(one, Preprocessing(size=(8, 5)))
    a, b = keras.Input((8, 8, 3)), keras.Input((8, 8, 3))
    with pytest.raises(
        ValueError, match="`model` must accept one batch of images with the size and"
    ):
        check_input(keras.Model([a, b], a + b), Preprocessing(size=8))
