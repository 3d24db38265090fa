"""Classes added to an exported classifier from a few images."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.session import signatures_of
from keras_vit import data, export, training
from keras_vit.export import load
from keras_vit.tasks.class_rows import ClassRows
from tests.cli.commands import Call
from tests.cli.conftest import call as call
from tests.tf_serving.fake_serving import serving as running
from tests.training.conftest import nano as nano

pytestmark = pytest.mark.tensorflow
DIGITS = data.load("digits")
KNOWN = np.flatnonzero(np.isin(DIGITS.targets, range(2)))[:120]
NEW = np.flatnonzero(np.asarray(DIGITS.targets) == 4)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bundle(nano: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("added")
    for index in KNOWN:
        path = folder / "digits" / DIGITS.shown(index)[0] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DIGITS.read(index))
    recipe = training.recipe("probe").replace(image_size=(8, 8), precision="float32")
    config = training.RunConfig(str(folder / "digits"), nano, recipe=recipe)
    training.train(config, folder / "run", tensorboard=False)
    done = export.bundle(
        *(folder / "run", folder / "serving"),
        **{"quantizations": [], "prototypes": True, "coverage": 0.9, "false_alarm_rate": 0.1},
        verbose=0,
    )
    # The signature that takes the file agrees with the model; measured: 3e-7.
    assert [(r.name, r.largest_difference < 1e-5) for r in done.results] == [
        ("saved_model", True),
        ("classes.pb", True),
    ]
    return folder / "serving"


@pytest.fixture
def serving(bundle: Path, tmp_path: Path) -> Path:
    return shutil.copytree(bundle, tmp_path / "export" / "serving")


def images(indices: np.ndarray) -> list[bytes]:
    return [DIGITS.read(int(index)) for index in indices]


def logits(serving: Path, given: list[bytes]) -> np.ndarray:
    signatures = tf.saved_model.load(str(serving / "vit" / "1")).signatures
    content = (serving / "vit/1/assets.extra/classes.pb").read_bytes()
    classes = tf.constant([content] * len(given))
    answer = signatures["classify_with_classes"](image_bytes=tf.constant(given), classes=classes)
    return answer["logits"].numpy()


def test_added_class_is_predicted_and_the_others_keep_their_scores(
    serving: Path, call: Call, tmp_path: Path
) -> None:
    tests = images(np.concatenate([KNOWN[:60], NEW[5:65]]))
    before, alone = logits(serving, tests), export.load_predictor(serving).predict(tests)
    for index in NEW[:5]:
        (tmp_path / f"{index}.png").write_bytes(DIGITS.read(int(index)))
    path = serving / "vit/1/assets.extra/classes.pb"
    _, printed, _ = call("classes", "add", serving, "four", *tmp_path.glob("*.png"))
    assert printed == f"Added four, from 5 images.\n\nWritten: {path}\n"
    after = logits(serving, tests)
    np.testing.assert_array_equal(after[:, :2], before)
    found = export.load_predictor(serving).predict(tests)
    assert export.load_predictor(serving).labels == ("0", "1", "four")
    # By a network with random weights.
    assert [one.label for one in found[60:]].count("four") > 20  # measured: 30
    assert sum(a.label == b.label for a, b in zip(found[:60], alone[:60], strict=True)) > 55
    # Images of the new class are in distribution from then on.
    outside = [sum(not one.in_distribution for one in part[60:]) for part in (alone, found)]
    assert outside[0] > outside[1]  # measured: 6 and 4
    assert all(one.set for one in found)
    # Over a server, with the file or without it.
    pytest.importorskip("tensorflow_serving", reason="needs the extra serving")
    image = next(tmp_path.glob("*.png"))
    with running(serving / "vit" / "1") as server, export.Client(server.rest_address) as client:
        alone = client.predict([image.read_bytes()])[0]
        command = ("predict", "--server", server.grpc_address, image, "--classes", path)
        _, printed, _ = call(*command)
    assert (len(alone.probabilities), printed.split()[1]) == (2, "four")


def test_what_cannot_be_added_is_refused(serving: Path, tmp_path: Path) -> None:
    five = images(NEW[:5])
    with pytest.raises(ValueError, match=r"exported with `prototypes`.* Received: .*missing"):
        export.add_class(tmp_path / "missing", "four", five)
    for name in ("", "1"):
        with pytest.raises(ValueError, match="`name` must not be empty, or one of the classes 0"):
            export.add_class(serving, name, five)
    with pytest.raises(ValueError, match=r"Received: b'no image': The image is not"):
        export.add_class(serving, "four", [five[0], b"no image"])
    with pytest.raises(ValueError, match="`images` must contain at least one image"):
        export.add_class(serving, "four", [])
    assert len(ClassRows.parse((serving / "vit/1/assets.extra/classes.pb").read_bytes()).names) == 2


def test_images_sent_with_the_classes_of_another_version_are_refused(bundle: Path) -> None:
    content = (bundle / "vit/1/assets.extra/classes.pb").read_bytes()
    classes = ClassRows.parse(content)
    retrained, wider = classes.rows + np.float32(1e-3), np.pad(classes.rows, [(0, 0), (0, 5)])
    others = [ClassRows(classes.names, rows).to_bytes() for rows in (retrained, wider)]
    classify = tf.saved_model.load(str(bundle / "vit" / "1")).signatures["classify_with_classes"]
    given = tf.constant(images(KNOWN[:3]))
    expected = classify(image_bytes=given, classes=tf.constant([content] * 3))
    answer = classify(image_bytes=given, classes=tf.constant([*others, content]))
    assert answer["ok"].numpy().tolist() == [False, False, True]
    message = b"classes.pb is of another version of the model"
    assert answer["message"].numpy().tolist() == [message, message, b""]
    np.testing.assert_array_equal(answer["logits"][:2], np.zeros((2, 2)))
    np.testing.assert_array_equal(answer["logits"][2], expected["logits"][2])
    alone = classify(image_bytes=given[:2], classes=tf.constant(others))
    assert not alone["ok"].numpy().any()


def test_trained_classes_have_the_names_of_the_changed_labels(serving: Path) -> None:
    (serving / "vit/1/assets/labels.txt").write_text("zero\n1\n")
    with pytest.raises(ValueError, match="must not be empty, or one of the classes zero, 1, 0"):
        export.add_class(serving, "zero", images(NEW[:5]))
    export.add_class(serving, "four", images(NEW[:5]))
    predictor = export.load_predictor(serving)
    assert predictor.labels == ("zero", "1", "four")
    assert "zero" in {one.label for one in predictor.predict(images(KNOWN[:60]))}


def test_class_that_another_process_adds_meanwhile_is_kept(
    serving: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(folder: Path, trust: bool) -> dict:
        monkeypatch.undo()
        export.add_class(serving, "six", images(NEW[5:10]))
        return load.signatures_of(folder, trust)

    module = sys.modules[export.add_class.__module__]
    monkeypatch.setattr(module, "signatures_of", meanwhile)
    path = export.add_class(serving, "four", images(NEW[:5]))
    assert ClassRows.parse(path.read_bytes()).names == ("0", "1", "six", "four")


@pytest.mark.parametrize("number", [1, 2, 5])
def test_bias_contains_the_variance_of_the_mean(number: int) -> None:
    features = np.random.default_rng(3).normal(size=(number, 7))

    def class_rows(features: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"rows": tf.pad(features, [[0, 0], [0, 1]])}

    (row,) = sys.modules[export.add_class.__module__]._row(features, class_rows)
    variance = features.var(axis=0, ddof=1).sum() / number if number > 1 else 0
    np.testing.assert_allclose(row[:-1], features.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(row[-1], variance / 2, rtol=1e-5)  # measured: 1e-7


SERVER = """
import json, sys, time
from benchmarks.session import Session
folder, work = sys.argv[1:]
session = Session(folder, json.load(open(f"{work}/signatures.json")))
image, seen = open(f"{work}/image", "rb").read(), []
end = time.time() + 100
while len(seen) < 1000 or seen[-1][0] != "four" and time.time() < end:
    classes = open(f"{folder}/assets.extra/classes.pb", "rb").read()
    answer = session.call("classify_with_classes", image_bytes=[image], classes=[classes])
    assert answer["ok"].all()
    seen.append((answer["top_labels"][0][0].decode(), answer["logits"][0, :2].tolist()))
    if len(seen) == 1:
        print(1, flush=True)
assert not {"keras", "keras_vit", "tensorflow"} & set(sys.modules)
json.dump(seen, open(f"{work}/seen.json", "w"))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs the shared libraries of Linux")
def test_class_is_added_while_requests_are_answered(serving: Path, tmp_path: Path) -> None:
    folder = serving / "vit" / "1"
    (tmp_path / "signatures.json").write_text(json.dumps(signatures_of(folder)))
    (tmp_path / "image").write_bytes(images(NEW[7:8])[0])
    command = [sys.executable, "-c", SERVER, str(folder), str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "1\n"
        export.add_class(serving, "four", images(NEW[:5]))
    assert server.returncode == 0
    labels, scores = zip(*json.loads((tmp_path / "seen.json").read_text()), strict=True)
    assert (labels[0] != "four", labels[-1]) == (True, "four")
    assert all(score == scores[0] for score in scores)
