"""Datasets described by the tables of a folder: one table, or one for each split."""

from __future__ import annotations

import re

import numpy as np

from keras_vit.arguments import TABLE_SUFFIXES
from keras_vit.data.examples import SPLIT_NAMES, Examples
from keras_vit.data.sources.csv_table import NoClassesError, is_ignored, load_table
from keras_vit.data.target_kinds import NUMBERS, TargetKind
from keras_vit.storage.paths import AnyPath, fields_of_paths

TABLES = ("labels.csv", "metadata.csv", "metadata.jsonl")
_SPLIT_TABLES = ("_classes.csv", *TABLES)
_SPLIT_STEM = re.compile(
    rf"({'|'.join(SPLIT_NAMES)})"
    r"([ _-]?(labels?|set|data|list|info|metadata|annotations?|classes|images?))?",
    re.IGNORECASE,
)
_WITHOUT_LABELS = re.compile("submission|predict", re.IGNORECASE)

_MAX_DEPTH = 5  # folders within each other

#: Path of each table and its split, or None for all splits.
Tables = list[tuple[AnyPath, str | None]]


def tables_of(folder: AnyPath) -> Tables:
    """Returns the tables that determine the classes of a folder, whatever its subfolders.

    That is the first of `TABLES`, or else the tables of the splits, such as `train.csv` or
    `train/_classes.csv`, if there is one for training.
    """
    for name in TABLES:
        if (folder / name).is_file():
            return [(folder / name, None)]
    tables: Tables = []
    for path in sorted(folder.iterdir()):
        if path.name.lower() in SPLIT_NAMES:
            split_tables = [path / name for name in _SPLIT_TABLES if (path / name).is_file()]
            tables += [(table, SPLIT_NAMES[path.name.lower()]) for table in split_tables[:1]]
        elif path.suffix.lower() in TABLE_SUFFIXES and (match := _SPLIT_STEM.fullmatch(path.stem)):
            tables.append((path, SPLIT_NAMES[match[1].lower()]))
    return tables if any(split == "train" for _, split in tables) else []


def inner_tables(folder: AnyPath) -> tuple[AnyPath, Tables]:
    """Returns the tables of a folder without class folders, or of its only subfolder."""
    for _ in range(_MAX_DEPTH):
        if tables := tables_of(folder) or _other_tables(folder):
            return folder, tables
        inner = [p for p in folder.iterdir() if p.is_dir() and not is_ignored(p)]
        if len(inner) != 1:
            break
        folder = inner[0]
    return folder, []


def _other_tables(folder: AnyPath) -> Tables:
    """Returns the only table of a folder, whatever its name."""
    tables = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in TABLE_SUFFIXES]
    tables = [path for path in tables if not _WITHOUT_LABELS.search(path.stem)]
    if len(tables) > 1:
        raise ValueError(
            "`data` must be the path of a table if a folder without class folders contains "
            f"several. Received: data={str(folder)!r} with {[path.name for path in tables[:20]]}"
        )
    return [(path, None) for path in tables]


def load_tables(folder: AnyPath, tables: Tables, kind: TargetKind | None = None) -> Examples:
    """Loads the images of tables as one dataset, whose names are relative to `folder`."""
    parts: list[tuple[str | None, Examples]] = []
    notes = []
    for path, split in tables:
        try:
            parts.append((split, load_table(path, kind, split)))
        except NoClassesError:
            if split in (None, "train"):
                raise
            notes.append(f"{path.relative_to(folder)} is not read, because it has no classes.")
    if len(tables) == 1 and tables[0][0].parent == folder:
        return parts[0][1]
    class_names = parts[0][1].class_names
    if any(part.class_names != class_names for _, part in parts):
        if kind is NUMBERS:
            raise ValueError(
                "The tables of all splits must have the same targets, in the same order. Received: "
                f"{[part.class_names for _, part in parts]} in {folder}"
            )
        class_names = tuple(sorted({name for _, part in parts for name in part.class_names}))
    multi_label = any(part.multi_label for _, part in parts)
    paths = [path for _, part in parts for path in part.places()]
    splits = [s for split, part in parts for s in part.splits or [split or "train"] * len(part)]
    file_names = ", ".join(str(path.relative_to(folder)) for path, _ in tables)
    return Examples(
        targets=np.concatenate([_targets(part, class_names, multi_label) for _, part in parts]),
        class_names=class_names,
        source=str(folder),
        **fields_of_paths(folder, paths),
        splits=tuple(splits) if {*splits} != {"train"} else None,
        columns={
            name: tuple(cell for _, part in parts for cell in part.columns[name])
            for name in parts[0][1].columns
            if all(name in part.columns for _, part in parts)
        },
        notes=(f"Read: {file_names}.", *(note for _, part in parts for note in part.notes), *notes),
        target_kind=kind,
    )


def _targets(part: Examples, class_names: tuple[str, ...], multi_label: bool) -> np.ndarray:
    """Returns the targets of a part as indices of, or (N, K) for, the classes of all parts."""
    if part.kind is NUMBERS:
        return part.targets
    position = np.array([class_names.index(name) for name in part.class_names], int)
    if not multi_label:
        return position[part.targets]
    targets = np.zeros((len(part), len(class_names)), np.uint8)
    targets[:, position] = part.kind.indicators(part)
    return targets
