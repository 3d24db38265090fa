from __future__ import annotations

from pathlib import Path

import PIL.Image
import pytest
import tensorflow as tf

from keras_vit import export, load_predictor
from keras_vit.training import Run

pytestmark = pytest.mark.tensorflow


def test_bundle_answers_in_the_size_of_the_image(run: Path, shapes: Path, tmp_path: Path) -> None:
    path = export.saved_model.write(Run(run).model(), tmp_path / "served")
    served = tf.saved_model.load(path)
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
