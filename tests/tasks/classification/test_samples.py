from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit import data
from keras_vit.training import Run
from tests.data.test_image_metadata import MARK, marked

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("label", "name", "sample"),
    [
        ("a", "../../x.jpg", "a_.._.._x.jpg"),
        ("a", "/abs/x.jpg", "a__abs_x.jpg"),
        ("..", "../x.jpg", ".._x.jpg"),
        (".", "./..", "._.."),
        ("a", "..", "a_.."),
        ("a/..", "caf\udce9\n.png", "a_.._caf__.png"),
        ("a", f"{'x' * 300}.jpg", f"a_{'x' * 194}.jpg"),
        ("ä", f"{'ä' * 150}.png", f"ä_{'ä' * 96}.png"),
        ("." * 300, "x.jpg", f"{'.' * 196}.jpg"),
        ("a", f"x.{'y' * 300}", f"a_x.{'y' * 19}"),
    ],
)
def test_samples_stay_in_their_folder(tmp_path: Path, label: str, name: str, sample: str) -> None:
    image = tf.io.encode_jpeg(np.zeros((5, 7, 3), np.uint8)).numpy()
    examples = data.Examples(
        names=(name,), targets=np.zeros(1), class_names=(label,), source="", encoded=(image,)
    )
    run = Run(tmp_path / "run")
    module = importlib.import_module(
        "keras_vit.tasks.classification.samples"
    )  # the attribute is the function
    module.write_samples(run, examples)
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [
        Path("run", "samples", sample)
    ]
    assert len(sample.encode()) <= 200


def test_samples_have_no_metadata(tmp_path: Path) -> None:
    encoded = tuple(marked(form) for form in ("JPEG", "GIF"))
    examples = data.Examples(
        names=("x.jpg", "y.gif"), targets=[0, 1], class_names=("a", "b"), source="", encoded=encoded
    )
    run = Run(tmp_path / "run")
    importlib.import_module("keras_vit.tasks.classification.samples").write_samples(run, examples)
    samples = {path.name: path.read_bytes() for path in run.samples.iterdir()}
    assert samples.keys() == {"a_x.jpg", "b_y.gif.png"}
    assert not any(MARK in content for content in samples.values())
