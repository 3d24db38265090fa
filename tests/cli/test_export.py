from __future__ import annotations

import inspect
import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from keras_vit import export
from keras_vit.cli import export as serving_commands
from keras_vit.tasks.classification.conformal import conformal_threshold
from keras_vit.tasks.classification.predict import predict
from keras_vit.tasks.run_data import Run
from keras_vit.weights.whole_models import load_model
from tests.cli.commands import Call, call_main, check_failure
from tests.tf_serving.fake_serving import serving

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("nano")]


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    """The folder of a bundle that the command line wrote."""
    to = run.parent / "serving"
    options = ("--tflite", "float32", "--no-warm-up", "--name", "ants", "--full")
    assert call_main("export", run, "--to", to, *options) == 0
    return to


@pytest.fixture(scope="module")
def predictor(run: Path) -> export.Predictor:
    """The predictor of the run, whose answers those of all artifacts are."""
    return export.load_predictor(run)


@pytest.mark.parametrize("artifact", [".", "ants", "ants/1", "ants-files/1/float32.tflite"])
def test_predict_prints_labels_for_every_artifact(
    exported: Path, run: Path, predictor: export.Predictor, call: Call, artifact: str
) -> None:
    images = sorted((run / "samples").iterdir())[:3]
    options = ("--top", 2, "--batch-size", 2)
    code, output, _ = call("predict", exported / artifact, *images, *options)
    assert code == 0
    check_predictions(output, images, predictor)


@pytest.mark.slow
@pytest.mark.parametrize("artifact", ["last.keras", "."])
def test_predict_takes_a_run_and_its_model(
    run: Path, predictor: export.Predictor, call: Call, artifact: str
) -> None:
    images = sorted((run / "samples").iterdir())[:3]
    code, output, _ = call("predict", run / artifact, *images, "--top", 2)
    assert code == 0
    check_predictions(output, images, predictor)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["grpc_address", "rest_address"])
def test_predict_asks_a_server(
    exported: Path, run: Path, predictor: export.Predictor, call: Call, transport: str
) -> None:
    pytest.importorskip("tensorflow_serving", reason="needs the extra serving")
    images = sorted((run / "samples").iterdir())[:3]
    with serving(exported / "ants" / "1") as server:
        address = getattr(server, transport)
        code, output, _ = call("predict", "--server", address, *images, "--top", 2)
    assert code == 0
    check_predictions(output, images, predictor)


@pytest.mark.slow
def test_predict_of_a_server_tells_what_is_wrong_with_an_image(
    exported: Path, run: Path, call: Call, tmp_path: Path
) -> None:
    pytest.importorskip("tensorflow_serving", reason="needs the extra serving")
    (tmp_path / "text.jpg").write_text("text")
    image = next((run / "samples").iterdir())
    sources, to = (tmp_path / "text.jpg", image), tmp_path / "answers.jsonl"
    with serving(exported / "ants" / "1") as server:
        call_server = partial(call, "predict", "--server", server.rest_address, *sources)
        code, output, _ = call_server()
        assert call_server("--to", to)[0] == 1
    assert code == 1
    assert "The image is not a JPEG," in output
    bad, good = map(json.loads, to.read_text().splitlines())
    assert "The image is not a JPEG," in bad["message"]
    assert good["label"] in (run / "labels.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--top", 6), "`--top` must be at most 5 with `--server`"),
        (("--header", "secret"), "`--header` must have the form NAME:VALUE. Received: 'secret'"),
        (
            ("--tls",),
            "`tls` and `certificate` require gRPC or an https:// `address`.",
        ),
    ],
)
def test_predict_of_a_server_checks_before_it_asks(
    run: Path, call: Call, options: tuple[object, ...], message: str
) -> None:
    image = next((run / "samples").iterdir())
    code, _, said = call("predict", "--server", "http://localhost:1", image, *options)
    check_failure(code, said, message)


