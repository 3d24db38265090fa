"""Models and weights that version 17e621a saved answer as they did.

Errors are measured on another backend, which sums in another order: 3e-7 on JAX, 4e-3 in bfloat16.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import Preprocessing, ViTConfig, load_weights, models
from tests.compatibility.conftest import Expected
from tests.compatibility.narrow import FILES
from tests.helpers import assert_close, numpy

NAMES = sorted(path.stem for path in (FILES / "keras").iterdir())
PREPROCESSINGS = json.loads((FILES / "contracts.json").read_text(encoding="utf-8"))
TOLERANCE = 1e-5
# bfloat16 keeps 8 bits: a rounding the other way shows in the third digit.
TOLERANCES = {"mixed_bfloat16": 0.02}

# A user's program: `import keras_vit` alone has to make every layer known to Keras.
LOAD = """
import pathlib, sys
import keras, keras_vit, numpy
with numpy.load("expected.npz") as file:
    pixels = file["pixels"]
found = {}
for path in sorted(pathlib.Path("keras").iterdir()):
    try:
        # The learning rate's schedule belongs to keras_vit.training.
        model = keras.saving.load_model(path, compile=path.stem != "compiled")
        found[path.stem] = keras.ops.convert_to_numpy(model(pixels, training=False))
    except Exception as error:  # the others are to be seen as well
        found[path.stem] = numpy.array(str(error))
if "keras_vit.training" in sys.modules:
    sys.exit("keras_vit.training is imported")
numpy.savez(sys.argv[1], **found)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """What a process that imports only `keras_vit` gets from every .keras file."""
    path = tmp_path_factory.mktemp("answers") / "answers.npz"
    command = [sys.executable, "-c", LOAD, str(path)]
    done = subprocess.run(command, cwd=FILES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_every_kind_of_model_is_there() -> None:
    assert {
        *("softmax", "sigmoid", "distillation", "map", "registers", "sincos_2d", "learned_2d"),
        *("hybrid", "merged", "pruned", "mixed_bfloat16", "users_model", "compiled"),
    } == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_keras_file_answers_as_it_did(name: str, answers: Expected, expected: Expected) -> None:
    assert answers[name].dtype == "float32", answers[name]  # or what went wrong
    tolerance = TOLERANCES.get(name, TOLERANCE)
    assert_close(answers[name], expected[f"keras/{name}"], tolerance, name)


@pytest.mark.parametrize("name", sorted(PREPROCESSINGS))
def test_keras_file_keeps_its_configuration_and_contract(name: str) -> None:
    model = keras.saving.load_model(FILES / "keras" / f"{name}.keras", compile=False)
    stored = PREPROCESSINGS[name]
    assert models.config_of(model) == ViTConfig(**stored["config"])
    preprocessing = Preprocessing.from_config(stored["preprocessing"])
    assert models.preprocessing_of(model) == preprocessing


@pytest.mark.slow
@pytest.mark.tensorflow
def test_compiled_model_goes_on_training(expected: Expected) -> None:
    import keras_vit.training  # noqa: F401 - registers the schedule

    model = keras.saving.load_model(FILES / "keras" / "compiled.keras")
    assert int(model.optimizer.iterations) == 3
    assert model.optimizer._learning_rate.get_config()["warmup_steps"] == 2
    losses = [model.train_on_batch(expected["pixels"], np.array([0, 1])) for _ in range(3)]
    assert_close(np.array(losses), expected["losses"], TOLERANCE)


@pytest.mark.parametrize(
    "path", ["model.weights.h5", "model.npz", "model.safetensors", "huggingface"]
)
def test_weights_answer_as_they_did(path: str, expected: Expected) -> None:
    model = models.build(ViTConfig(**PREPROCESSINGS["softmax"]["config"]))
    report = load_weights(model, FILES / "weights" / path, report=True)
    assert not any(report.of(kind) for kind in ("resized", "reset", "dropped"))
    answer = numpy(model(expected["pixels"], training=False))
    assert_close(answer, expected["keras/softmax"], TOLERANCE)


def test_no_file_holds_a_path_of_the_machine() -> None:
    for path in FILES.rglob("*"):
        if path.is_file():
            assert not re.search(rb"/(tmp|home|root)/", path.read_bytes()), path


def test_files_are_small() -> None:
    assert sum(path.stat().st_size for path in Path(FILES).rglob("*")) < 2_000_000
