from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from benchmarks.session import signatures_of
from keras_vit import export, load_predictor, models, zoo
from keras_vit.tf_serving.batching import MAX_BATCH_SIZE
from keras_vit.training import Run
from tests.export.test_hostile_images import ROOT, mutated
from tests.tf_serving.fake_serving import serving

pytestmark = pytest.mark.tensorflow

CLIENT = """
import json, sys
import numpy as np
from benchmarks.session import Session
folder, work, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
session = Session(folder, json.load(open(f"{work}/signatures.json")))
images = [open(f"{work}/{index}", "rb").read() for index in range(count)]
expected = session.call("serving_default", image_bytes=images[:1])["class_map"][0]
height, width = expected.shape
read = 0
for start in range(1, count, 8):
    answer = session.call("serving_default", image_bytes=[*images[start : start + 8], images[0]])
    assert (answer["class_map"][-1, :height, :width] == expected).all(), start
    assert all(bool(text) != bool(ok) for text, ok in zip(answer["message"], answer["ok"]))
    assert not answer["height"][~answer["ok"]].any()
    read += int(answer["ok"][:-1].sum())
assert not {"keras", "keras_vit", "tensorflow"} & set(sys.modules)
np.save(f"{work}/expected.npy", expected)
print(read)
"""


@pytest.fixture(scope="module")
def bundle(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export.saved_model.write(Run(run).model(), tmp_path_factory.mktemp("served") / "1")


def test_saved_model_is_loaded_without_trust(shapes: Path, tmp_path: Path) -> None:
    backbone = zoo.ViTMicro4(weights=None, include_top=False, input_shape=(16, 16, 3))
    model = models.Segmenter(backbone, classes=2)
    reads = dataclasses.replace(
        models.preprocessing_of(model), task="segmentation", class_names=("ground", "shape")
    )
    model = models.with_preprocessing(model, reads)
    folder = export.saved_model.write(model, tmp_path / "1")
    files = [(shapes / "images" / "0.png").read_bytes(), b"no image"]
    found, refused = load_predictor(folder).predict(files)
    expected = load_predictor(model).predict(files)[0]
    assert not refused.ok
    assert (found.class_map(40, 50) == expected.class_map(40, 50)).mean() > 0.999


@pytest.mark.slow
def test_bundle_answers_in_the_size_of_the_image(run: Path, bundle: Path, shapes: Path) -> None:
    served = tf.saved_model.load(bundle)
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
        png = tf.io.decode_png(answer["png_bytes"][index]).numpy()
        assert png.shape == (height, width, 3)
        assert answer["confidence"][index].numpy().max() > 127


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["grpc_address", "rest_address"])
def test_client_joins_maps_of_several_requests(
    transport: str, run: Path, bundle: Path, shapes: Path
) -> None:
    pytest.importorskip("tensorflow_serving", reason="needs the extra serving")
    files = [path.read_bytes() for path in sorted((shapes / "images").iterdir())]
    assert len(files) > MAX_BATCH_SIZE
    with serving(bundle) as fake, export.Client(getattr(fake, transport)) as client:
        answer = client.call("serving_default", image_bytes=files)
    predictions = load_predictor(run).predict(files)
    for index, (prediction, file) in enumerate(zip(predictions, files, strict=True)):
        width, height = PIL.Image.open(io.BytesIO(file)).size
        classes = answer["class_map"][index]
        assert (classes[:height, :width] == prediction.class_map(height, width)).mean() > 0.999
        assert (classes[height:] == 255).all()
        assert PIL.Image.open(io.BytesIO(answer["png_bytes"][index])).size == (width, height)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs the shared libraries of Linux")
def test_the_c_api_answers_thousand_damaged_images(
    run: Path, bundle: Path, shapes: Path, tmp_path: Path
) -> None:
    generator = np.random.default_rng(17)
    seeds = [path.read_bytes() for path in sorted((shapes / "images").iterdir())]
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
    expected = np.load(tmp_path / "expected.npy")
    found = load_predictor(run).predict([seeds[0]])[0].class_map(*expected.shape)
    assert (found == expected).mean() > 0.999
