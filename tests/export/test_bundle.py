from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import data
from keras_vit.data import Examples
from keras_vit.export import (
    Bundle,
    VerificationError,
    bundle,
    load_predictor,
    saved_model,
    tflite,
)
from keras_vit.export.bundle import _is_leftover
from keras_vit.export.compare_artifacts import ArtifactComparison
from keras_vit.tasks.registry import TrainedModel
from keras_vit.tasks.run_data import Run
from tests.export.conftest import LABELS

pytestmark = pytest.mark.tensorflow


def exported(model: keras.Model, directory: Path, labeled: Examples, **changes):
    options = {"examples": labeled, "quantizations": [], "warm_up": False, "verbose": 0, **changes}
    return bundle(model, directory, **options)


@pytest.fixture(scope="module")
def whole(model: keras.Model, labeled: Examples, tmp_path_factory: pytest.TempPathFactory):
    """One bundle with everything in it; tests only read it."""
    pytest.importorskip("tensorflow_serving", reason="needs the extra serving")
    directory = tmp_path_factory.mktemp("bundle")
    done = exported(model, directory, labeled, quantizations="all", warm_up=True, min_agreement=0.2)
    return directory, done


def test_bundle_has_its_files_where_servers_and_phones_look(whole) -> None:
    directory, done = whole
    assert sorted(path.name for path in directory.glob("[!.]*")) == [
        "batching.config",
        "vit",
        "vit-files",
    ]
    assert done.saved_model == directory / "vit" / "1"
    assert done.files == directory / "vit-files" / "1"
    assert {path.name for path in done.files.iterdir()} == {
        "manifest.json",
        *(f"{quantization}.tflite" for quantization in tflite.QUANTIZATIONS),
    }
    assert {path.name for path in (done.saved_model / "assets.extra").iterdir()} == {
        "manifest.json",
        "tf_serving_warmup_requests",
    }
    assert {path.name for path in (done.saved_model / "assets").iterdir()} == {
        "labels.txt",
        "preprocessing.json",
    }


@pytest.mark.slow
def test_every_file_predicts(whole, model: keras.Model, images: list[bytes]) -> None:
    _, done = whole
    expected = load_predictor(model).probabilities(images)
    for path in (done.saved_model, *done.files.glob("*.tflite")):
        predictor = load_predictor(path)
        difference = np.abs(predictor.probabilities(images) - expected).max()
        assert difference < (1e-4 if path.stem in ("1", "float32") else 0.3), path


def test_manifest_holds_what_was_proven(whole) -> None:
    _, done = whole
    manifest = json.loads((done.saved_model / "assets.extra" / "manifest.json").read_text())
    beside = json.loads((done.files / "manifest.json").read_text())
    hashes = {done.saved_model: manifest.pop("files"), done.files: beside.pop("files")}
    assert manifest == beside
    assert manifest["source"] == {"data": "memory"}
    assert (manifest["name"], manifest["version"]) == ("vit", 1)
    assert manifest["verification"]["images"] == 10
    proven = {row["name"]: row for row in manifest["verification"]["artefacts"]}
    assert set(proven) == {"saved_model", *tflite.QUANTIZATIONS}
    assert proven["saved_model"]["agreement"] == 1.0
    for folder, files in hashes.items():
        found = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
        assert {name for name in found if not name.endswith("manifest.json")} == set(files)
        for name, told in files.items():
            content = (folder / name).read_bytes()
            assert (told["bytes"], told["sha256"]) == (
                len(content),
                hashlib.sha256(content).hexdigest(),
            )


def test_sizes_fall_down_the_ladder(whole) -> None:
    _, done = whole
    sizes = {r.name: r.size for r in done.results}
    assert sizes["float32"] > sizes["float16"]
    with zipfile.ZipFile(done.files / "int8.tflite") as archive:
        assert archive.read("labels.txt").decode().split() == list(LABELS)


@pytest.mark.slow
def test_other_runtimes_are_verified_as_well(
    model: keras.Model, labeled: Examples, tmp_path: Path
) -> None:
    pytest.importorskip("tf2onnx", reason="needs the extra onnx")
    pytest.importorskip("openvino", reason="needs the extra openvino")
    done = exported(model, tmp_path, labeled, runtimes=["onnx", "openvino"])
    assert [(r.name, r.ok) for r in done.results[1:]] == [("onnx", True), ("openvino", True)]
    assert max(r.largest_difference for r in done.results) < 1e-5  # measured: 4e-7
    written = {path.name for path in done.files.iterdir()}
    assert written == {"model.onnx", "model.xml", "model.bin", "manifest.json"}


def test_versions_count_up(tmp_path: Path) -> None:
    following = sys.modules["keras_vit.export.bundle"]._next_version
    assert following(tmp_path, "vit") == 1
    (tmp_path / "vit" / "2").mkdir(parents=True)
    (tmp_path / "vit-files" / "4").mkdir(parents=True)
    assert following(tmp_path, "vit") == 5
    assert following(tmp_path, "other") == 1


