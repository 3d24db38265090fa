"""Every kind of image file gets the same pixels or the same refusal from all that decode."""

from __future__ import annotations

import hashlib
import importlib.util
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from keras_vit import models
from keras_vit.data import Examples, audit, training_dataset
from keras_vit.data.augmentation import Augmentation
from keras_vit.data.image_audit import ImageAudit
from keras_vit.data.image_reading import LOCAL, Limits, inspect, message, read_each
from keras_vit.data.pipeline import image_dataset
from keras_vit.export import Predictor, load_predictor, saved_model
from keras_vit.preprocessing import Preprocessing
from tests.data.image_kinds import HEIGHT, KINDS, WIDTH, Kind, apple

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:Palette images with Transparency:UserWarning"),
]

if importlib.util.find_spec("pillow_heif"):
    KINDS |= apple()
NAMES = list(KINDS)
FILES = [kind.data for kind in KINDS.values()]
READ = [name for name, kind in KINDS.items() if not kind.why]
REFUSED = [name for name in NAMES if name not in READ]
# Every image has this size, so that nothing is resized, and a nearest pixel is the pixel.
PREPROCESSING = Preprocessing(size=(HEIGHT, WIDTH), crop_fraction=1, interpolation="nearest")
each_kind = pytest.mark.parametrize("name", NAMES)


class Answers(NamedTuple):
    """What one decoder says of the files, by their names."""

    pixels: dict[str, np.ndarray]
    messages: dict[str, str]


def levels(scaled: np.ndarray) -> np.ndarray:
    """The pixels that a preprocessing has scaled."""
    return np.round((np.asarray(scaled) * PREPROCESSING.std + PREPROCESSING.mean) * 255).astype(int)


def answers(pixels: np.ndarray, messages: list[bytes]) -> Answers:
    said = {name: text.decode() for name, text in zip(NAMES, messages, strict=True)}
    found = {name: image for name, image in zip(NAMES, pixels, strict=True) if not said[name]}
    return Answers(found, {name: text for name, text in said.items() if text})


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    """The files on disk, each of a class of its own, so that its label tells which one it is."""
    folder = tmp_path_factory.mktemp("kinds")
    for number, kind in enumerate(KINDS.values()):
        (folder / f"{number}{kind.suffix}").write_bytes(kind.data)
    return Examples(
        names=tuple(f"{name}{kind.suffix}" for name, kind in KINDS.items()),
        targets=np.arange(len(NAMES)),
        class_names=tuple(NAMES),
        source=str(folder),
        paths=tuple(str(folder / f"{i}{kind.suffix}") for i, kind in enumerate(KINDS.values())),
    )


@pytest.fixture(scope="module")
def checked(examples: Examples) -> ImageAudit:
    return audit(examples, progress=False)


@pytest.fixture(scope="module")
def trained(examples: Examples, checked: ImageAudit) -> dict[str, np.ndarray]:
    """What a training sees, which begins with an audit and leaves out what that finds."""
    kept = examples.subset([i for i, name in enumerate(examples.names) if name in checked.digests])
    # No rectangle of these shapes lies in the image and has all of its area: none is cut out.
    unchanged = Augmentation(crop_area=(1, 1), flip=False)
    found = {}
    for batch, labels in training_dataset(kept, PREPROCESSING, unchanged, batch_size=2, epochs=3):
        for image, label in zip(batch.numpy(), labels.numpy().argmax(axis=1), strict=True):
            found[NAMES[label]] = levels(image)
    return found


@pytest.fixture(scope="module")
def predicted() -> Answers:
    """What the pipeline of `predict` reads, file by file; it raises what is wrong with one."""
    pixels, messages = {}, {}
    batches = iter(image_dataset(FILES, PREPROCESSING, batch_size=1))
    for name, data in KINDS.items():
        try:
            pixels[name] = levels(next(batches)[0])
        except tf.errors.InvalidArgumentError:
            header = inspect(tf.constant(data.data))[2]
            messages[name] = message(header, LOCAL).numpy().decode()
    assert next(batches, None) is None
    return Answers(pixels, messages)


@pytest.fixture(scope="module")
def read_together() -> Answers:
    traced = tf.function(lambda files: read_each(files, PREPROCESSING, LOCAL), autograph=False)
    read = traced(tf.constant(FILES))
    return answers(read.pixels.numpy().astype(int), read.message.numpy().tolist())


