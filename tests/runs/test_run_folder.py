from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from keras_vit import models
from keras_vit.runs.config import RunConfig
from keras_vit.runs.history import write_rows
from keras_vit.runs.recipe import Recipe
from keras_vit.runs.run_folder import RunFolder

pytestmark = pytest.mark.tensorflow


def test_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"`run` must be a run folder written by `keras-vit train --out`.*no config.yaml",
    ):
        RunFolder(tmp_path).read_config()


def test_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("data: a\nmodel: b\nmethod: mae\n")
    with pytest.raises(
        ValueError,
        match=r"`run` must be a run folder written by `keras-vit train --out`.*'method' is not",
    ):
        RunFolder(tmp_path).read_config()


def test_model_is_that_of_the_last_epoch(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
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
    run = RunFolder(tmp_path)
    for text in ("{data: digits, model: ViTMicro4}", "{resolved: 5}"):
        run.config.write_text(text)
        with pytest.raises(ValueError, match=r"config\.yaml has no `resolved` values"):
            run.resolved()


@pytest.mark.parametrize(
    ("epochs", "curves", "complete"),
    [
        (2, False, False),  # interrupted; `evaluate` wrote evaluation.json
        (2, True, True),  # stopped early
        (3, False, True),  # its figures were deleted
    ],
)
def test_interrupted_run_with_an_evaluation_is_incomplete(
    epochs: int, curves: bool, complete: bool, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path)
    run.write_config(RunConfig("digits", "ViTMicro4", recipe=Recipe(epochs=3)), {})
    write_rows(run.history, [{"epoch": epoch, "loss": 0.5} for epoch in range(epochs)])
    if curves:
        run.curves.touch()
    with pytest.raises(ValueError, match=r"must be complete\. .*has no evaluation\.json; resume"):
        run.require_complete()
    run.evaluation.touch()
    if complete:
        run.require_complete()
        return
    with pytest.raises(ValueError, match=r"must be complete\. .*has no curves\.png; resume the"):
        run.require_complete()
