"""Models that cannot be saved, and the error that they raise."""

from __future__ import annotations

from typing import Any, NoReturn

import keras

UNSAVED = (
    "A model made by `optimize_for_inference` is for the process that made it and cannot be saved, "
    "exported, copied or given weights: take the model that it was made of."
)


def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Takes the place of a method that would save, export or load."""
    raise ValueError(UNSAVED)


class InProcessModel(keras.Model):
    """A functional model with a layer `InProcess`, whose methods refuse before they open a file.

    The function `keras.saving.save_model` opens the file first, and leaves an incomplete one.

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

    save = save_weights = load_weights = export = refuse
