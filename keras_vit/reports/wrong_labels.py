"""Page and tables of images whose label is likely wrong, from the runs of a cross-validation."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np

from keras_vit import files, output_folder
from keras_vit.data import Examples
from keras_vit.data.pipeline import read_pixels
from keras_vit.escapes import csv_cell
from keras_vit.evaluation.label_errors import label_errors
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.predict import predict
from keras_vit.tasks.run_data import Run
from keras_vit.visualization.html_page import Section, page, paragraph, pictures

_NUM_SHOWN = 200  # images on the page


def write_label_errors(
    folds: str | os.PathLike[str], out: str | os.PathLike[str], *, verbose: int = 0
) -> int:
    """Finds images whose label is likely wrong, and writes a page and tables of labels.

    Every image is classified by the run that it was held out from. `index.html` shows the images
    with the least probable labels; `labels.csv` lists all images in the same order, with the likely
    label where it is likely wrong, and `without.csv` leaves these images out. Both tables are data
    for training. The images and their labels are not changed.

    Args:
        folds: Folder of a cross-validation, written by `keras-vit train --folds`.
        out: Output folder, new or written before.
        verbose: 0 is silent, 1 shows progress bars.

    Returns:
        Number of images whose label is likely wrong.

    Raises:
        ValueError: If `folds` is not a complete cross-validation of images with one class in files.

    Examples:
        >>> write_label_errors("runs/folds", "labels")  # doctest: +SKIP
        17
    """
    runs = [Run(path) for path in sorted(Path(folds).glob("fold_*"))]
    if not runs or not (Path(folds) / "folds.json").is_file():
        raise ValueError(
            "`folds` must be a complete folder of `keras-vit train --folds`. Received: "
            f"folds={os.fspath(folds)!r}"
        )
    config = runs[0].read_config()
    examples = runs[0].all_examples
    if config.task != "classification" or examples.multi_label or examples.paths is None:
        raise ValueError(
            "`folds` must be of images in files, with one class per image. Received: "
            f"{examples.source}, for the task {config.task}"
        )
    indices = [run.indices() for run in runs]
    parts = zip(runs, map(examples.subset, indices), strict=True)
    predictions = [predict(run.model(), held_out, verbose=verbose) for run, held_out in parts]
    targets, outputs, (*_, preprocessing) = zip(*predictions, strict=True)
    labels, probabilities = np.concatenate(targets), np.concatenate(outputs)
    # Those of the models, since folders of classes may have been added.
    class_names = preprocessing.class_names or examples.class_names
    held_out = examples.subset(np.concatenate(indices))
    examples = dataclasses.replace(held_out, targets=labels, class_names=class_names)
    order = np.argsort(probabilities[np.arange(len(labels)), labels], kind="stable")
    examples, probabilities = examples.subset(order), probabilities[order]
    wrong, likely = label_errors(examples.targets, probabilities)
    with output_folder.writing(out, "labels", ("index.html", "labels.csv", "without.csv")):
        changes = dict(zip(wrong.tolist(), likely.tolist(), strict=True))
        head, *rows = _table(examples, probabilities, changes, Path(out))
        files.write_csv(Path(out) / "labels.csv", [head, *rows])
        unchanged = (row for i, row in enumerate(rows) if i not in changes)
        files.write_csv(Path(out) / "without.csv", [head, *unchanged])
        html = _page(examples, probabilities, changes, preprocessing)
        files.write_text(Path(out) / "index.html", html, errors="backslashreplace")
    return len(wrong)


def _table(
    examples: Examples, probabilities: np.ndarray, changes: dict[int, int], folder: Path
) -> list[tuple[str, ...]]:
    """Returns the rows of `labels.csv`, with paths relative to its folder, and other columns."""
    names = examples.class_names
    folder = folder.resolve()  # `..` of a link is beside its target
    header = ("file", "label", "given_label", "probability_of_given_label")
    columns = {name: cells for name, cells in examples.columns.items() if name not in header}
    rows: list[tuple[str, ...]] = [(*header, *columns)]
    for i, label in enumerate(examples.targets.tolist()):
        path = os.path.relpath(examples.paths[i], folder)  # type: ignore[index]
        first = (path, names[changes.get(i, label)], names[label], f"{probabilities[i, label]:.4f}")
        rows.append((*first, *(cells[i] for cells in columns.values())))
    return [tuple(map(csv_cell, row)) for row in rows]


def _page(
    examples: Examples,
    probabilities: np.ndarray,
    changes: dict[int, int],
    preprocessing: Preprocessing,
) -> str:
    names, predicted = examples.class_names, probabilities.argmax(axis=1)
    indices = np.flatnonzero(predicted != examples.targets)[:_NUM_SHOWN].tolist()
    intro = paragraph(
        f"{len(changes)} of {len(examples)} images ({len(changes) / len(examples):.1%}) have a "
        "label that is likely wrong: a model that was not trained on the image is confident of "
        "another class. labels.csv has the likely labels, without.csv leaves these images out. "
        "Other images may have wrong labels, too: those below without 'likely' are not changed."
    )
    sections = [Section("summary", "Likely wrong labels", [intro])]
    if indices:
        rgb = preprocessing.to_rgb(read_pixels([examples.read(i) for i in indices], preprocessing))
        items = []
        for image, i in zip(rgb, indices, strict=True):
            label, alternative = int(examples.targets[i]), changes.get(i, int(predicted[i]))
            text = (
                f"labelled {names[label]} ({probabilities[i, label]:.1%}), "
                f"{'likely' if i in changes else 'predicted as'} {names[alternative]} "
                f"({probabilities[i, alternative]:.1%}): {examples.names[i]}"
            )
            items.append(([image], text))
        title = f"The {len(indices)} images with the least probable labels"
        sections.append(Section("images", title, [pictures(items)]))
    return page("Labels", Path(examples.source).name or examples.source, sections)
