from __future__ import annotations

from pathlib import Path

import PIL.Image
import pytest
import tensorflow as tf

from keras_vit import load_predictor
from tests.cli.conftest import Call

pytestmark = pytest.mark.tensorflow


def test_bundle_answers_in_the_size_of_the_image(
    run: Path, shapes: Path, call: Call, tmp_path: Path
) -> None:
    code, _, message = call("export", run, "--to", tmp_path, "--tflite", "float16")
    assert code == 0, message
    served = tf.saved_model.load(next(tmp_path.rglob("saved_model.pb")).parent)
    files = [(shapes / "images" / f"{index}.png").read_bytes() for index in range(2)]
    answer = served.signatures["confidence"](tf.constant([*files, b"no image"]))
    assert answer["ok"].numpy().tolist() == [True, True, False]
    predictor = load_predictor(run)
    sizes = [PIL.Image.open(shapes / "images" / f"{index}.png").size for index in range(2)]
    found = list(zip(answer["width"].numpy(), answer["height"].numpy(), strict=True))
    assert found == [*sizes, (0, 0)]
    for index, (width, height) in enumerate(sizes):
        expected = predictor.predict([files[index]])[0].class_map(height, width)
        classes = answer["class_map"][index].numpy()
        assert (classes[height:] == 255).all()
        assert (classes[:, width:] == 255).all()
        assert (classes[:height, :width] == expected).mean() > 0.999
        png = tf.io.decode_png(answer["png"][index]).numpy()
        assert png.shape == (height, width, 3)
        assert answer["confidence"][index].numpy().max() > 127
