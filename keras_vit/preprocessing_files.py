"""Text files that describe an exported model's preprocessing to programs without Keras."""

from __future__ import annotations

import json
from pathlib import Path

from keras_vit.arguments import naming_place
from keras_vit.preprocessing import Preprocessing

PREPROCESSING = "preprocessing.json"
LABELS = "labels.txt"
THRESHOLDS = "thresholds.txt"


def texts(preprocessing: Preprocessing) -> dict[str, str]:
    """Returns the contents of an exported model's preprocessing files, keyed by file name."""
    contents = {
        PREPROCESSING: json.dumps(preprocessing.get_config(), indent=2, ensure_ascii=False) + "\n",
    }
    if preprocessing.class_names:
        contents[LABELS] = "".join(
            f"{' '.join(label.split())}\n" for label in preprocessing.class_names
        )
    if preprocessing.thresholds:
        contents[THRESHOLDS] = "".join(f"{threshold!r}\n" for threshold in preprocessing.thresholds)
    return contents


def write_preprocessing(preprocessing: Preprocessing, folder: Path) -> None:
    """Writes the preprocessing files of an exported model to a folder."""
    for name, text in texts(preprocessing).items():
        (folder / name).write_text(text, encoding="utf-8")


def lines(path: Path, count: int) -> tuple[str, ...]:
    """Returns the `count` lines of `labels.txt` or `thresholds.txt`."""
    file_lines = tuple(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    if len(file_lines) != count:
        raise ValueError(
            f"`path` must have one line for each of the {count} classes in {path.name}. "
            f"Received: {len(file_lines)} lines in {path}"
        )
    return file_lines


def numbers(path: Path, count: int) -> tuple[float, ...]:
    """Returns the `count` thresholds in `thresholds.txt`."""
    values = []
    for number, line in enumerate(lines(path, count), 1):
        with naming_place(
            f"`path` must have a number in each line of {path.name}. Received: line {number} of "
            f"{path}"
        ):
            values.append(float(line))
    return tuple(values)


def parse(preprocessing: str | bytes, artifact: str) -> Preprocessing:
    """Parses the content of a `preprocessing.json` file."""
    with naming_place(
        f"`path` must contain the {PREPROCESSING} that was exported with the model; export the "
        f"model again. Received: path={artifact!r}, with a damaged file"
    ):
        return Preprocessing.from_config(json.loads(preprocessing))
