from __future__ import annotations

import io
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_vit.export import Predictor, embed, load_predictor, onnx_openvino
from keras_vit.tasks.registry import trained_model
from tests.export.conftest import LABELS

pytestmark = pytest.mark.tensorflow

KINDS = ["keras", "saved_model", "tflite"]
SINGLE = r"^`images` must be a list, even for a single image\. Received: a single \w+$"


@pytest.fixture(scope="module", params=KINDS)
def predictor(
    request: pytest.FixtureRequest, loaded: Predictor, exported: dict[str, Path]
) -> Predictor:
    return loaded if request.param == "keras" else load_predictor(exported[request.param])


def test_predictions_do_not_depend_on_the_batches(
    predictor: Predictor, images: list[bytes]
) -> None:
    whole = predictor.probabilities(images)
    assert (whole.dtype, whole.shape) == (np.float32, (10, 7))
    assert predictor.labels == LABELS
    np.testing.assert_allclose(predictor.probabilities(images, batch_size=3), whole, atol=1e-6)
    np.testing.assert_allclose(predictor.probabilities(images[::-1])[::-1], whole, atol=1e-6)


@pytest.mark.slow
def test_a_bad_image_has_a_message_and_costs_its_neighbors_nothing(
    predictor: Predictor, images: list[bytes]
) -> None:
    sent = [images[0], b"not an im", "nowhere.jpg", images[0][:-40], images[1]]
    found = predictor.predict(sent, batch_size=2)
    assert [p.message for p in found] == [
        "",
        "The image is not a JPEG, PNG, GIF, BMP or WebP",
        "cannot be read: No such file or directory",
        "The image is damaged",
        "",
    ]
    expected = predictor.probabilities([images[0], images[1]])
    np.testing.assert_allclose(found[0].probabilities, expected[0], atol=1e-6)
    np.testing.assert_allclose(found[4].probabilities, expected[1], atol=1e-6)
    assert (found[1].ok, found[1].label, found[1].score) == (False, None, None)
    with pytest.raises(ValueError, match=r"`images\[1\]` must be a complete JPEG.* is not a JPEG,"):
        predictor.probabilities(sent)


def test_every_kind_of_image_gives_the_same(
    loaded: Predictor, images: list[bytes], tmp_path: Path
) -> None:
    with PIL.Image.open(io.BytesIO(images[0])) as image:
        rgb = image.convert("RGB")
    buffer = io.BytesIO()
    rgb.save(buffer, "PNG")
    (tmp_path / "a.png").write_bytes(buffer.getvalue())
    kinds = [str(tmp_path / "a.png"), tmp_path / "a.png", buffer.getvalue(), rgb, np.array(rgb)]
    rows = loaded.probabilities(kinds)
    np.testing.assert_allclose(rows, rows[[0] * len(kinds)], atol=1e-6)  # measured: 2e-8


def test_a_photograph_on_its_side_is_turned(loaded: Predictor) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (12, 20, 3), np.uint8)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "PNG", exif=exif)
    with PIL.Image.open(buffer) as turned:
        rows = loaded.probabilities([buffer.getvalue(), turned])
    np.testing.assert_array_equal(rows[0], rows[1])


def test_gray_arrays_have_two_or_three_axes(loaded: Predictor) -> None:
    gray = np.random.default_rng(3).integers(0, 256, (12, 20), np.uint8)
    rows = loaded.probabilities([gray, gray[..., None], np.dstack([gray] * 3)])
    np.testing.assert_allclose(rows, rows[[0, 0, 0]], atol=1e-6)  # measured: 1.2e-7


@pytest.mark.parametrize("shape", [(12, 20), (12, 20, 1), (12, 20, 3), (12, 20, 4)])
@pytest.mark.parametrize("dtype", ["uint8", "<u2", ">u2"])
def test_arrays_are_read_as_png_files_are(
    shape: tuple[int, ...], dtype: str, loaded: Predictor, tmp_path: Path
) -> None:
    levels = 256 ** np.dtype(dtype).itemsize
    pixels = np.random.default_rng(3).integers(0, levels, shape).astype(dtype)
    channels = pixels[..., None] if pixels.ndim == 2 else pixels
    path = tmp_path / "a.png"
    path.write_bytes(tf.io.encode_png(channels.astype(pixels.dtype.newbyteorder("="))).numpy())
    kinds = [path, pixels]
    if len(shape) == 2:
        with PIL.Image.open(path) as image:
            kinds.append(image.copy())
    rows = loaded.probabilities(kinds)
    np.testing.assert_allclose(rows, rows[[0] * len(kinds)], atol=1e-6)  # measured: 2.4e-7


@pytest.mark.parametrize(
    ("wrong", "received"),
    [
        (np.zeros((5, 7, 3), np.float32), "an array of float32 and shape"),
        (np.zeros((2, 5, 7, 3), np.uint8), r"an array of uint8 and shape \(2, 5, 7, 3\)"),
        (np.zeros((5, 7, 2), np.uint8), r"an array of uint8 and shape \(5, 7, 2\)"),
        (np.zeros((5, 7), np.uint32), r"an array of uint32 and shape \(5, 7\)"),
        (PIL.Image.new("I", (5, 7)), "a PIL image of mode I"),
        (PIL.Image.new("F", (5, 7)), "a PIL image of mode F"),
        (7, "int"),
        (None, "NoneType"),
    ],
)
def test_other_kinds_are_refused(wrong: object, received: str, loaded: Predictor) -> None:
    with pytest.raises(ValueError, match=f"`images` must contain paths, .*Received: {received}"):
        loaded.predict([wrong])


