"""Comparison of new images with the held-out images of a run.

Letters: N images; Q measured quantities.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import stats

from keras_vit import files, output_folder
from keras_vit.arguments import text_table
from keras_vit.data.image_reading import upright_sides
from keras_vit.data.pipeline import read_pixels
from keras_vit.evaluation.statistics import exact_interval
from keras_vit.export.predictor import Image, compute_outputs, encode, pixel_functions
from keras_vit.models.out_of_distribution import last_results_of
from keras_vit.storage.paths import StoredFile
from keras_vit.tasks.classification.out_of_distribution import scored_network
from keras_vit.tasks.registry import trained_model
from keras_vit.tasks.run_data import Run
from keras_vit.visualization.html_page import Section, page, paragraph, pictures, table

_NUM_SHOWN = 24  # images on the page
_CONFIDENCE_LEVEL = 0.95  # confidence level of all intervals together
_NAMES = ("brightness", "contrast", "saturation", "sharpness")
_TABLE_HEADER = ("quantity", "held out", "new", "difference", "95% interval", "")


@dataclasses.dataclass(frozen=True)
class Change:
    """Mean of a quantity over held-out and new images.

    Args:
        name: Quantity.
        before: Mean over the held-out images.
        after: Mean over the new images.
        low: Lower end of the interval of the difference.
        high: Upper end.
    """

    name: str
    before: float
    after: float
    low: float
    high: float

    @property
    def is_different(self) -> bool:
        """True if the interval does not contain 0."""
        return not self.low <= 0 <= self.high

    def row(self) -> tuple[str, ...]:
        """Returns the cells of a table."""
        values = (self.before, self.after, self.after - self.before)
        interval = f"{self.low:.3f} to {self.high:.3f}"
        mark = "different" if self.is_different else ""
        return (self.name, *(f"{value:.3f}" for value in values), interval, mark)


@dataclasses.dataclass(frozen=True)
class Drift:
    """Differences between new images and the held-out images of a run.

    Args:
        changes: The change of each quantity: the out-of-distribution score, confidence, the
            fraction of each predicted class, and properties of the images.
        images: Number of new images.
        unreadable: Names of new images that cannot be read.

    Examples:
        >>> print(Drift((Change("confidence", 0.9, 0.6, -0.4, -0.2),), 50, ()).text())
        quantity    held out    new  difference      95% interval
        confidence     0.900  0.600      -0.300  -0.400 to -0.200  different
    """

    changes: tuple[Change, ...]
    images: int
    unreadable: tuple[str, ...]

    def text(self) -> str:
        """Formats the changes as a table for printing."""
        rows = [_TABLE_HEADER, *(change.row() for change in self.changes)]
        return "\n".join(text_table(rows, "<>>>><"))

    def to_json(self) -> dict[str, Any]:
        """Returns the changes as a dictionary that can be stored as JSON."""
        rows = [{**dataclasses.asdict(c), "different": c.is_different} for c in self.changes]
        return {"images": self.images, "unreadable": [*self.unreadable], "changes": rows}


def write_drift(
    run: str | os.PathLike[str],
    images: Sequence[str | os.PathLike[str] | StoredFile],
    out: str | os.PathLike[str],
    *,
    batch_size: int = 32,
    verbose: int = 0,
) -> Drift:
    """Compares new images with the held-out images of a classifier's run, and writes a page.

    The intervals are those of the difference of two means (Welch's) or of two fractions
    (Newcombe's, of exact intervals), and contain all true differences together with a probability
    of at least 95% (Bonferroni's correction).

    Args:
        run: Folder of a complete run.
        images: Paths of the new images, or files in packed shards or object storage, at least two.
        out: Output folder, new or written before, for `index.html` and `drift.json`.
        batch_size: Batch size.
        verbose: 0 is silent, 1 shows a progress bar for the training images.

    Returns:
        The differences.

    Raises:
        ValueError: If `run` is not a complete run of a classifier with exclusive classes, or fewer
            than two images can be read.

    Examples:
        >>> write_drift("runs/photos", ["new/1.jpg", "new/2.jpg"], "drift")  # doctest: +SKIP
    """
    source_run = Run(run)
    source_run.require_complete()
    exported = trained_model(source_run.model())
    if not exported.task.has_sets:
        raise ValueError(
            "`run` must be of a classifier, with one class per image. Received: a run of the task "
            f"{exported.task.name}"
        )
    preprocessing = exported.preprocessing
    training, held_out = source_run.examples("train"), source_run.examples("validation")
    scored = scored_network(exported.network, preprocessing, training, verbose=verbose)

    def run_batch(pixels: np.ndarray) -> np.ndarray:
        outputs = np.asarray(scored(preprocessing.scale(pixels), training=False))
        score = np.asarray(last_results_of(scored)["ood_score"])
        return np.column_stack([score, outputs, *_properties(pixels)])

    def measure(images: Sequence[Image]) -> tuple[dict[str, np.ndarray], list[str]]:
        functions = pixel_functions(preprocessing, run_batch)
        results = list(compute_outputs(images, batch_size, *functions))
        values = np.array([row for row, problem in results if not problem])
        if len(values) < 2:
            raise ValueError(
                f"`images` must contain two readable images or more. Received: {len(values)}"
            )
        readable = [x for x, (_, problem) in zip(images, results, strict=True) if not problem]
        contents = (tf.constant(encode(image)[0]) for image in readable)
        sides = np.array([upright_sides(each, preprocessing).numpy() for each in contents], float)
        score, outputs, properties = np.split(values, (1, values.shape[1] - len(_NAMES)), axis=1)
        predicted, classes = outputs.argmax(axis=1), preprocessing.class_names or ()
        return {
            "out-of-distribution score": score[:, 0],
            "confidence": outputs.max(axis=1),
            **{f"predicted as {name}": predicted == k for k, name in enumerate(classes)},
            **dict(zip(_NAMES, properties.T, strict=True)),
            "megapixels": sides.prod(axis=1) / 1e6,
            "width / height": sides[:, 1] / sides[:, 0],
        }, [problem for _, problem in results]

    old, _ = measure([held_out.read(i) for i in range(len(held_out))])
    new, problems = measure(images)
    readable = [image for image, problem in zip(images, problems, strict=True) if not problem]
    unreadable = tuple(str(x) for x, problem in zip(images, problems, strict=True) if problem)
    changes = tuple(_change(name, old[name], new[name], len(old)) for name in old)
    drift = Drift(changes, len(readable), unreadable)
    with output_folder.writing(out, "drift", ("index.html", "drift.json")):
        files.write_json(Path(out) / "drift.json", drift.to_json())
        html = _page(drift, readable, new["out-of-distribution score"], preprocessing)
        files.write_text(Path(out) / "index.html", html, errors="backslashreplace")
    return drift


def _properties(pixels: np.ndarray) -> list[np.ndarray]:
    """Returns the properties `_NAMES` of images at the model's size, each (B,)."""
    colors = pixels / 255  # (B, h, w, C)
    gray = colors.mean(axis=-1)
    edges = [np.abs(np.diff(gray, axis=axis)).mean(axis=(1, 2)) for axis in (1, 2)]
    saturation = np.ptp(colors, axis=-1).mean(axis=(1, 2))
    return [gray.mean(axis=(1, 2)), gray.std(axis=(1, 2)), saturation, sum(edges)]


def _change(name: str, old: np.ndarray, new: np.ndarray, rows: int) -> Change:
    """Computes the interval of the difference of two means, one of `rows` intervals.

    Reference: R. G. Newcombe, "Interval estimation for the difference between independent
    proportions", Statistics in Medicine 17 (1998); with exact intervals, since Wilson's are too
    short for rare classes
    """
    level = 1 - (1 - _CONFIDENCE_LEVEL) / rows
    low = high = new.mean() - old.mean()
    if old.dtype == bool:  # few images may all be True or False, without spread for Welch's test
        (old_low, old_high), (new_low, new_high) = (exact_interval(x, level) for x in (old, new))
        low -= np.hypot(new.mean() - new_low, old_high - old.mean())
        high += np.hypot(new_high - new.mean(), old.mean() - old_low)
    elif np.ptp(old) or np.ptp(new):  # without spread SciPy's test is not defined
        # One of the two samples may have no spread.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            test = stats.ttest_ind(new, old, equal_var=False)
        low, high = test.confidence_interval(level)
    return Change(name, float(old.mean()), float(new.mean()), float(low), float(high))


def _page(drift: Drift, images: Sequence[Image], scores: np.ndarray, preprocessing: Any) -> str:
    different = [change.name for change in drift.changes if change.is_different]
    intro = (
        f"{drift.images} new images, compared with the held-out images of the run. Different: "
        f"{', '.join(different) or 'nothing'}. The intervals contain all true differences of the "
        "means together with a probability of 95%."
    )
    rows = [change.row() for change in drift.changes]
    sections = [Section("changes", "Differences", [paragraph(intro), table(_TABLE_HEADER, rows)])]
    indices = np.argsort(-scores, kind="stable")[:_NUM_SHOWN]
    contents = [encode(images[i])[0] for i in indices]
    pixels = preprocessing.to_rgb(read_pixels(contents, preprocessing))
    items = [
        ([image], f"score {scores[i]:.2f}: {images[i]!s}")
        for image, i in zip(pixels, indices, strict=True)
    ]
    title = "New images with the highest out-of-distribution scores"
    sections.append(Section("images", title, [pictures(items)]))
    if drift.unreadable:
        text = f"{len(drift.unreadable)} images cannot be read: {', '.join(drift.unreadable[:20])}"
        sections.append(Section("unreadable", "Unreadable images", [paragraph(text)]))
    return page("Drift", f"{drift.images} new images", sections)
