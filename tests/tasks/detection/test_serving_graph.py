from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from benchmarks.session import signatures_of
from keras_vit import export, load_predictor, models, zoo
from keras_vit.tf_serving.batching import MAX_BATCH_SIZE
from tests.cli.commands import Call
from tests.export.test_hostile_images import ROOT, mutated
from tests.helpers import randomise
from tests.tf_serving.fake_serving import serving

pytestmark = pytest.mark.tensorflow

NAMES = ("blue", "red")
CLIENT = """
import json, sys
import numpy as np
from benchmarks.session import Session
folder, work, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
session = Session(folder, json.load(open(f"{work}/signatures.json")))
images = [open(f"{work}/{index}", "rb").read() for index in range(count)]
expected = session.call("serving_default", image_bytes=images[:1])
read = 0
for start in range(1, count, 8):
    answer = session.call("serving_default", image_bytes=[*images[start : start + 8], images[0]])
    assert np.abs(answer["boxes"][-1] - expected["boxes"][0]).max() < 1e-2, start
    assert all(bool(text) != bool(ok) for text, ok in zip(answer["message"], answer["ok"]))
    assert not answer["count"][~answer["ok"]].any()
    read += int(answer["ok"][:-1].sum())
assert not {"keras", "keras_vit", "tensorflow"} & set(sys.modules)
print(read)
"""


def detector() -> keras.Model:
    backbone = zoo.ViTMicro4(weights=None, include_top=False, input_shape=(32, 64, 3))
    model = randomise(models.Detector(backbone, classes=2))
    reads = dataclasses.replace(
        models.preprocessing_of(model), task="detection", class_names=NAMES, resize="pad"
    )
    return models.with_preprocessing(model, reads)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export.saved_model.write(detector(), tmp_path_factory.mktemp("served") / "1")


def test_boxes_are_in_the_pixels_of_the_image(bundle: Path, rectangles: Path) -> None:
    files = [str(rectangles / "images" / f"{index}.png") for index in range(3)]
    served = tf.saved_model.load(bundle).signatures["serving_default"]
    images = [*(Path(file).read_bytes() for file in files), b"no image"]
    answer = {name: value.numpy() for name, value in served(tf.constant(images)).items()}
    assert answer["ok"].tolist() == [True, True, True, False]
    assert answer["count"][3] == 0
    assert answer["boxes"].shape[2:] == (4,)
    for index, found in enumerate(load_predictor(bundle).predict(files)):
        width, height = PIL.Image.open(files[index]).size
        objects = found.objects((height, width), 0)
        number = len(objects)
        assert 5 < number < answer["boxes"].shape[1]
        # Measured: 1e-5 pixels, 1e-7.
        np.testing.assert_allclose(answer["boxes"][index, :number], objects[:, :4], atol=1e-3)
        np.testing.assert_allclose(answer["scores"][index, :number], objects[:, 4], atol=1e-5)
        assert not answer["scores"][index, number:].any()
        names = [NAMES[int(label)] for label in objects[:, 5]]
        assert [name.decode() for name in answer["class_names"][index, :number]] == names
        assert answer["count"][index] == (objects[:, 4] >= 0.3).sum()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["grpc_address", "rest_address"])
def test_client_returns_the_objects(transport: str, bundle: Path, rectangles: Path) -> None:
    pytest.importorskip("tensorflow_serving", reason="needs the extra serving")
    images = [path.read_bytes() for path in sorted((rectangles / "images").iterdir())]
    assert len(images) > MAX_BATCH_SIZE
    with serving(bundle) as fake, export.Client(getattr(fake, transport)) as client:
        answers = client.predict([*images, b"no image"])
    assert not answers[-1].ok
    for one, other in zip(answers, load_predictor(bundle).predict(images), strict=False):
        assert one.text() == other.text()
        sides = (48, 64)
        assert one.objects(sides).shape == other.objects(sides).shape


@pytest.mark.slow
def test_table_of_served_objects_is_refused(
    bundle: Path, rectangles: Path, call: Call, tmp_path: Path
) -> None:
    pytest.importorskip("tensorflow_serving", reason="needs the extra serving")
    image = rectangles / "images" / "0.png"
    with serving(bundle) as fake:
        server = ("--server", fake.grpc_address)
        assert call("predict", *server, image)[0] == 0
        code, _, message = call("predict", *server, image, "--to", tmp_path / "found.csv")
    assert code == 1
    assert "must be for a classifier" in message
    assert not (tmp_path / "found.csv").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs the shared libraries of Linux")
def test_the_c_api_answers_thousand_damaged_images(
    bundle: Path, rectangles: Path, tmp_path: Path
) -> None:
    generator = np.random.default_rng(17)
    seeds = [path.read_bytes() for path in sorted((rectangles / "images").iterdir())]
    for seed in seeds[:10]:
        PIL.Image.open(io.BytesIO(seed)).save(stream := io.BytesIO(), "JPEG")
        seeds.append(stream.getvalue())
    sent = [seeds[0], *(mutated(seeds[i % len(seeds)], generator) for i in range(1000))]
    for index, image in enumerate(sent):
        (tmp_path / str(index)).write_bytes(image)
    (tmp_path / "signatures.json").write_text(json.dumps(signatures_of(bundle)))
    arguments = [sys.executable, "-c", CLIENT, bundle, tmp_path, str(len(sent))]
    result = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert result.returncode == 0, result.stderr[-3000:]
    assert 100 < int(result.stdout.splitlines()[-1]) < 980
