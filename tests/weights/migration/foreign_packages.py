"""Running the packages that the files come from.

Their models get random weights, are saved there and loaded here, and both answer for the same
images. To run all of it, in an environment of its own (vit-keras needs Python 3.11):

    pip install -e . pytest pytest-timeout keras-hub vit-keras==0.2.0 tf-keras "transformers<5"
    pip install --no-deps --target OLD vit-keras==0.1.2 keras-vit==1.0.1 \
        keras-cv-attention-models==1.4.3
    KERAS_VIT_OLD_PACKAGES=OLD python -m pytest -m slow tests/weights/migration
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.models import build
from keras_vit.weights import load_weights, read_checkpoint
from keras_vit.weights.infer_config import config_of
from tests.helpers import assert_close, normal, numpy

# Float32 sums in another order; logits are of order 1.
TOLERANCE = 2e-5
TOLERANCE_OF_REAL_SIZES = 1e-4

# Keras 2 for packages of its time, in a process of its own. `randomised` gives a model weights
# none of which is trivial.
_PREAMBLE = """
import os, sys, types
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np, tensorflow as tf, tf_keras
images = tf.constant(np.load("images.npy"))
def randomised(model):
    rng = np.random.default_rng(5)
    noise = [rng.normal(scale=0.3, size=w.shape) for w in model.get_weights()]
    model.set_weights([w + n for w, n in zip(model.get_weights(), noise)])
    return model
"""


def run_keras_2(code: str, folder: Path, images: np.ndarray) -> np.ndarray:
    """Runs code that defines `logits` of `images`, in the folder, and returns them."""
    if importlib.util.find_spec("tf_keras") is None:
        pytest.skip("needs tf-keras")
    np.save(folder / "images.npy", images)
    script = _PREAMBLE + textwrap.dedent(code) + '\nnp.save("logits.npy", np.asarray(logits))\n'
    old = os.environ.get("KERAS_VIT_OLD_PACKAGES", "")
    environment = {**os.environ, "PYTHONPATH": str(Path(old).absolute()) if old else ""}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return np.load(folder / "logits.npy")


def need_old_package(name: str) -> None:
    """Skips the test where the folder of old packages lacks this one."""
    folder = os.environ.get("KERAS_VIT_OLD_PACKAGES")
    if not folder:
        pytest.skip("KERAS_VIT_OLD_PACKAGES names no folder of old packages")
    if not Path(folder, name).is_dir():
        pytest.skip(f"needs {name} in {folder}")


def rebuilt(path: Path, **known: Any) -> keras.Model:
    """The model that a file or folder tells of, with its weights."""
    checkpoint = read_checkpoint(path)
    model = build(config_of(checkpoint, **known))
    assert load_weights(model, checkpoint, report=True).notes() == []
    return model


def assert_same_logits(
    model: keras.Model, images: np.ndarray, logits: Any, tolerance: float = TOLERANCE
) -> None:
    found = numpy(model(images))
    print(f"largest difference {np.abs(found - numpy(logits)).max():.2g}")  # with `-rP`
    assert np.abs(numpy(logits)).max() > 0.1
    assert_close(found, logits, tolerance)


def images_of(height: int, width: int) -> np.ndarray:
    return normal(2, height, width, 3)
