from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit.data.decode_and_resize import decode, resize_and_crop
from keras_vit.export import runtime_worker, tflite
from tests.export.conftest import PREPROCESSING

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def three_at_once(model: keras.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("three") / "model.tflite"
    return tflite.write(model, path, batch_size=3)


@pytest.mark.parametrize("threads", [1, 2])
def test_tflite_answers_for_up_to_as_many_images_as_it_takes(
    three_at_once: Path, images: list[bytes], expected: np.ndarray, threads: int
) -> None:
    run, at_once = runtime_worker.tflite(str(three_at_once), threads)
    assert at_once == 3
    fitted = np.stack([resize_and_crop(decode(i, PREPROCESSING), PREPROCESSING) for i in images])
    found = [run(fitted[start : start + 3]) for start in range(0, len(fitted), 3)]
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-5)


def test_importing_it_leaves_keras_alone() -> None:
    """Only the process that it is started as has to do without."""
    import keras as again

    assert again is keras
    assert runtime_worker.ABSENT == ("keras", "tf_keras", "keras_vit")