def test_predict_of_a_server_names_version_and_password(
    exported: Path, run: Path, call: Call, tmp_path: Path
) -> None:
    pytest.importorskip("tensorflow_serving", reason="needs the extra serving")
    image = next((run / "samples").iterdir())
    header = ("--header", "Authorization: Basic eA==")
    with serving(exported / "ants" / "1") as server:
        for version in (1, "stable"):
            address = ("--server", server.rest_address, "--version", version)
            assert call("predict", *address, *header, image)[0] == 0
        assert call("predict", *address, image, "--to", tmp_path / "answers.csv")[0] == 0
    number, label, *_ = server.requests
    assert number["path"].endswith("/versions/1:predict")
    assert label["path"].endswith("/labels/stable:predict")
    assert number["headers"]["Authorization"] == "Basic eA=="
    assert (tmp_path / "answers.csv").read_text().startswith("file,label,score,label_2,score_2,")


@pytest.mark.slow
def test_predict_names_as_many_classes_as_are_asked_for(run: Path, call: Call) -> None:
    image = next((run / "samples").iterdir())
    code, output, _ = call("predict", run, image, "--top", 9)
    labels = (run / "labels.txt").read_text().splitlines()
    assert code == 0
    assert all(label in output for label in labels)


def test_options_are_those_of_the_function() -> None:
    files = {quantization.value for quantization in serving_commands.Quantization} - {"all", "none"}
    assert files == set(export.tflite.QUANTIZATIONS)
    asked = inspect.signature(serving_commands.export).parameters
    given = inspect.signature(export.bundle).parameters
    for name in (
        "name",
        "full",
        "sample",
        "min_agreement",
        "warm_up",
        "tflite_batch_size",
        "precision",
        "processor",
    ):
        assert asked[name].default == given[name].default
    assert {*get_args(serving_commands.Precision)} == {"float32", "bfloat16", "auto"}
    limits = export.Limits()
    assert asked["max_bytes"].default == limits.max_bytes
    assert asked["max_pixels"].default == limits.max_pixels


def check_predictions(output: str, images: list[Path], predictor: export.Predictor) -> None:
    expected = predictor.probabilities([path.read_bytes() for path in images])
    lines = output.splitlines()[-3:]
    for line, path, row in zip(lines, images, expected, strict=True):
        name, first, p, second, q = line.split()
        assert name == str(path)
        best = np.argsort(-row)[:2]
        assert [first, second] == [predictor.labels[index] for index in best]
        assert [float(p), float(q)] == pytest.approx(row[best], abs=1e-3)


@pytest.mark.slow
def test_export_prints_the_table_and_repeats_the_evaluation(
    run: Path, call: Call, tmp_path: Path
) -> None:
    code, output, _ = call(
        *("export", run, "--to", tmp_path, "--tflite", "none", "--no-warm-up", "--full")
    )
    assert code == 0
    accuracy = json.loads((run / "evaluation.json").read_text())["accuracy"]
    assert "Compared with the Keras model on 7 labeled images:" in output
    assert re.search(rf"^saved_model .* {accuracy:.4f} +1.0000 ", output, re.MULTILINE)
    assert f"Written: {tmp_path}/vit/1" in output
    assert "-files" not in output


@pytest.mark.slow
def test_export_writes_the_usual_files(run: Path, call: Call, tmp_path: Path) -> None:
    code, output, messages = call("export", run, "--to", tmp_path, "--min-agreement", 0)
    files = sorted(path.name for path in (tmp_path / "vit-files" / "1").glob("*.tflite"))
    assert code == 0
    assert files == ["dynamic_range.tflite", "float16.tflite"]
    steps = [line for line in output.splitlines() if line.startswith("Writing ")]
    assert steps[:3] == [
        "Writing saved_model (1 of 3)",
        "Writing float16 (2 of 3)",
        "Writing dynamic_range (3 of 3)",
    ]
    assert "\x1b" not in output + messages


def test_predict_of_a_folder_with_two_models_names_them(
    exported: Path, run: Path, call: Call, tmp_path: Path
) -> None:
    for name in ("ants", "bees"):
        shutil.copytree(exported / "ants", tmp_path / name)
    code, _, message = call("predict", tmp_path, next((run / "samples").iterdir()))
    check_failure(code, message, "`source` must be one model. Received: ")
    assert message.endswith(f"with the models {tmp_path}/ants, {tmp_path}/bees\n")


