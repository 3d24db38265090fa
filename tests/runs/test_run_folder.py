from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from keras_vit import data, models
from keras_vit.runs.config import RunConfig
from keras_vit.runs.run_folder import Run

pytestmark = pytest.mark.tensorflow


def test_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"`run` must be a run folder written by `keras-vit train --out`.*no config.yaml",
    ):
        Run(tmp_path).read_config()


def test_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("data: a\nmodel: b\nmethod: mae\n")
    with pytest.raises(
        ValueError,
        match=r"`run` must be a run folder written by `keras-vit train --out`.*'method' is not",
    ):
        Run(tmp_path).read_config()


def test_examples_are_those_of_a_split(tmp_path: Path) -> None:
    run, digits = Run(tmp_path), data.load("digits")
    run.write_config(RunConfig("digits", "ViTMicro4"), {})
    data.write_split(run.split, digits, train=[5, 1], validation=[2])
    assert run.indices("train").tolist() == [5, 1]
    assert run.examples("train").names == (digits.names[5], digits.names[1])
    assert run.examples().names == (digits.names[2],)
    assert len(run.examples("test")) == 0
    assert run.all_examples.names == digits.names


@pytest.mark.parametrize("content", ["a training image", "damaged"])
def test_a_replaced_image_is_not_held_out(tmp_path: Path, content: str) -> None:
    digits = data.load("digits").subset(range(5))
    for name, label in zip(digits.names, digits.targets % 2, strict=True):
        path = tmp_path / "images" / "ab"[label] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(digits.read(digits.names.index(name)))
    run, images = Run(tmp_path / "run"), data.load(tmp_path / "images")
    run.path.mkdir()
    run.write_config(RunConfig(str(tmp_path / "images"), "ViTMicro4"), {})
    digests = data.audit(images, progress=False).digests
    data.write_split(run.split, images, [0, 2], [1], digests)
    assert run.examples().names == (images.names[1],)
    trained = images.read(0)
    Path(images.paths[1]).write_bytes(trained if content == "a training image" else b"damaged")
    with pytest.raises(ValueError, match=r"must match those listed in .*Received: 1 replaced: \["):
        run.examples()
    assert len(run.examples("train")) == 2


def test_model_is_that_of_the_last_epoch(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(ValueError, match=r"no config\.yaml"):
        run.model()
    run.write_config(RunConfig("digits", "ViTMicro4"), {})
    with pytest.raises(
        ValueError, match=r"must have completed at least one epoch..*no last\.keras yet"
    ):
        run.model()
    model = models.build(models.size("Micro/4").replace(image_size=(8, 8), num_layers=1))
    model.save(run.last)
    for found, expected in zip(run.model().weights, model.weights, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_config_without_resolved_values_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for text in ("{data: digits, model: ViTMicro4}", "{resolved: 5}"):
        run.config.write_text(text)
        with pytest.raises(ValueError, match=r"config\.yaml has no `resolved` values"):
            run.resolved()
