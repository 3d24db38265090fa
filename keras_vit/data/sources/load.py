"""Loading of labeled images from folders, tables, TensorFlow Datasets or built-in digits."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter

import numpy as np
import sklearn.datasets
import tensorflow as tf

from keras_vit import arguments
from keras_vit.data.examples import Examples
from keras_vit.data.inventory import UNNAMED
from keras_vit.data.sources.csv_table import NoClassesError, load_table
from keras_vit.data.sources.folder import NoClassFoldersError, load_folder
from keras_vit.data.sources.hf import load_hf
from keras_vit.data.sources.masks import has_masks, without_masks
from keras_vit.data.sources.tables import TABLES, inner_tables, load_tables, tables_of
from keras_vit.data.sources.tfds import load_tfds
from keras_vit.data.target_kinds import NO_CLASSES, NO_TARGETS, TargetKind
from keras_vit.storage.find_files import find_files
from keras_vit.storage.paths import fields_of_files, to_path


def load(data: str | os.PathLike[str], kind: TargetKind | None = None) -> Examples:
    """Loads the labeled images of a data source.

    Args:
        data: One of:

            - a folder of class folders (`keras_vit.data.sources.folder.load_folder`);
            - a folder with a `labels.csv`, `metadata.csv` or `metadata.jsonl`, the first of which
              is read, or the path of such a file (`keras_vit.data.sources.csv_table.load_table`);
            - a folder with a table for each split, such as `train.csv` or `train/_classes.csv`, or
              with images and a single table instead of class folders;
            - `"tfds:NAME"` or `"tfds:NAME:SPLIT"` (`keras_vit.data.sources.tfds.load_tfds`);
            - `"hf:NAME"` or `"hf:NAME:CONFIG"` (`keras_vit.data.sources.hf.load_hf`);
            - packed shards (`keras_vit.storage.packing.pack`), as the folder that was packed;
            - any of these folders or tables in object storage, as `"s3://BUCKET/FOLDER"` or
              `"gs://BUCKET/FOLDER"`, with the extra `cloud`;
            - `"digits"`: scikit-learn's 1797 handwritten digits, 8 x 8 pixels, without a
              download.

        kind: Kind of the targets in tables: None for classes, or of
            `keras_vit.data.target_kinds` `NUMBERS` for regression and `NO_TARGETS` for none.

    Returns:
        The images, not decoded. The source is never modified.

    Raises:
        ValueError: If `data` is none of these, or contains no labeled images.

    Examples:
        >>> digits = load("digits")
        >>> len(digits), digits.class_names[3], digits.names[0]
        (1797, '3', 'digit_0000.png')
    """
    arguments.image_source(data)
    spec = str(data)
    if spec == "digits":
        return _digits()
    for library, load_dataset in zip(arguments.LIBRARIES, (load_tfds, load_hf), strict=True):
        if spec.startswith(library):
            return load_dataset(spec.removeprefix(library))
    path = to_path(data)
    if path.is_dir():
        tables = tables_of(path)
        if not tables:
            try:
                return load_folder(path)
            except NoClassFoldersError as error:
                if has_masks(path):
                    raise NoClassFoldersError(
                        f"{error}. For masks, use `--task segmentation`"
                    ) from error
                path, tables = inner_tables(path)
                if not tables:
                    raise
        examples = load_tables(path, tables, kind)
        files = find_files(path)
        unnamed = set(files.images) - {os.path.normpath(name) for name in examples.names}
        ignored_counts = Counter({**files.ignored, UNNAMED: len(unnamed)})
        ignored_counts.subtract(table.suffix for table, _ in tables)
        used_table = tables[0][0].name
        ignored_tables = [name for name in TABLES if name != used_table and (path / name).is_file()]
        note = f"Reading {used_table}; ignoring {' and '.join(ignored_tables)} in the same folder."
        notes = (note,) if ignored_tables else ()
        return dataclasses.replace(examples, notes=examples.notes + notes, ignored=+ignored_counts)
    return load_table(path, kind)


def load_images(source: str | os.PathLike[str]) -> Examples:
    """Loads the images of a data source, with or without labels, and without masks."""
    folder = to_path(source)
    is_folder = folder.is_dir() and not tables_of(folder) and str(source) != "digits"
    files = find_files(folder) if is_folder else None
    if not files or all("/" in name for name in files.images):
        try:
            return load(source)
        except NoClassesError:
            return load(source, NO_TARGETS)
        except NoClassFoldersError:
            if not files or not files.images:
                raise
    names = without_masks(files.images)
    return Examples(
        names=names,
        targets=np.zeros(len(names), "int32"),
        class_names=NO_CLASSES,
        source=str(folder),
        **fields_of_files(folder, names),
        ignored=+Counter({**files.ignored, "mask": len(files.images) - len(names)}),
        target_kind=NO_TARGETS,
    )


def _digits() -> Examples:
    digits = sklearn.datasets.load_digits()
    # Gray levels are 0 to 16 in scikit-learn.
    pixels = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    return Examples(
        names=tuple(f"digit_{i:04d}.png" for i in range(len(pixels))),
        targets=digits.target,
        class_names=tuple(str(digit) for digit in range(10)),
        source="digits",
        encoded=tuple(tf.io.encode_png(image).numpy() for image in pixels),
        flip_safe=False,
    )