@pytest.mark.slow
def test_export_prints_the_oldest_runtime_of_each_file(
    run: Path, call: Call, tmp_path: Path
) -> None:
    code, output, _ = call(
        *("export", run, "--to", tmp_path, "--no-warm-up", "--min-agreement", 0),
        *("--tflite", "float32", "--tflite", "dynamic_range"),
    )
    assert code == 0
    # The weights of this model are too small to be quantized.
    line = "Oldest TensorFlow Lite that runs each file: dynamic_range 2.9.0, float32 2.9.0\n"
    assert line in output


@pytest.mark.slow
def test_export_takes_a_model_and_images(
    run: Path, photos: Path, call: Call, tmp_path: Path
) -> None:
    code, output, _ = call(
        *("export", run / "best.keras", "--to", tmp_path, "--data", photos),
        *("--tflite", "none", "--no-warm-up", "--sample", 5),
    )
    assert code == 0
    assert "on 5 labeled images" in output


def test_threshold_of_a_models_sets_is_chosen_on_held_out_images(
    run: Path, photos: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}

    def stop(artifacts, examples, expected, *rest, **options):
        found.update(names=examples.names, threshold=expected.preprocessing.set_threshold)
        raise ValueError("stopped")

    monkeypatch.setattr(sys.modules["keras_vit.export.bundle"], "verify", stop)
    options = ("--data", photos, "--coverage", 0.8, "--tflite", "none", "--no-warm-up")
    code, output, message = call("export", run / "best.keras", "--to", tmp_path, *options)
    check_failure(code, message, "stopped")
    assert "26 of 33 images are training images of the run and are left out." in output
    held_out = Run(run).examples("validation")
    assert {*found["names"]} == {*held_out.names}
    labels, probabilities, _ = predict(load_model(run / "best.keras"), held_out)
    threshold = conformal_threshold(labels, probabilities, 0.8)
    assert found["threshold"] == pytest.approx(threshold, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--tflite", "all", "--tflite", "int8"),
            "`--tflite all` and `--tflite none` must stand alone.",
        ),
        (("--name", "a/b"), "`name` must be a plain folder name"),
        pytest.param(
            *(("--max-pixels", "10"), "pixels, more than the limit of 10"), marks=pytest.mark.slow
        ),
    ],
)
def test_export_that_fails_leaves_nothing(
    run: Path, call: Call, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    if "--tflite" not in options:
        options = (*options, "--tflite", "none")
    code, _, said = call("export", run, "--to", tmp_path / "new", "--no-warm-up", *options)
    check_failure(code, said, message)
    assert not any((tmp_path / "new").glob("*"))


def test_export_of_a_model_needs_images(run: Path, call: Call, tmp_path: Path) -> None:
    code, _, message = call("export", run / "last.keras", "--to", tmp_path, "--no-warm-up")
    check_failure(code, message, "`examples` (--data) must be labeled images")


def test_predict_of_a_missing_image_is_refused(run: Path, call: Call, tmp_path: Path) -> None:
    image = next((run / "samples").iterdir())
    code, _, message = call("predict", run, image, tmp_path / "cat.jpg")
    check_failure(
        code, message, f"Every `SOURCE` must be an existing file or folder. Received: {tmp_path}"
    )


@pytest.mark.slow
def test_predict_of_a_truncated_image_goes_on(run: Path, call: Call, tmp_path: Path) -> None:
    image = next(path for path in (run / "samples").iterdir() if path.suffix == ".jpg")
    (tmp_path / "half.jpg").write_bytes(image.read_bytes()[:150])
    code, output, _ = call("predict", run, tmp_path / "half.jpg", image, "--top", 2)
    assert code == 1
    bad, good = output.splitlines()[-2:]
    assert bad.split(maxsplit=1) == [str(tmp_path / "half.jpg"), "The image is damaged"]
    assert good.startswith(str(image))


def test_predict_without_images_is_refused(run: Path, call: Call) -> None:
    code, _, message = call("predict", run)
    check_failure(
        code, message, "needs a run folder or exported file (or `--server`) and at least one image."
    )
