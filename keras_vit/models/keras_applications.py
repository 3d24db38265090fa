"""Classifiers based on `keras.applications`, for comparison with Vision Transformers."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import sys
import urllib.request
from collections.abc import Iterator

import keras
import numpy as np

from keras_vit import arguments
from keras_vit.download.cache import is_set
from keras_vit.layers import ModelMetadata
from keras_vit.models.cloning import with_dtype
from keras_vit.preprocessing import Preprocessing


def application_names() -> tuple[str, ...]:
    """Returns the names of all networks in `keras.applications`."""
    items = vars(keras.applications).items()
    return tuple(sorted(name for name, item in items if inspect.isfunction(item)))


def build_application(
    name: str,
    labels: tuple[str, ...],
    *,
    weights: str | os.PathLike[str] | keras.Model | None = None,
    image_size: tuple[int, int] | None = None,
    thresholds: tuple[float, ...] | None = None,
    dtype: str = "float32",
) -> keras.Model:
    """Builds a classifier, including its preprocessing, from a `keras.applications` network.

    The network's feature maps are averaged and classified by one dense layer that is initialized
    with zeros, as in the Vision Transformers of this package.
    """
    size = image_size or (224, 224)  # of most published weights
    preprocessing = dataclasses.replace(
        application_preprocessing(name, size), class_names=labels, thresholds=thresholds
    )
    trained = weights if isinstance(weights, keras.Model) else None
    with _downloading():
        network = getattr(keras.applications, name)(
            include_top=False,
            weights=None if trained else weights,
            input_shape=(*size, 3),
            pooling="avg",
        )
    if trained:
        networks = [layer for layer in trained.layers if layer.name == network.name]
        if not networks:
            raise ValueError(
                f"`weights` must belong to {name}. Received: a model with the layers "
                f"{arguments.shortlist([layer.name for layer in trained.layers])}"
            )
        network.set_weights(networks[0].get_weights())
    if dtype != "float32":
        network = with_dtype(network, dtype)
    policy = keras.dtype_policies.get(dtype)
    images = keras.Input((*size, 3), name="images")
    z = ModelMetadata(preprocessing, dtype=policy, name="image_contract")(images)
    logits = keras.layers.Dense(
        len(labels), kernel_initializer="zeros", dtype=policy.variable_dtype, name="head"
    )(network(z))
    return keras.Model(images, logits, name=name.lower())


_MANUALLY = (
    "Download the file manually, and store it in the folder models of KERAS_HOME (~/.keras)."
)


class _Offline(urllib.request.BaseHandler):
    def default_open(self, request: urllib.request.Request) -> None:
        raise ConnectionError(
            f"KERAS_VIT_OFFLINE forbids the download of {request.full_url}. {_MANUALLY}"
        )


@contextlib.contextmanager
def _downloading() -> Iterator[None]:
    """Forbids downloads by Keras while `KERAS_VIT_OFFLINE` is set."""
    before = urllib.request._opener  # type: ignore[attr-defined]
    if is_set("KERAS_VIT_OFFLINE"):
        urllib.request.install_opener(urllib.request.build_opener(_Offline))
    try:
        yield
    except Exception as error:  # raised by Keras without a type of its own
        if "URL fetch failure" not in str(error):
            raise
        raise ConnectionError(f"{error}. {_MANUALLY}") from error
    finally:
        urllib.request.install_opener(before)


def application_preprocessing(name: str, size: tuple[int, int]) -> Preprocessing:
    """Infers the preprocessing of a `keras.applications` network from its `preprocess_input`."""
    arguments.one_of("name", name, application_names())
    scale = sys.modules[getattr(keras.applications, name).__module__].preprocess_input
    probes = np.concatenate([np.zeros((1, 3)), 255 * np.eye(3)]).astype("float32")
    values = np.asarray(scale(probes.reshape(4, 1, 1, 3).copy())).reshape(4, 3).astype("float64")
    slopes = (values[1:] - values[0]) / 255  # (channel of the image, channel of the result)
    is_bgr = abs(slopes[0, 2]) > abs(slopes[0, 0])
    if is_bgr:
        slopes = slopes[::-1]
    factor = np.diag(slopes)
    if not np.allclose(slopes, np.diag(factor), atol=1e-6) or factor.min() <= 0:
        raise ValueError(
            "`name` must be a model whose preprocessing scales each channel separately. "
            f"Received: name={name!r}"
        )
    std = np.round(1 / factor, 4)  # in gray levels; rounded, as the function computes in float32
    mean = np.round(-values[0] * std, 4) + 0.0  # turns -0.0 into 0.0
    return Preprocessing(
        size=size,
        crop_fraction=1.0,
        mean=tuple(mean / 255),
        std=tuple(std / 255),
        channels="bgr" if is_bgr else "rgb",
    )
