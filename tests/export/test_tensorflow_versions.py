"""The SavedModel in other versions of TensorFlow, each in an environment of its own, without Keras.

Each environment is a download of about 600 MB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.export import load_predictor, saved_model
from tests.data.test_image_reading import GOOD, bad

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(1800)]

DAMAGED = "half jpeg"
IMAGES = {**GOOD, "text": b"text", DAMAGED: bad(DAMAGED)}
# What is answered as if it were damaged: TensorFlow 2.19 does not decode WebP.
NOT_DECODED = {
    "2.19.1": {"webp 0", "webp 1", "webp 2", "alpha webp"},
    "2.20.0": set(),
    "2.21.0": set(),
}

# TensorFlow 2.19 has no wheels for Python 3.13.
PYTHONS = (sys.executable, "python3.12", "python3.11")
# Reads the input of each signature from the file of its name, and writes the outputs beside it.
CLIENT = """
import importlib.util, sys
import tensorflow as tf
folder, work, version = sys.argv[1:]
assert tf.__version__ == version
assert not any(map(importlib.util.find_spec, ("keras", "tf_keras", "keras_vit")))
for name, run in tf.saved_model.load(folder).signatures.items():
    ((key, spec),) = run.structured_input_signature[1].items()
    value = tf.io.parse_tensor(tf.io.read_file(f"{work}/{name}"), spec.dtype)
    for output, answer in run(**{key: value}).items():
        tf.io.write_file(f"{work}/{name}.{output}", tf.io.serialize_tensor(answer))
"""


def call(*command: str | Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=1500)


@pytest.fixture(params=NOT_DECODED)
def installed(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """A version of TensorFlow and the Python that has it, removed after the test: 2 GB each."""
    why = []
    for found in filter(None, map(shutil.which, PYTHONS)):
        with tempfile.TemporaryDirectory() as folder:
            python = Path(folder, "bin", "python")
            for command in (
                (found, "-m", "venv", folder),
                (python, "-m", "pip", "install", "-q", f"tensorflow=={request.param}"),
                (python, "-m", "pip", "uninstall", "-q", "-y", "keras"),
            ):
                if (done := call(*command)).returncode:
                    why.append(f"{found}: {(done.stderr or done.stdout).strip()[-200:]}")
                    break
            else:
                yield request.param, python
                return
    pytest.skip(f"TensorFlow {request.param} could not be installed. {' '.join(why)}")


def inputs(signatures: dict[str, tf.types.experimental.GenericFunction]) -> dict[str, tf.Tensor]:
    """What each signature is sent: the files, or the pixels that they have here."""
    images = tf.constant(list(IMAGES.values()))
    pixels = signatures["preprocess"](image_bytes=images)["pixels"]
    other = {
        "classify_pixels": pixels,
        "classify_float": tf.cast(pixels, tf.float32) / 100,
    }
    return {name: other.get(name, images) for name in signatures}


def test_answers_are_those_of_this_version(
    installed: tuple[str, Path], model: keras.Model, tmp_path: Path
) -> None:
    version, python = installed
    folder = saved_model.write(model, tmp_path / "1")
    signatures = tf.saved_model.load(str(folder)).signatures
    expected = {}
    for name, value in inputs(signatures).items():
        (tmp_path / name).write_bytes(tf.io.serialize_tensor(value).numpy())
        (key,) = signatures[name].structured_input_signature[1]
        for output, answer in signatures[name](**{key: value}).items():
            expected[f"{name}.{output}"] = answer.numpy()
    of_keras = load_predictor(model).probabilities(list(GOOD.values()))
    served = expected["serving_default.probabilities"][: len(GOOD)]
    np.testing.assert_allclose(served, of_keras, rtol=0, atol=1e-5)  # measured: 2.4e-7

    done = call(python, "-I", "-c", CLIENT, folder, tmp_path, version)
    assert done.returncode == 0, done.stderr

    decoded = np.array([name not in NOT_DECODED[version] for name in IMAGES])
    damaged = list(IMAGES).index(DAMAGED)
    assert {path.name for path in tmp_path.glob("*.*")} == set(expected)
    for name, value in expected.items():
        found = tf.io.parse_tensor((tmp_path / name).read_bytes(), value.dtype).numpy()
        if not name.startswith(("classify_pixels", "classify_float")):
            value[~decoded] = value[damaged]
        if value.dtype == np.float32:
            # measured: 0.0 with each version
            np.testing.assert_allclose(found, value, rtol=0, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(found, value, err_msg=name)
