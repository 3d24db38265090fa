"""Loading of the model to check, with its run and its preprocessing."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import keras

from keras_vit.doctor.scaling_candidates import SCALES
from keras_vit.models import preprocessing_of
from keras_vit.preprocessing import CHANNELS, Preprocessing
from keras_vit.tasks.run_data import Run
from keras_vit.weights import whole_models
from keras_vit.weights.containers.guards import WeightFileError

# Default image size of models with flexible input, as in most published models.
_DEFAULT_SIDE = 224


def load_model_and_run(path: str | os.PathLike[str]) -> tuple[keras.Model, Run | None]:
    """Loads the last model of a run, or any model file that Keras can load."""
    path = Path(path)
    if path.is_dir():
        run = Run(path)
        return run.model(compile=True), run
    if not path.is_file() or path.suffix not in (".keras", ".h5"):
        raise ValueError(
            "`RUN` must be a run folder, or a .keras or .h5 file that contains a "
            f"complete model. Received: {path}"
        )
    with contextlib.suppress(TypeError, ValueError):  # a loss or optimizer unknown to Keras
        return whole_models.load_model(path, compile=True), None
    try:
        return whole_models.load_model(path), None
    except WeightFileError:
        raise
    except (TypeError, ValueError) as error:
        raise ValueError(
            "`RUN` must be a model that keras.saving.load_model can load. If the model "
            "has custom layers, load it in Python and call keras_vit.doctor.examine on the "
            f"loaded model. Received: {path}, which fails to load: {str(error).splitlines()[0]}"
        ) from error


def preprocessing_for(model: keras.Model) -> tuple[Preprocessing, bool]:
    """Returns the preprocessing of a model, and whether it is stored in the model or guessed."""
    with contextlib.suppress(ValueError):
        return preprocessing_of(model), True
    shape = _input_shape(model)
    if len(shape) != 4 or shape[-1] not in CHANNELS.values():
        raise ValueError(
            "`model` must accept one batch of images with one or three channels, (B, height, "
            "width, channels), or be passed with its `preprocessing`. Received: "
            f"model={model.name!r} with the input shape {shape or None}"
        )
    guessed = Preprocessing(
        size=(shape[1] or _DEFAULT_SIDE, shape[2] or _DEFAULT_SIDE),
        resize="squash",
        interpolation="bilinear",
        antialias=False,
        **SCALES["0..255"],
        channels="grayscale" if shape[-1] == 1 else "rgb",
        exif_orientation=False,
        dct_scaling=False,
    )
    return guessed, False


def check_input(model: keras.Model, preprocessing: Preprocessing) -> None:
    """Raises `ValueError` if a model's input shape does not match its preprocessing."""
    expected = (*preprocessing.size, preprocessing.num_channels)
    shape = _input_shape(model)[1:] or expected
    fits = len(shape) == 3 and all(g in (None, n) for g, n in zip(shape, expected, strict=True))
    if not fits or len(getattr(model, "inputs", None) or [model]) != 1:
        raise ValueError(
            "`model` must accept one batch of images with the size and channels that its "
            f"preprocessing produces, {expected}. Received: model={model.name!r} with the input "
            f"shape {getattr(model, 'input_shape', None)}"
        )


def _input_shape(model: keras.Model) -> tuple[int | None, ...]:
    """Returns a model's input shape (B, height, width, channels), or () if it is unknown."""
    if getattr(model, "inputs", None) is not None:
        shape = model.input_shape
    else:  # a subclassed model stores the shape of its first call
        shape = (model.get_build_config() or {}).get("input_shape")
    sides = tuple(shape) if isinstance(shape, (tuple, list)) else ()
    return sides if all(n is None or isinstance(n, int) for n in sides) else ()
