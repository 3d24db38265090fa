from __future__ import annotations

from pathlib import Path

import keras
import pytest

from keras_vit.models.in_process_model import InProcessModel


@pytest.mark.parametrize("method", ["save", "save_weights", "load_weights", "export"])
def test_a_file_that_is_there_stays(method: str, tmp_path: Path) -> None:
    inputs = keras.Input((5,))
    model = InProcessModel(inputs=inputs, outputs=keras.layers.Dense(3)(inputs))
    before = tmp_path / "m.weights.h5"
    before.write_text("of the user")
    with pytest.raises(ValueError, match="exported, copied or given weights: take"):
        getattr(model, method)(before)
    assert before.read_text() == "of the user"
