"""The preprocessing as text files inside an artifact, for readers without Keras."""

from __future__ import annotations

import json
from pathlib import Path

from keras_vit.preprocessing import Preprocessing

PREPROCESSING = "preprocessing.json"
LABELS = "labels.txt"
THRESHOLDS = "thresholds.txt"


def texts(preprocessing: Preprocessing) -> dict[str, str]:
    r"""Returns the content of the files that travel with an exported model.

    Args:
        preprocessing: The preprocessing.

    Returns:
        `preprocessing.json`, the whole preprocessing; where there are labels `labels.txt`, one per
        line as mobile libraries expect; and where each label is present or not by itself
        `thresholds.txt`, one number per line.

    Example:
        >>> texts(Preprocessing(class_names=("daisy", "rose")))["labels.txt"]
        'daisy\nrose\n'
    """
    found = {
        PREPROCESSING: json.dumps(preprocessing.get_config(), indent=2, ensure_ascii=False) + "\n",
    }
    if preprocessing.class_names:
        found[LABELS] = "".join(
            f"{' '.join(label.split())}\n" for label in preprocessing.class_names
        )
    if preprocessing.thresholds:
        found[THRESHOLDS] = "".join(f"{threshold!r}\n" for threshold in preprocessing.thresholds)
    return found


def write(preprocessing: Preprocessing, folder: Path) -> None:
    """Writes `texts` into a folder.

    Args:
        preprocessing: The preprocessing, with labels.
        folder: Where they go; it must exist.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write(Preprocessing(class_names=("daisy", "rose")), folder)
        >>> sorted(path.name for path in folder.iterdir())
        ['labels.txt', 'preprocessing.json']
    """
    for name, text in texts(preprocessing).items():
        (folder / name).write_text(text, encoding="utf-8")


def lines(path: Path, count: int) -> tuple[str, ...]:
    """Returns the lines of `labels.txt` or `thresholds.txt`.

    Args:
        path: The file.
        count: Number of classes.

    Returns:
        One text per class.

    Raises:
        ValueError: If the file has another number of lines.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write(Preprocessing(class_names=("daisy", "rose")), folder)
        >>> lines(folder / LABELS, 2)
        ('daisy', 'rose')
    """
    found = tuple(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    if len(found) != count:
        raise ValueError(
            f"`path` must have one line for each of the {count} classes in {path.name}. "
            f"Received: {len(found)} lines in {path}"
        )
    return found


def numbers(path: Path, count: int) -> tuple[float, ...]:
    """Returns what `thresholds.txt` holds.

    Args:
        path: The file.
        count: Number of classes.

    Returns:
        One threshold per class.

    Raises:
        ValueError: If the file has another number of lines, or one is no number.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write(Preprocessing(class_names=("daisy", "rose"), thresholds=(0.25, 0.5)), folder)
        >>> numbers(folder / THRESHOLDS, 2)
        (0.25, 0.5)
    """
    found = []
    for number, line in enumerate(lines(path, count), 1):
        try:
            found.append(float(line))
        except ValueError as error:
            raise ValueError(
                f"`path` must have a number in each line of {path.name}. "
                f"Received: {line!r} in line {number} of {path}"
            ) from error
    return tuple(found)


def parse(preprocessing: str | bytes, artifact: str) -> Preprocessing:
    """Returns the preprocessing that `preprocessing.json` describes.

    Args:
        preprocessing: The file's content.
        artifact: What the file belongs to, for messages.

    Returns:
        The preprocessing.

    Raises:
        ValueError: If the content is damaged.

    Example:
        >>> preprocessing = Preprocessing(size=(8, 12), class_names=("daisy", "rose"))
        >>> parse(texts(preprocessing)["preprocessing.json"], "serving/photos/1") == preprocessing
        True
    """
    try:
        return Preprocessing.from_config(json.loads(preprocessing))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`path` must hold the {PREPROCESSING} that was exported with it; export it again. "
            f"Received: path={artifact!r}, with a damaged one: {error}"
        ) from error
