"""What the tests against PyTorch's libraries share.

They want PyTorch's CPU build: Triton, which the other one brings, crashes beside TensorFlow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.models import build
from tests.helpers import normal, randomise, tiny_config

torch = pytest.importorskip("torch", reason="needs PyTorch")
torch.set_num_threads(2)

NPZ = "Ti_16-augreg-i21k-imagenet2012-res_224.npz"
TIMM = "vit_tiny_patch16_224.augreg_in21k_ft_in1k.safetensors"

# Largest difference of logits of up to about 10; measured: 4e-06, of the published Ti/16 1e-05.
TOLERANCE = 2e-5


def small_model(**changes: Any) -> keras.Model:
    """A model with random weights that gives logits; every size is different."""
    fields: dict[str, Any] = {"image_size": (15, 15), "patch_size": 3, "gelu": "exact"}
    return randomise(build(tiny_config(**fields | changes | {"classifier_activation": None})))


def pixels(*shape: int) -> np.ndarray:
    return normal(*shape, seed=19) / 2


def call(model: Any, images: np.ndarray) -> Any:
    """What a PyTorch model makes of images (B, H, W, C)."""
    with torch.no_grad():
        return model.eval()(torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))))


def load_strictly(model: Any, path: Path) -> Any:
    """Loads a file as the library does; nothing may be missing or left over."""
    from safetensors.torch import load_file

    found = model.load_state_dict(load_file(path), strict=True)
    assert (found.missing_keys, found.unexpected_keys) == ([], [])
    return model


def difference(theirs: Any, ours: Any, what: str) -> float:
    """The largest difference, printed for whoever runs the test with `-s`."""
    theirs = theirs.detach().numpy()
    ours = keras.ops.convert_to_numpy(ours)
    assert theirs.shape == ours.shape
    found = float(np.abs(theirs.astype("float64") - ours.astype("float64")).max())
    print(f"{what}: {found:.2g}")
    return found