def answered(monkeypatch: pytest.MonkeyPatch, *disagreeing: str) -> None:
    """Lets the files of a bundle agree, or not, without writing and running them."""

    def write_saved_model(exported: TrainedModel, path: Path, **options) -> Path:
        path.mkdir()
        (path / "saved_model.pb").touch()
        return path

    class TFLiteConverter:
        def __init__(self, *arguments) -> None: ...

        def write(self, quantization: str, path: Path) -> None:
            path.write_text(quantization)

    def verify(artifacts, *arguments, **options) -> tuple[ArtifactComparison, ...]:
        return tuple(
            ArtifactComparison(
                artifact.name,
                artifact.size(),
                {"1": 1.0},
                accuracy=0.5,
                agreement=0.5 if artifact.name in disagreeing else 1.0,
                largest_difference=0.0,
                worst=0,
                ok=artifact.name not in disagreeing,
            )
            for artifact in artifacts
        )

    monkeypatch.setattr(saved_model, "write_saved_model", write_saved_model)
    monkeypatch.setattr(tflite, "TFLiteConverter", TFLiteConverter)
    # The function of that name hides the module.
    monkeypatch.setattr(sys.modules["keras_vit.export.bundle"], "verify", verify)


def test_nothing_appears_if_the_saved_model_disagrees(
    model: keras.Model, labeled: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, "saved_model")
    with pytest.raises(
        VerificationError, match=r"saved_model does not match .* 0.5000 of the images"
    ):
        exported(model, tmp_path, labeled)
    assert list(tmp_path.iterdir()) == []