class Model(NamedTuple):
    predictor: Predictor
    served: tf.Module


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    config = models.size("Micro/4").replace(
        num_layers=1, patch_size=7, image_size=(HEIGHT, WIDTH), classes=3
    )
    built = models.build(config, preprocessing=PREPROCESSING)
    generator = np.random.default_rng(5)
    for variable in built.weights:
        variable.assign(variable + generator.normal(scale=0.1, size=variable.shape))
    folder = saved_model.write(built, tmp_path_factory.mktemp("kinds") / "1", limits=Limits())
    return Model(load_predictor(built), tf.saved_model.load(folder))


@pytest.fixture(scope="module")
def served(model: Model) -> Answers:
    read = model.served.signatures["preprocess"](image_bytes=tf.constant(FILES))
    return answers(read["pixels"].numpy().astype(int), read["message"].numpy().tolist())


def close(found: np.ndarray, kind: Kind) -> None:
    expected = kind.expected()
    assert found.shape == expected.shape
    assert np.abs(found - expected.astype(int)).max() <= kind.levels <= 2


def test_table_is_large_and_has_every_format() -> None:
    assert len(NAMES) >= 100
    assert {name.split()[0] for name in READ} == {"jpeg", "png", "gif", "bmp", "webp"}
    assert len(READ) >= 60
    assert len(REFUSED) >= 30


@each_kind
def test_check_reads_as_pillow_or_says_why(
    name: str, examples: Examples, checked: ImageAudit, trained: dict[str, np.ndarray]
) -> None:
    kind, file = KINDS[name], examples.names[NAMES.index(name)]
    bad = dict(checked.bad)
    assert (file in bad) == (name in REFUSED), bad.get(file)
    if name in READ:
        pixels = trained[name].astype(np.uint8)
        digest = hashlib.sha256(str(pixels.shape).encode() + pixels.tobytes()).hexdigest()
        assert checked.digests[file] == digest
    else:
        assert (kind.checked or kind.why) in bad[file]


@pytest.mark.parametrize("name", READ)
def test_training_reads_as_pillow(name: str, trained: dict[str, np.ndarray]) -> None:
    close(trained[name], KINDS[name])


@each_kind
def test_predict_reads_as_pillow_or_says_why(name: str, predicted: Answers) -> None:
    assert_agrees(name, predicted)


@each_kind
def test_read_each_reads_as_pillow_or_says_why(name: str, read_together: Answers) -> None:
    assert_agrees(name, read_together)


@pytest.mark.slow
@each_kind
def test_served_model_reads_as_pillow_or_says_why(name: str, served: Answers) -> None:
    assert_agrees(name, served)


def assert_agrees(name: str, found: Answers) -> None:
    kind = KINDS[name]
    assert (name in found.messages) == (name in REFUSED), found.messages.get(name)
    if name in READ:
        close(found.pixels[name], kind)
    else:
        assert kind.why in found.messages[name]


def test_training_refuses_what_the_check_refuses(examples: Examples, checked: ImageAudit) -> None:
    with pytest.raises(ValueError, match="must be readable") as error:
        checked.accept(examples, "fail")
    bad = [examples.names[NAMES.index(name)] for name in REFUSED]
    assert f"{len(bad)} of {len(NAMES)} images cannot be used" in str(error.value)
    assert all(f"  {name}: " in str(error.value) for name in bad[:20])


def test_predictor_and_served_model_answer_alike(model: Model) -> None:
    good = [KINDS[name].data for name in READ]
    answer = model.served.signatures["serving_default"](image_bytes=tf.constant(FILES))
    said = dict(zip(NAMES, answer["probabilities"].numpy(), strict=True))
    expected = model.predictor.probabilities(good)
    # Measured 1.2e-7.
    np.testing.assert_allclose([said[name] for name in READ], expected, atol=1e-5)
    assert answer["ok"].numpy().tolist() == [name in READ for name in NAMES]
    assert not any(said[name].any() for name in REFUSED)


# One for each text that a header or a decoder leads to.
@pytest.mark.parametrize("name", ["webp animated", "gif small frame", "jpeg half", "tiff", "empty"])
def test_predictor_names_the_refused_image(name: str, model: Model) -> None:
    with pytest.raises(ValueError, match=rf"`images\[1\]` must be .*{KINDS[name].why}"):
        model.predictor.probabilities([KINDS["png rgb"].data, KINDS[name].data])
