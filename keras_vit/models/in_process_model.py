"""Models that cannot be saved, and the error they raise before a file is opened."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NoReturn

import keras

UNSAVED = (
    "A model made by `optimize_for_inference` is for the process that made it and cannot be saved, "
    "exported, copied or given weights: take the model that it was made of."
)
# What `keras.saving` writes with. They open the file before they call the model, so an error raised
# there comes after the earlier file is overwritten.
_WRITERS = (
    ("keras.src.saving.saving_lib", "save_model"),
    ("keras.src.saving.saving_lib", "save_weights_only"),
    ("keras.src.legacy.saving.legacy_h5_format", "save_model_to_hdf5"),
)


def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Takes the place of a method that would save, export or load."""
    raise ValueError(UNSAVED)


@functools.cache
def refuse_before_opening() -> None:
    """Makes Keras refuse what sets `_keras_vit_unsaved`, before it opens a file.

    No method of a model is called before, so the functions that open it are wrapped, once in a
    process; for every other model they are what they were.
    """
    for name, function in _WRITERS:
        module = importlib.import_module(name)
        setattr(module, function, _refusing(getattr(module, function)))


def _refusing(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
    def checked(model: Any, *args: Any, **kwargs: Any) -> Any:
        layers = model._flatten_layers() if isinstance(model, keras.Model) else ()
        if any(getattr(part, "_keras_vit_unsaved", False) for part in (model, *layers)):
            raise ValueError(UNSAVED)
        return write(model, *args, **kwargs)

    return checked


class InProcessModel(keras.Model):
    """A functional model with a layer `InProcess`, which refuses before it opens a file.

    Args:
        **kwargs: What `keras.Model` takes.

    Raises:
        ValueError: Where it, or its weights, are saved, loaded or exported, and where it is copied.

    Example:
        >>> inputs = keras.Input((5,))
        >>> InProcessModel(inputs=inputs, outputs=keras.layers.Dense(3)(inputs)).save("m.keras")
        Traceback (most recent call last):
        ValueError: A model made by `optimize_for_inference` is for the process that made it and ...
    """

    _keras_vit_unsaved = True
    save = save_weights = load_weights = export = refuse