def test_a_rung_that_disagrees_is_left_out(
    model: keras.Model, labeled: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {name: tflite.QUANTIZATIONS[name] for name in ("float32", "dynamic_range")}
    monkeypatch.setattr(tflite, "QUANTIZATIONS", kept)
    answered(monkeypatch, "dynamic_range")
    done = exported(model, tmp_path, labeled, quantizations="all")
    assert not (done.files / "dynamic_range.tflite").exists()
    assert "Left out for too many different predictions: dynamic_range." in done.text()
    assert "The smallest TFLite file that matches the model is " in done.text()


def test_the_smallest_files_are_named() -> None:
    sizes = {"saved_model": 9, "float32": 8, "int16x8": 3, "int8": 2, "dynamic_range": 1}
    results = tuple(
        ArtifactComparison(name, size, {"1": 1.0}, 1.0, 1.0, 0.0, worst=0, ok=name != "int8")
        for name, size in sizes.items()
    )
    text = Bundle(Path("vit/1"), None, results, 200).text()
    assert "The smallest TFLite file that matches the model is dynamic_range." in text
    assert "The smallest with integer activations is int16x8." in text


def test_a_rung_that_was_asked_for_has_to_agree(
    model: keras.Model, labeled: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch, "dynamic_range")
    with pytest.raises(
        VerificationError,
        match=r"dynamic_range does not match(?s:.*)The smallest .* matches the model is 'float16'",
    ):
        exported(model, tmp_path, labeled, quantizations=["float16", "dynamic_range"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_sample_is_drawn_unless_all_are_asked_for(
    model: keras.Model, labeled: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(monkeypatch)
    assert exported(model, tmp_path, labeled, sample=4).images == 4  # the run below: all


@pytest.mark.slow
def test_ranges_are_rather_measured_on_images_that_are_not_verified(
    model: keras.Model, labeled: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, drawn = sys.modules["keras_vit.export.bundle"], {}
    monkeypatch.setattr(module, "_CALIBRATION", len(labeled) - 4)
    answered(monkeypatch)
    verify, converter = module.verify, tflite.TFLiteConverter

    def watched_verify(artifacts, examples, *rest, **options):
        drawn["verified"] = list(map(examples.read, range(len(examples))))
        return verify(artifacts, *rest, **options)

    def watched_converter(model, folder, calibration, *rest):
        drawn["measured"] = calibration
        return converter(model, folder, calibration, *rest)

    monkeypatch.setattr(module, "verify", watched_verify)
    monkeypatch.setattr(tflite, "TFLiteConverter", watched_converter)
    exported(model, tmp_path, labeled, quantizations=["int16x8"], sample=4)
    assert {*drawn["verified"], *drawn["measured"]} == set(labeled.encoded)
    assert not {*drawn["verified"]} & {*drawn["measured"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantizations": ["int4"]}, "`quantizations` must be one of .*int4"),
        ({"runtimes": ["tensorrt"]}, "`runtimes` must be one of .*tensorrt"),
        ({"min_agreement": 1.5}, r"`min_agreement` must be in \[0, 1\]. Received: .*1.5"),
        ({"name": "a/b"}, "`name` must be a plain folder name. Received: name='a/b'"),
        ({"examples": None}, r"`examples` \(--data\) must be labeled images"),
        ({"sample": 0}, "`sample` must be .*Received: sample=0"),
        ({"tflite_batch_size": 0}, "`tflite_batch_size` must be "),
    ],
)
def test_bundle_checks_before_work(
    model: keras.Model, labeled: Examples, tmp_path: Path, changes: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        exported(model, tmp_path / "new", labeled, **changes)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_run_is_verified_on_what_it_held_out(run: Path, tmp_path: Path) -> None:
    done = bundle(run, tmp_path, quantizations=[], warm_up=False, verbose=0, full=True)
    held_out = sum("validation" in line for line in (run / "split.csv").open())
    assert done.images == held_out
    report = json.loads((run / "evaluation.json").read_text())
    assert done.results[0].accuracy == pytest.approx(report["accuracy"], abs=1e-12)


@pytest.mark.slow
def test_thresholds_are_chosen_on_images_that_were_not_trained_on(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, compared = sys.modules["keras_vit.export.bundle"], {}

    def stop(artifacts, examples, *rest, **options):
        compared["names"] = examples.names
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "verify", stop)
    everything = data.load(Run(run).read_config().data)
    with pytest.raises(KeyboardInterrupt):
        exported(run, tmp_path, everything, coverage=0.8, full=True)
    assert {*compared["names"]} == {*Run(run).examples("validation").names}


def test_images_of_training_are_read_only_where_they_are_needed(
    run: Path, labeled: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "all_examples", property(lambda _: pytest.fail("loaded")))
    module = sys.modules["keras_vit.export.bundle"]
    assert len(module._Source.of(run, labeled, False).sample(4, 0)) == 4


EXPORT = """
import sys
from keras_vit import data, export, models
digits = data.load("digits").subset(range(20))
model = models.build(models.size("Micro/4").replace(image_size=(8, 8), classes=10, num_layers=1))
options = {"quantizations": ["float32"], "warm_up": False, "verbose": 1}
export.bundle(model, sys.argv[1], examples=digits, **options)
"""


@pytest.mark.slow
def test_full_disk_names_the_folder(
    model: keras.Model, labeled: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **options: object) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "a.pb; No space left on device")

    monkeypatch.setattr(saved_model, "_fill", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        exported(model, tmp_path / "bundle", labeled)
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(tmp_path / "bundle"))
    assert not list(tmp_path.iterdir())


def test_only_leftovers_of_exports_are_removed(tmp_path: Path) -> None:
    for name in (".2023.original", ".2023.originals", ".keras_vit_export.notes"):
        (tmp_path / name / "a.raw").mkdir(parents=True)
        assert not _is_leftover(tmp_path / name)
    for name in (
        ".12.abcd_012/12",
        ".batching.config.abcd_012/batching.config",
        ".keras_vit_export.abcd_012/saved_model",
    ):
        (tmp_path / name).mkdir(parents=True)
        assert _is_leftover((tmp_path / name).parent)


@pytest.mark.slow
@pytest.mark.parametrize("moved", [False, True])
def test_files_of_a_killed_export_are_removed(
    model: keras.Model,
    labeled: Examples,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moved: bool,
) -> None:
    answered(monkeypatch)
    module = sys.modules["keras_vit.export.bundle"]
    install = module._install

    def killed(source: Path, target: Path) -> None:
        if target.parent.name == "vit":  # as it is after a kill at this moment
            left = tmp_path / ("vit/.2.abcd_012/2" if moved else ".keras_vit_export.abcd_012/a")
            shutil.copytree(source, left)
            raise KeyboardInterrupt
        install(source, target)

    whole = exported(model, tmp_path, labeled, quantizations=["float32"])
    monkeypatch.setattr(module, "_install", killed)
    with pytest.raises(KeyboardInterrupt):
        exported(model, tmp_path, labeled, quantizations=["float32"])
    monkeypatch.setattr(module, "_install", install)
    assert (tmp_path / "vit-files" / "2").is_dir()
    shutil.rmtree(whole.saved_model)  # by its owner, who keeps the files
    done = exported(model, tmp_path, labeled, quantizations=[])
    assert done.saved_model == tmp_path / "vit" / "2"
    assert [path.name for path in (tmp_path / "vit-files").iterdir()] == ["1"]


@pytest.mark.slow
def test_a_kill_never_leaves_a_version_that_a_server_would_load(tmp_path: Path) -> None:
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", EXPORT, tmp_path / "whole"], check=True)
    whole = time.monotonic() - start
    killed = 0
    for share in np.linspace(0.3, 1.02, 20):
        folder = tmp_path / f"{share:.3f}"
        running = subprocess.Popen([sys.executable, "-c", EXPORT, folder], start_new_session=True)
        time.sleep(share * whole)
        killed += running.poll() is None
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        for version in folder.glob("vit/*"):
            if version.name.isdecimal():  # what a server would load is complete
                assert (version / "assets.extra" / "manifest.json").is_file()
                assert load_predictor(version).labels
    assert killed > 10
    again = subprocess.run([sys.executable, "-c", EXPORT, folder], capture_output=True)
    assert again.returncode == 0
    assert saved_model.versions(folder / "vit")
