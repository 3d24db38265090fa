"""The SavedModel in the C API of TensorFlow, as the server loads it: without Keras, without XLA."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.session import signatures_of
from keras_vit.data.decode_and_resize import prepare, resize_and_crop
from keras_vit.export import load_predictor
from tests.data.test_exif import FORMS, block, photo, with_pil
from tests.data.test_image_reading import GOOD
from tests.export.conftest import PREPROCESSING

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(sys.platform != "linux", reason="needs the shared libraries of Linux"),
]

ROOT = Path(__file__).parents[2]
CLIENT = """
import json, sys
import numpy as np
from benchmarks.session import Session
folder, work = sys.argv[1:]
session = Session(folder, json.load(open(f"{work}/signatures.json")))
images = [open(f"{work}/{i}", "rb").read() for i in range(int(open(f"{work}/count").read()))]
answers = {}
for name in ("serving_default", "classify_bytes", "embed", "explain", "preprocess"):
    answers[name] = session.call(name, image_bytes=images)
answers["classify_pixels"] = session.call("classify_pixels", pixels=answers["preprocess"]["pixels"])
floats = np.load(f"{work}/floats.npy")
answers["classify_float"] = session.call("classify_float", images=floats)
assert not {"keras", "keras_vit", "tensorflow"} & set(sys.modules)
flat = {f"{s}/{k}": v.astype(str) if v.dtype == object else v
        for s, answer in answers.items() for k, v in answer.items()}
np.savez(f"{work}/answers.npz", **flat)
"""


def answers(folder: Path, images: list[bytes], floats: np.ndarray, work: Path) -> dict:
    for index, image in enumerate(images):
        (work / str(index)).write_bytes(image)
    (work / "count").write_text(str(len(images)))
    (work / "signatures.json").write_text(json.dumps(signatures_of(folder)))
    np.save(work / "floats.npy", floats)
    result = subprocess.run(
        [sys.executable, "-c", CLIENT, str(folder), str(work)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    with np.load(work / "answers.npz") as found:
        return dict(found)


@pytest.mark.slow
def test_every_signature_answers_mixed_images_of_which_five_are_bad(
    model: keras.Model, exported: dict[str, Path], images: list[bytes], tmp_path: Path
) -> None:
    good = [*images, *GOOD.values(), *images][:27]
    sent: list[bytes] = list(good)
    bad = {3: b"", 8: b"text", 14: good[0][:90], 15: good[1][:50], 31: b"\xff\xd8\xff" + bytes(99)}
    for place, image in sorted(bad.items()):
        sent.insert(place, image)
    right = [place for place in range(32) if place not in bad]
    floats = np.stack([prepare(image, PREPROCESSING) for image in good])
    found = answers(exported["saved_model"], sent, floats, tmp_path)
    expected = load_predictor(model).probabilities(good)
    for signature in ("serving_default", "classify_bytes", "explain"):
        served = found[f"{signature}/probabilities"]
        # measured: 3e-7
        np.testing.assert_allclose(served[right], expected, atol=1e-5)
        assert not served[list(bad)].any()
    for signature in ("serving_default", "classify_bytes", "embed", "explain", "preprocess"):
        assert np.flatnonzero(~found[f"{signature}/ok"]).tolist() == sorted(bad)
        messages = found[f"{signature}/message"]
        assert all(messages[list(bad)])
        assert not any(messages[right])
    np.testing.assert_allclose(found["classify_pixels/probabilities"][right], expected, atol=1e-5)
    np.testing.assert_allclose(found["classify_float/probabilities"], expected, atol=1e-5)
    assert found["explain/map"].shape == (32, 5, 7)
    assert found["embed/token"].shape == found["embed/mean"].shape == (32, 24)


@pytest.mark.slow
def test_photographs_are_answered_upright(
    model: keras.Model, exported: dict[str, Path], tmp_path: Path
) -> None:
    sent = [photo(form, block(n, o)) for form in FORMS for n in range(9) for o in "<>"]
    upright = [resize_and_crop(with_pil(image), PREPROCESSING).numpy() for image in sent]
    floats = PREPROCESSING.scale(np.stack(upright))
    found = answers(exported["saved_model"], sent, floats, tmp_path)
    np.testing.assert_array_equal(found["preprocess/pixels"], upright)
    expected = model.predict(floats, verbose=0)
    for signature in ("serving_default", "explain"):
        # measured: 3e-7
        np.testing.assert_allclose(found[f"{signature}/probabilities"], expected, atol=1e-5)
    for predictor in (load_predictor(model), load_predictor(exported["saved_model"])):
        np.testing.assert_allclose(predictor.probabilities(sent), expected, atol=1e-5)
    by_tflite = load_predictor(exported["tflite"]).probabilities(sent)
    np.testing.assert_allclose(by_tflite, expected, atol=1e-4)


@pytest.mark.slow
def test_a_model_that_needs_xla_is_refused(tmp_path: Path) -> None:
    """The harness does what the server does: the test above would notice such an operator."""
    module = tf.Module()
    module.run = tf.function(
        lambda images: {"probabilities": images * 2},
        input_signature=[tf.TensorSpec((None, 3), tf.float32, "images")],
        jit_compile=True,
    )
    tf.saved_model.save(module, str(tmp_path / "1"), signatures={"run": module.run})
    (tmp_path / "signatures.json").write_text(json.dumps(signatures_of(tmp_path / "1")))
    script = (
        "import json, sys, numpy as np\nfrom benchmarks.session import Session\n"
        "session = Session(sys.argv[1], json.load(open(sys.argv[2])), xla=sys.argv[3] == 'xla')\n"
        "print(session.call('run', images=np.ones((2, 3), 'float32')))"
    )
    for xla in ("xla", "no"):
        result = subprocess.run(
            [sys.executable, "-c", script, tmp_path / "1", tmp_path / "signatures.json", xla],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
        )
        assert (result.returncode == 0) == (xla == "xla"), result.stderr
    assert "XLA compilation disabled" in result.stderr
