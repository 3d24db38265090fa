"""Outputs of other libraries' own code for tiny models with random weights (`make_cases.py`)."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import models
from keras_vit.weights import load_weights, read_checkpoint, save_weights
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.containers.safetensors import read_safetensors, write_safetensors
from keras_vit.weights.infer_config import config_of
from tests.helpers import JIT, numpy

CASES = sorted((Path(__file__).parent / "cases").glob("*.npz"))
TOLERANCE = 2e-5  # largest difference seen: 8e-7
READ_ONLY = [case for case in CASES if case.stem == "openclip"]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)


def read(case: Path, folder: Path) -> tuple[dict[str, np.ndarray], Checkpoint]:
    """Writes the files of the library, and reads them."""
    with np.load(case) as stored:
        content = dict(stored)
    tensors = {k.removeprefix("tensor/"): v for k, v in content.items() if k.startswith("tensor/")}
    prefix = "open_clip_" if case in READ_ONLY else ""
    write_safetensors(folder / f"{prefix}model.safetensors", tensors, {"format": "pt"})
    (folder / f"{prefix}config.json").write_text(str(content["config"]))
    return content, read_checkpoint(folder)


def built(checkpoint: Checkpoint, size: tuple[int, int] | None = None) -> keras.Model:
    known = {"image_size": size} if size else {}
    model = models.build(config_of(checkpoint, **known))
    load_weights(model, checkpoint, report=True)
    return model


@pytest.mark.filterwarnings("ignore")
@each_case
def test_outputs_are_those_of_the_library(case: Path, tmp_path: Path) -> None:
    content, checkpoint = read(case, tmp_path)
    for index in range(sum(name.startswith("images") for name in content)):
        images, expected = content[f"images{index}"], content[f"outputs{index}"]
        found = numpy(built(checkpoint, images.shape[1:3])(images))
        assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case not in READ_ONLY], ids=lambda path: path.stem
)
def test_the_file_is_written_back_bit_for_bit(case: Path, tmp_path: Path) -> None:
    content, checkpoint = read(case, tmp_path)
    model = built(checkpoint, content["images0"].shape[1:3])
    format = {"hf": "huggingface"}.get(library := case.stem.split("_")[0], library)
    target = tmp_path / ("back.safetensors" if format == "timm" else "back")
    save_weights(model, target, format)
    again = read_safetensors(target if format == "timm" else target / "model.safetensors")
    tensors = read_safetensors(tmp_path / "model.safetensors")
    assert again.keys() == tensors.keys()
    assert all(np.array_equal(again[name], tensors[name]) for name in tensors)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@each_case
def test_a_step_trains_every_variable_and_a_copy_is_exact(case: Path, tmp_path: Path) -> None:
    content, checkpoint = read(case, tmp_path)
    model = built(checkpoint, content["images0"].shape[1:3])
    before = [numpy(variable) for variable in model.trainable_variables]
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=JIT)
    model.fit(content["images0"], np.ones_like(content["outputs0"]), verbose=0)
    pairs = zip(model.trainable_variables, before, strict=True)
    still = [variable.path for variable, old in pairs if (numpy(variable) == old).all()]
    assert not still
    model.save(tmp_path / "m.keras")
    copy = keras.models.load_model(tmp_path / "m.keras")
    images = content["images0"]
    assert (copy.predict(images, verbose=0) == model.predict(images, verbose=0)).all()
