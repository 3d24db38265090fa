"""Export of a training run to a SavedModel, TFLite and other formats, with verification."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

from keras_vit import arguments, files, output_folder, training
from keras_vit.data import Examples
from keras_vit.data.image_reading import Limits
from keras_vit.export import manifest, onnx_openvino, saved_model, tflite, tflite_metadata, warmup
from keras_vit.export.compare_artifacts import (
    Artifact,
    ArtifactComparison,
    VerificationError,
    table,
    verify,
)
from keras_vit.export.saved_model import chosen_precision
from keras_vit.runs.config import versions
from keras_vit.tasks import class_rows
from keras_vit.tasks.confidence import Confidence
from keras_vit.tasks.registry import TrainedModel, trained_model
from keras_vit.tasks.run_data import evaluation_images
from keras_vit.tf_serving import batching

# Fraction of the images with the Keras model's prediction, by the precision of a SavedModel.
_AGREEMENTS = {"float32": None, "bfloat16": 0.995}
_CALIBRATION = 100  # images for the calibration of ranges
_HIDDEN = ".keras_vit_export."


@dataclasses.dataclass(frozen=True)
class Bundle:
    """Paths and verification results of the files written by `bundle`.

    Args:
        saved_model: The version folder for TensorFlow Serving.
        files: Folder of the files for phones and other runtimes, or None without such files.
        results: Comparison of each artifact, including refused artifacts.
        images: Number of compared images.

    Examples:
        >>> Bundle(Path("serving/vit/1"), None, (), 200).saved_model.name
        '1'
    """

    saved_model: Path
    files: Path | None
    results: tuple[ArtifactComparison, ...]
    images: int

    def text(self) -> str:
        """Formats the results as a table, and names the smallest verified TFLite files."""
        lines = [table(self.results)]
        quantizations = [r for r in self.results if r.name in tflite.QUANTIZATIONS]
        passed = [r for r in quantizations if r.ok]
        refused = [r.name for r in quantizations if not r.ok]
        if passed:
            lines.append(f"The smallest TFLite file that matches the model is {_smallest(passed)}.")
        calibrated = [r for r in passed if r.name in tflite.CALIBRATED]
        if calibrated:
            lines.append(f"The smallest with integer activations is {_smallest(calibrated)}.")
        if refused:
            lines.append(f"Left out for too many different predictions: {', '.join(refused)}.")
        return "\n".join(lines)

    def oldest_runtimes(self) -> dict[str, str]:
        """Returns the oldest TensorFlow Lite version that runs each TFLite file, by its name."""
        paths = sorted(self.files.glob("*.tflite")) if self.files else []
        return {path.stem: tflite_metadata.oldest_runtime(path) for path in paths}


def _smallest(results: Sequence[ArtifactComparison]) -> str:
    return min(results, key=lambda result: result.size).name


def bundle(
    run: str | os.PathLike[str] | keras.Model,
    directory: str | os.PathLike[str],
    *,
    name: str = "vit",
    quantizations: Sequence[str] | Literal["all"] | None = None,
    runtimes: Sequence[str] = (),
    examples: Examples | str | os.PathLike[str] | None = None,
    full: bool = False,
    coverage: float | None = None,
    false_alarm_rate: float | None = None,
    nearest_images: bool = False,
    prototypes: bool = False,
    sample: int = 200,
    min_agreement: float = 0.99,
    limits: Limits | None = None,
    precision: str = "float32",
    processor: str | None = None,
    warm_up: bool | None = None,
    tflite_batch_size: int = 1,
    seed: int = 0,
    verbose: int = 1,
) -> Bundle:
    """Exports a run, verifies the exported files against the Keras model, and installs them.

    `directory/NAME/VERSION/` is a SavedModel with the next free number, for TensorFlow Serving;
    `directory/NAME-files/VERSION/` contains the TFLite files and files of other runtimes. Every
    file is run on labeled images in a process without Keras and this package, and compared with
    the Keras model image by image, before it gets its final name. `directory/batching.config`,
    which is kept if it exists, contains the server's batch sizes.

    Args:
        run: The folder of a complete run, or a model.
        directory: Folder of the bundle; created if needed.
        name: Name of the model on the server.
        quantizations: TFLite files to write: keys of `tflite.QUANTIZATIONS`, which must agree;
            by default those of `tflite.DEFAULT_QUANTIZATIONS`, or with `"all"` those of
            `tflite.quantizations_of`, except those that agree on too few images.
        runtimes: Other runtimes to export for, of `onnx_openvino.WRITERS`.
        examples: Labeled images to verify with, or their data source; by default the run's held-out
            images. Ranges are calibrated on training images of the run, or, for a model, on some of
            `examples`, preferably not those to verify with.
        full: Whether to verify with all images.
        coverage: Probability with which the prediction sets of a classifier (outputs `set` and
            `set_size`) contain the true class, in (0, 1), chosen on all images to verify with
            that the run was not trained on; None for no sets.
        false_alarm_rate: Fraction of images like the held-out ones that a classifier's output
            `in_distribution` is False for, in (0, 1), by an out-of-distribution score (`ood_score`)
            fitted on the run's training images; None for no scores.
        nearest_images: Whether a classifier also returns the names (in files for phones and other
            runtimes: the indices) of the three most similar training images.
        prototypes: Whether the SavedModel also has signatures that take the rows of a classifier
            from a file `assets.extra/classes.pb`, to which `add_class` adds classes.
        sample: Number of images to verify with otherwise, drawn with `seed`.
        min_agreement: Fraction of the images on which the prediction of a quantization must equal
            the Keras model's, in [0, 1]. In float32, all must be equal.
        limits: Limits of the images that a server decodes; by default `Limits()`.
        precision: Precision of the SavedModel: `"float32"`; `"bfloat16"` for matrix products,
            which must predict the same class on 99.5% of the images; or `"auto"`, the faster one
            on the server's processor.
        processor: As for `chosen_precision`.
        warm_up: Whether to write warm-up requests for TensorFlow Serving; by default if
            tensorflow-serving-api is installed, which defines their format.
        tflite_batch_size: Batch size of the TFLite files.
        seed: Seed of the sample and of the images for calibration.
        verbose: 0 for silent, 1 for progress.

    Returns:
        The exported files and their comparisons.

    Raises:
        VerificationError: If the SavedModel, a file in float32 or a quantization given by name
            disagrees.
        ValueError: If an argument is out of range, the run is not complete, or the model is not an
            image classifier.
        ImportError: If a required package is not installed.
        OSError: If a file cannot be written.

    Examples:
        >>> from keras_vit import data, models
        >>> config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=10)
        >>> digits = data.load("digits").subset(range(20))
        >>> model, folder = models.build(config), tempfile.mkdtemp()
        >>> done = bundle(model, folder, examples=digits, quantizations=[], verbose=0)
        Note: model without class names; outputs by position: 0, 1, 2, 3, 4, 5, 6, 7 and 2 more.
        >>> done.saved_model.name, [result.ok for result in done.results]
        ('1', [True])
    """

    def say(text: str) -> None:
        if verbose:
            print(text, flush=True)

    saved_model.require_tensorflow()
    is_listed = quantizations is not None and quantizations != "all"
    for quantization in quantizations or () if is_listed else ():
        arguments.one_of("quantizations", quantization, tuple(tflite.QUANTIZATIONS))
    for kind in runtimes:
        arguments.one_of("runtimes", kind, tuple(onnx_openvino.WRITERS))
        onnx_openvino.require(kind)
    if warm_up is None:
        warm_up = warmup.is_possible()
        if not warm_up:
            say(f"No warm-up requests were written: {warmup.NEEDED}")
    elif warm_up:
        warmup.require()
    arguments.fraction("min_agreement", min_agreement)
    if not name or Path(name).name != name or name.startswith("."):
        raise ValueError(f"`name` must be a plain folder name. Received: name={name!r}")
    precision = chosen_precision(precision, processor)
    arguments.positive_int("sample", sample)
    arguments.positive_int("tflite_batch_size", tflite_batch_size)
    has_thresholds = coverage is not None or false_alarm_rate is not None
    source, limits = _Source.of(run, examples, has_thresholds), limits or Limits()
    exported = source.exported
    confidence = Confidence(
        coverage, false_alarm_rate, nearest_images, prototypes, source.trained, source.held_out
    )
    confidence.check(exported.task)
    compared = source.held_out if full or confidence.names() else source.sample(sample, seed)
    chosen = tflite.DEFAULT_QUANTIZATIONS if quantizations is None else quantizations
    chosen = tflite.quantizations_of(source.model) if chosen == "all" else chosen
    calibration = source.calibration(seed) if tflite.CALIBRATED & set(chosen) else []
    for quantization in chosen:
        tflite.check_quantization(quantization, source.model, calibration)
    directory = Path(directory)
    with output_folder.writing(directory, "export", ()), files.naming_full_disk(directory):
        _remove_leftovers(directory, name)
        say(f"Predicting {len(compared)} images with the Keras model")
        progress = int(bool(verbose) and sys.stdout.isatty())
        expected = exported.task.predict(source.model, compared, verbose=progress)
        if confidence.names():
            say(f"Preparing {', '.join(confidence.names())} with the training and held-out images")
            network, expected = exported.task.add_confidence(
                exported.network, expected, confidence, progress
            )
            exported = TrainedModel(exported.task, network, expected.preprocessing)
        # A hidden folder on the same disk, which a server ignores; verified files are renamed.
        with tempfile.TemporaryDirectory(prefix=_HIDDEN, dir=directory) as hidden:
            folder = Path(hidden)
            served, other_files = folder / "saved_model", folder / "files"
            other_files.mkdir()
            artifacts = [Artifact("saved_model", "saved_model", served, _AGREEMENTS[precision])]
            for quantization in chosen:
                agreement = None if quantization == "float32" else min_agreement
                path = other_files / f"{quantization}.tflite"
                artifacts.append(Artifact(quantization, "tflite", path, agreement))
            for kind in runtimes:
                path = other_files / f"model.{onnx_openvino.WRITERS[kind][1]}"
                artifacts.append(Artifact(kind, kind, path))
            converter = tflite.TFLiteConverter(
                exported, folder / "traced", calibration, tflite_batch_size
            )
            writers: dict[str, Callable[[TrainedModel, Path], Path]] = {
                "saved_model": partial(
                    saved_model.write_saved_model, limits=limits, precision=precision
                ),
                "tflite": lambda _, path: converter.write(path.stem, path),
                **{kind: write for kind, (write, _) in onnx_openvino.WRITERS.items()},
            }
            for number, artifact in enumerate(artifacts, 1):
                say(f"Writing {artifact.name} ({number} of {len(artifacts)})")
                writers[artifact.kind](exported, artifact.path)
            if prototypes:
                artifacts.append(dataclasses.replace(artifacts[0], name=class_rows.FILE))
            results = verify(
                artifacts, compared, expected, folder / "verification", progress=bool(verbose)
            )
            _check(results, compared.names, is_listed)
            for artifact, result in zip(artifacts, results, strict=True):
                if not result.ok:
                    artifact.path.unlink()
            if warm_up:
                say("Writing warm-up requests")
                warmup.write_requests(served, name=name)
            version = _next_version(directory, name)
            content = {
                "name": name,
                "version": version,
                "precision": precision,
                "model": source.model.name,
                "source": source.origin,
                "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "preprocessing": expected.preprocessing.get_config(),
                "limits": dataclasses.asdict(limits),
                "versions": versions(),
                "verification": {
                    "images": len(compared),
                    "artefacts": [result.to_json() for result in results],  # as earlier manifests
                },
            }
            manifest.write_manifests(served, other_files, content)
            batching.write_config(directory, source.model.count_params())
            installed_files = None
            if any(other_files.iterdir()):
                installed_files = directory / f"{name}-files" / str(version)
                _install(other_files, installed_files)
            saved = directory / name / str(version)
            _install(served, saved)  # last: the server loads new versions
    return Bundle(saved, installed_files, results, len(compared))


@dataclasses.dataclass(frozen=True)
class _Source:
    """Model to export, with its training images and held-out images."""

    model: keras.Model
    exported: TrainedModel
    held_out: Examples
    trained: Callable[[], Examples] | None
    origin: dict[str, str]

    @classmethod
    def of(
        cls, run: Any, examples: Examples | str | os.PathLike[str] | None, untrained: bool
    ) -> _Source:
        """Returns the source of a run or model; `untrained` leaves out images trained on."""
        opened = None if isinstance(run, keras.Model) else training.Run(run)
        if opened:
            opened.require_complete()
        model = opened.model() if opened else run
        exported = trained_model(model)
        if isinstance(examples, (str, os.PathLike)):
            examples = exported.task.load(examples)
        if opened:
            origin = {
                "run": opened.path.resolve().name,
                "data": files.without_folders((examples or opened.all_examples).source),
                "weights_sha256": manifest.sha256(opened.last),
            }
            if examples is None:
                examples = opened.examples("validation")
            elif untrained:
                examples = evaluation_images(opened, examples, exported.task).examples
            return cls(model, exported, examples, partial(opened.examples, "train"), origin)
        if examples is None:
            raise ValueError(
                "`examples` (--data) must be labeled images to verify the exported files on. "
                "Received: None"
            )
        return cls(
            model, exported, examples, None, {"data": files.without_folders(examples.source)}
        )

    def sample(self, size: int, seed: int) -> Examples:
        """Returns some of the held-out images, to verify with."""
        return self.held_out.subset(np.sort(_shuffled(len(self.held_out), seed)[:size]))

    def calibration(self, seed: int) -> list[bytes]:
        """Returns images to calibrate ranges on, preferably not those of `sample`."""
        images = self.trained() if self.trained else self.held_out
        indices = _shuffled(len(images), seed)[:: 1 if self.trained else -1]
        return [images.read(int(index)) for index in indices[:_CALIBRATION]]


def _shuffled(total: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(total)


def _check(results: Sequence[ArtifactComparison], names: Sequence[str], is_listed: bool) -> None:
    """Raises `VerificationError` if a required artifact disagrees with the Keras model."""
    optional = () if is_listed else tflite.QUANTIZATIONS.keys() - {"float32"}
    disagreeing = [r for r in results if not r.ok and r.name not in optional]
    if not disagreeing:
        return
    agreeing = [r for r in results if r.ok and r.name in tflite.QUANTIZATIONS]
    hint = ""
    if agreeing:
        hint = f"The smallest quantization that matches the model is {_smallest(agreeing)!r}. "
    details = "\n".join(
        f"{r.name} does not match the Keras model: it predicts the same for {r.agreement:.4f} of "
        f"the images, and outputs differ by up to {r.largest_difference:.1e} ({names[r.worst]})."
        for r in disagreeing
    )
    raise VerificationError(f"{details}\n{hint}Nothing was written.\n\n{table(results)}")


def _next_version(directory: Path, name: str) -> int:
    """Returns the next version number that neither the SavedModel nor the other files use."""
    folders = (directory / name, directory / f"{name}-files")
    return max(int(saved_model.next_version(folder).name) for folder in folders)


def _is_leftover(path: Path) -> bool:
    """Returns whether a killed export left a temporary folder."""
    names = (
        rf"{re.escape(_HIDDEN)}[a-z0-9_]{{8}}|\.(\d+|{re.escape(batching.FILE)})\.[a-z0-9_]{{8}}"
    )
    match = re.fullmatch(names, path.name) if path.is_dir() else None
    return match is not None and (not match[1] or {p.name for p in path.iterdir()} <= {match[1]})


def _remove_leftovers(directory: Path, name: str) -> None:
    """Removes temporary folders of killed exports, and their files without a SavedModel."""
    for folder in (directory, directory / name, directory / f"{name}-files"):
        for leftover in filter(_is_leftover, folder.glob(".*.*")):
            for path in leftover.glob(f"*/{saved_model.EXTRA}/{manifest.MANIFEST}"):
                with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
                    content = json.loads(path.read_text(encoding="utf-8"))
                    model, version = Path(content["name"]).name, str(int(content["version"]))
                    if not (directory / model / version).exists():
                        shutil.rmtree(directory / f"{model}-files" / version)
            shutil.rmtree(leftover, ignore_errors=True)


def _install(source: Path, target: Path) -> None:
    with files.atomic_path(target) as temporary:
        shutil.move(source, temporary)