@pytest.mark.parametrize(
    "single",
    [
        "a.jpg",
        Path("a.jpg"),
        b"bytes",
        PIL.Image.new("L", (5, 7)),
        np.zeros((5, 7), np.uint8),
        np.zeros((5, 7, 1), np.uint8),
        np.zeros((5, 7, 3), np.uint8),
        np.zeros((5, 7, 4), np.uint16),
    ],
)
def test_a_single_image_is_no_list(single: object, loaded: Predictor) -> None:
    for call in (loaded.predict, loaded.probabilities, loaded.iterate):
        with pytest.raises(ValueError, match=SINGLE):
            list(call(single))


def test_a_single_image_is_not_embedded(model: keras.Model) -> None:
    with pytest.raises(ValueError, match=SINGLE):
        next(embed(model, "a.jpg"))


@pytest.mark.parametrize("top", [0, -1])
def test_a_prediction_has_at_least_one_class(top: int, loaded: Predictor) -> None:
    with pytest.raises(ValueError, match=rf"`top` must be a positive integer\. .* top={top}$"):
        loaded.predict(["a.jpg"], top=top)


def test_images_are_in_any_iterable(loaded: Predictor) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (2, 12, 20, 3), np.uint8)
    expected = loaded.probabilities(list(pixels))
    for images in (pixels, iter(pixels)):
        np.testing.assert_allclose(loaded.probabilities(images), expected, atol=1e-6)
    assert len(loaded.predict(pixels[..., 0])) == 2  # gray
    assert len(loaded.predict(np.array(["a.jpg", "b.jpg", "c.jpg"]))) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "keras",
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("tflite", "saved_model", "onnx", "openvino")
        ),
    ],
)
def test_threads_get_the_answers_of_one_thread(
    kind: str, model: keras.Model, exported: dict[str, Path], tmp_path: Path
) -> None:
    if kind in KINDS:
        path = exported[kind]
    else:
        for package in onnx_openvino._NEEDED[kind]:
            pytest.importorskip(package, reason=f"needs the extra {kind}")
        write, suffix = onnx_openvino.WRITERS[kind]
        path = write(trained_model(model), tmp_path / f"model.{suffix}")
    predictor = load_predictor(path)
    pixels = np.random.default_rng(3).integers(0, 256, (13, 11, 17, 3), np.uint8)
    alone = [predictor.probabilities([image]) for image in pixels]
    with ThreadPoolExecutor(8) as threads:
        calls = range(1000)
        found = threads.map(lambda i: predictor.probabilities([pixels[i % 13]]), calls)
        wrong = [i for i in calls if not np.array_equal(next(found), alone[i % 13])]
    assert not wrong


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
@pytest.mark.parametrize("loads", [False, True])
def test_a_forked_process_gets_an_error(
    loads: bool, predictor: Predictor, exported: dict[str, Path]
) -> None:
    image = np.zeros((5, 7, 3), np.uint8)

    def load_and_predict() -> None:
        found = load_predictor(exported["keras"]) if loads else predictor
        found.predict([image])

    def call() -> None:
        with pytest.raises(RuntimeError, match="A predictor must be loaded after the fork, in"):
            load_and_predict()

    predictor.predict([image])
    child = multiprocessing.get_context("fork").Process(target=call)
    child.start()
    child.join(20)
    child.kill()
    child.join()
    assert child.exitcode == 0


def test_predict_needs_an_image(predictor: Predictor) -> None:
    with pytest.raises(ValueError, match=r"`images` must contain at least one image."):
        predictor.predict([])


def test_images_are_read_while_they_are_asked_for(loaded: Predictor, images: list[bytes]) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield images[0]

    found = loaded.iterate(endless(), batch_size=4)
    assert next(found).ok
    found.close()
    assert taken <= 12  # the batch, and the one that is read ahead


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            bytes(4) + b"ftypheic" + bytes(200),
            "HEIC, which `keras-vit data convert` can convert to JPEG",
        ),
        (
            b"II*\0" + bytes(200),
            "TIFF, which `keras-vit data convert` can convert to JPEG",
        ),
        (b"v/1\x01" + bytes(200), "OpenEXR"),
        (
            b"data:image/png;base64,iVBORw0KGgoAAAANSUhEUg==",
            "a data URI: decode the base64 text after its comma",
        ),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer: run `git lfs pull`"),
    ],
)
def test_other_formats_are_named_with_a_remedy(
    loaded: Predictor, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "photo").write_bytes(content)
    for prediction in loaded.predict([content, tmp_path / "photo"]):
        assert not prediction.ok
        text = f"The image is not a JPEG, PNG, GIF, BMP or WebP, but {message}"
        assert prediction.message == text
