from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from keras_vit import data
from keras_vit.runs.config import RunConfig
from keras_vit.tasks.run_data import Run

pytestmark = pytest.mark.tensorflow


def test_examples_are_those_of_a_split(tmp_path: Path) -> None:
    run, digits = Run(tmp_path), data.load("digits")
    run.write_config(RunConfig("digits", "ViTMicro4"), {})
    data.write_split(run.split, digits, train=[5, 1], validation=[2])
    assert run.indices("train").tolist() == [5, 1]
    assert run.examples("train").names == (digits.names[5], digits.names[1])
    assert run.examples().names == (digits.names[2],)
    assert len(run.examples("test")) == 0
    assert run.all_examples.names == digits.names


@pytest.mark.slow
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


def test_unreadable_images_of_a_split_without_digests_are_named_or_left_out(
    tmp_path: Path,
) -> None:
    run, digits = Run(tmp_path), data.load("digits").subset(range(30))  # 0, 1, ... 9, three times
    data.write_split(run.split, digits, train=[0, 1], validation=[13, 3, 23])
    encoded = tuple(b"x" if i == 3 else digits.read(i) for i in range(30))
    run.all_examples = dataclasses.replace(digits, encoded=encoded)
    run.write_config(RunConfig("digits", "ViTMicro4"), {})
    with pytest.raises(ValueError, match=r"(?s)be readable.*1 of 3 images cannot.*digit_0003\.png"):
        run.examples()
    assert run.audited_indices("validation", "skip")[0].tolist() == [13, 23]
    run.write_config(RunConfig("digits", "ViTMicro4", on_bad_image="skip"), {})
    assert run.indices().tolist() == [13, 23]
