"""`benchmarks/few_images.py`: images drawn for training, numbers of steps, and stored results."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_vit import files
from keras_vit.data import Examples

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module("few_images")


def test_drawn_images_are_as_many_as_the_column_names(few_images: Any) -> None:
    examples = Examples(
        names=tuple(map(str, range(61))),
        targets=np.arange(61) % 2,
        class_names=("ant", "bee"),
        source="memory",
        encoded=(b"",) * 61,
    )
    parts = few_images.drawn(examples, [7, 3], 0, 11)
    assert np.bincount(examples.targets[parts["train"]]).tolist() == [7, 3]
    assert (len(parts["validation"]), len(parts["test"])) == (20, 11)
    assert len({*parts["train"], *parts["validation"], *parts["test"]}) == 41
    for sizes, test in (([29, 1], 11), ([1, 0], 11), ([1, 1], 41)):
        with pytest.raises(ValueError, match=r"`--images` and .* at least 1, and at most the num"):
            few_images.drawn(examples, sizes, 0, test)


@pytest.mark.parametrize(
    ("recipe", "steps"),
    [
        ("finetune", 100),
        ("finetune,sampling=balanced", 100),
        ("finetune,epochs=3", 0),
        ("lora,epochs=34", 0),
        ("probe_then_finetune", 0),
    ],
)
def test_number_of_steps_is_that_of_the_command(few_images: Any, recipe: str, steps: int) -> None:
    assert few_images.least_steps(recipe) == steps


def test_results_of_another_source_are_refused(few_images: Any, tmp_path: Path) -> None:
    path, source = tmp_path / "few_images.json", {"data": "flowers", "test": 11}
    assert few_images.stored(path, source) == {}
    results = {"finetune 5 images 0": {"accuracy": 0.75}}
    files.write_json(path, {"source": source, "results": results})
    assert few_images.stored(path, source) == results
    with pytest.raises(ValueError, match=r"`--out` must be a new file, or one with results of the"):
        few_images.stored(path, {**source, "data": "cars"})
    files.write_json(path, results)  # as earlier versions wrote them
    with pytest.raises(ValueError, match="with None, not"):
        few_images.stored(path, source)
