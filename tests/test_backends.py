"""Models and weights on the JAX backend, in a process where TensorFlow cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="needs the extra jax")

BLOCK_TENSORFLOW = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tensorflow", "tensorflow_datasets", "tensorboard"}:
            raise ModuleNotFoundError(f"{name} is blocked by this test", name=name)

sys.meta_path.insert(0, Blocker())
"""

IMPORTS = """
import keras
import keras_vit
import keras_vit.evaluation, keras_vit.layers, keras_vit.models, keras_vit.visualization
import keras_vit.preprocessing, keras_vit.weights, keras_vit.zoo
"""

ROUND_TRIP = """
import keras, numpy as np
import keras_vit

images = np.random.default_rng(7).normal(size=(2, 20, 28, 3)).astype("float32")

def build():
    return keras_vit.ViTMicro4(weights=None, input_shape=(20, 28, 3), classes=11)

def predict(model):
    return keras.ops.convert_to_numpy(model(images))

model = build()
noise = np.random.default_rng(5)  # a new head is zero, and would hide everything below it
model.set_weights([w + noise.normal(scale=0.1, size=w.shape) for w in model.get_weights()])
expected = predict(model)
np.testing.assert_allclose(expected.sum(-1), 1, rtol=1e-5)

model.save("model.keras")
np.testing.assert_array_equal(predict(keras.saving.load_model("model.keras")), expected)

model.save_weights("model.weights.h5")
for path in ("model.weights.h5", "model.keras"):
    other = build()
    assert abs(predict(other) - expected).max() > 1e-4
    keras_vit.load_weights(other, path)
    np.testing.assert_array_equal(predict(other), expected)
"""

CHECK = """
assert keras.backend.backend() == "jax"
assert "tensorflow" not in sys.modules
"""


def run_without_tensorflow(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCK_TENSORFLOW + code],
        env={**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(Path(__file__).parents[1])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_packages_are_imported_without_tensorflow(tmp_path: Path) -> None:
    done = run_without_tensorflow(IMPORTS + CHECK, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_model_and_weights_work_without_tensorflow(tmp_path: Path) -> None:
    done = run_without_tensorflow(ROUND_TRIP + CHECK, tmp_path)
    assert done.returncode == 0, done.stderr


def test_block_is_real(tmp_path: Path) -> None:
    done = run_without_tensorflow("import tensorflow", tmp_path)
    assert done.returncode == 1
    assert "tensorflow is blocked by this test" in done.stderr
