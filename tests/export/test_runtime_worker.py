from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.data.decode_and_resize import decode, resize_and_crop
from keras_vit.export import load_predictor, runtime_worker, tflite
from tests.export.conftest import PREPROCESSING

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("threads", [1, 2])
def test_tflite_answers_for_up_to_as_many_images_as_it_takes(
    model: keras.Model, images: list[bytes], tmp_path: Path, threads: int
) -> None:
    path = tflite.write(model, tmp_path / "model.tflite", batch_size=3)
    run, at_once = runtime_worker.tflite(str(path), threads)
    assert at_once == 3
    fitted = np.stack([resize_and_crop(decode(i, PREPROCESSING), PREPROCESSING) for i in images])
    found = [run(fitted[start : start + 3]) for start in range(0, len(fitted), 3)]
    expected = load_predictor(model).probabilities(images)
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-5)


def test_importing_it_leaves_keras_alone() -> None:
    """Only the process that it is started as has to do without."""
    import keras as again

    assert again is keras
    assert runtime_worker.ABSENT == ("keras", "tf_keras", "keras_vit")
