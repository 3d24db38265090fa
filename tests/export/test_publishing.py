from __future__ import annotations

from pathlib import Path

import keras
import pytest

from keras_vit import export
from keras_vit.export import publish, saved_model

pytestmark = pytest.mark.tensorflow


def test_publish_writes_what_agrees(
    model: keras.Model, images: list[bytes], tmp_path: Path
) -> None:
    (tmp_path / "serving" / "4").mkdir(parents=True)
    comparisons = publish(
        model, images, directory=tmp_path / "serving", file=tmp_path / "model.tflite"
    )
    assert [c.path for c in comparisons] == [
        str(tmp_path / "serving" / "5"),
        str(tmp_path / "model.tflite"),
    ]
    assert all(c.ok for c in comparisons)
    for comparison in comparisons:
        assert export.load_predictor(comparison.path).predict(images[:1]).shape == (1, 7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.tflite", "serving"]


def test_publish_leaves_nothing_that_disagrees(
    model: keras.Model, images: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export.SavedModelPredictor, "tolerance", -1.0)
    with pytest.raises(export.VerificationError, match="differ from those of the model") as caught:
        publish(model, images, directory=tmp_path / "serving")
    assert str(caught.value).startswith(f"{tmp_path / 'serving' / '1'}: ")
    assert str(caught.value).endswith("Nothing was written.")
    assert not list(tmp_path.iterdir())


def test_publish_refuses_to_export_nothing(model: keras.Model, images: list[bytes]) -> None:
    with pytest.raises(ValueError, match="`directory` or `file` must be given"):
        publish(model, images)


def test_next_version_follows_the_highest(tmp_path: Path) -> None:
    (tmp_path / "10").mkdir()
    (tmp_path / "9").mkdir()
    assert saved_model.next_version(tmp_path) == tmp_path / "11"
