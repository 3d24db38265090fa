"""Verification of exported files by comparison with the Keras model.

Letters: N images.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.arguments import text_table
from keras_vit.data import Examples
from keras_vit.tasks.registry import task_of
from keras_vit.tasks.task import Predictions

_PROCESS = Path(__file__).with_name("runtime_worker.py")
_THREADS = (1, 2)


class VerificationError(RuntimeError):
    """Raised if the outputs of an exported artifact differ too much from those of its model.

    Args:
        message: Name of the artifact, size of the difference, and image.

    Examples:
        >>> str(VerificationError("model.tflite: the labels differ"))
        'model.tflite: the labels differ'
    """


@dataclasses.dataclass(frozen=True)
class Artifact:
    """An exported file or SavedModel to verify.

    Args:
        name: Name, unique in an export.
        kind: `"saved_model"`, `"tflite"`, `"onnx"` or `"openvino"`.
        path: File or folder.
        min_agreement: Fraction of the images with the Keras model's prediction, at least; None
            for an artifact that computes in float32 and must agree on every image.
    """

    name: str
    kind: str
    path: Path
    min_agreement: float | None = None

    def size(self) -> int:
        """Returns the total size of the artifact's files in bytes."""
        paths = self.path.rglob("*") if self.path.is_dir() else [self.path]
        if self.path.suffix == ".xml":  # OpenVINO stores the weights in a second file
            paths = [self.path, self.path.with_suffix(".bin")]
        return sum(path.stat().st_size for path in paths if path.is_file())


@dataclasses.dataclass(frozen=True)
class ArtifactComparison:
    """Result of comparing an exported artifact with the Keras model.

    Args:
        name: Name of the artifact.
        size: Size in bytes.
        milliseconds: Median time for one image, by number of threads, or `"all"`.
        accuracy: Fraction of the images with a correct class, or with all labels correct.
        agreement: Fraction of the images with the prediction of the Keras model.
        largest_difference: Largest difference of an output, relative to the largest value of its
            channel if that is above 1; NaN if an output is NaN.
        worst: Index of the image with the largest difference.
        ok: Whether agreement and difference are within the limits.

    Examples:
        >>> ArtifactComparison("float32", 22_000_000, {"1": 22.0}, 0.975, 1.0, 3e-7, 4, ok=True).ok
        True
    """

    name: str
    size: int
    milliseconds: dict[str, float]
    accuracy: float
    agreement: float
    largest_difference: float
    worst: int
    ok: bool

    def to_json(self) -> dict[str, Any]:
        """Returns the comparison for the manifest; NaN, which JSON does not have, is None."""
        difference = None if math.isnan(self.largest_difference) else self.largest_difference
        return {**dataclasses.asdict(self), "largest_difference": difference}


def verify(
    artifacts: Sequence[Artifact],
    examples: Examples,
    expected: Predictions,
    folder: Path,
    *,
    progress: bool = True,
) -> tuple[ArtifactComparison, ...]:
    """Runs artifacts in a process without Keras or keras_vit, and compares each image's outputs.

    The first artifact must be a SavedModel: its `preprocess` signature computes the pixels for the
    other artifacts, so that every artifact receives the same input as on a server.
    """
    if not len(examples):
        raise ValueError("`images` must contain at least one encoded image. Received: none")
    folder.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(folder / "images.tfrecord")) as records:
        for index in range(len(examples)):
            records.write(examples.read(index))
    task = {
        "names": list(examples.names),
        "threads": _THREADS,
        "signature": task_of(expected.preprocessing).compared_signature,
        "output": task_of(expected.preprocessing).output,
        "artifacts": {a.name: [a.kind, str(a.path.resolve())] for a in artifacts},
    }
    (folder / "task.json").write_text(json.dumps(task))
    _run(folder, progress)
    times = json.loads((folder / "times.json").read_text())
    return tuple(
        compared(artifact, times[artifact.name], np.load(folder / f"{artifact.name}.npy"), expected)
        for artifact in artifacts
    )


def compared(
    artifact: Artifact,
    milliseconds: dict[str, float],
    outputs: np.ndarray,
    expected: Predictions,
) -> ArtifactComparison:
    """Compares the outputs of an artifact with the outputs of the Keras model.

    Further columns of the artifact are not compared.
    """
    outputs = outputs[..., : expected.outputs.shape[-1]]
    scale = np.abs(expected.outputs).reshape(-1, outputs.shape[-1]).max(axis=0).clip(min=1)
    relative = np.abs(outputs - expected.outputs) / scale
    differences = relative.reshape(len(outputs), -1).max(axis=1)  # (N,)
    worst = int(differences.argmax())  # NaN counts as the largest
    min_agreement, close, tolerance = artifact.min_agreement, 0.0, math.inf
    if min_agreement is None:
        min_agreement = 1.0
        close = tolerance = 1e-5 if artifact.kind == "saved_model" else 1e-4
    same, accuracy = task_of(expected.preprocessing).agreement(outputs, expected, close)
    agreement = float(same.mean())
    return ArtifactComparison(
        name=artifact.name,
        size=artifact.size(),
        milliseconds=milliseconds,
        accuracy=accuracy,
        agreement=agreement,
        largest_difference=float(differences[worst]),
        worst=worst,
        ok=agreement >= min_agreement and bool(differences[worst] <= tolerance),
    )


def _run(folder: Path, progress: bool) -> None:
    # -P: do not search the script's folder, with names such as onnx, for modules.
    command = [sys.executable, "-P", str(_PROCESS), str(folder)]
    shows_count = progress and sys.stdout.isatty()
    last_lines: collections.deque[str] = collections.deque(maxlen=20)
    name = message = ""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # closed with this process, which ends the other process
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # On the CPU, which all artifacts support; this process occupies a GPU's memory.
        env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
    ) as running:
        for line in running.stdout or ():
            if line.startswith("= "):
                name = line[2:].strip()
                if progress and not shows_count:
                    print(f"Verifying {name}", flush=True)
            elif line.startswith("! "):
                message = line[2:].strip()
            elif line.strip().replace("/", "").isdigit():
                if shows_count:
                    print(f"\r  verifying {name}: {line.strip()} images", end="", flush=True)
            else:
                last_lines.append(line)
    if shows_count:
        print("\r\x1b[K", end="", flush=True)
    if running.returncode:
        raise VerificationError(
            f"{name} could not be run in a separate process: {message or ''.join(last_lines)}"
        )


def table(results: Sequence[ArtifactComparison]) -> str:
    """Formats the results as a table for printing."""
    head = ("artifact", "MiB", "1 thread", "2 threads", "accuracy", "agreement", "difference", "")
    rows = [head]
    for r in results:
        times = {key: f"{value:.1f} ms" for key, value in r.milliseconds.items()}
        times |= {"1": "all cores", "2": times["all"]} if "all" in times else {}
        scores = (f"{r.accuracy:.4f}", f"{r.agreement:.4f}", f"{r.largest_difference:.1e}")
        sizes = (f"{r.size / 2**20:4.1f}", times.get("1", "-"), times.get("2", "-"))
        rows.append((r.name, *sizes, *scores, "" if r.ok else "REFUSED"))
    return "\n".join(text_table(rows, "<>>>>>><"))
