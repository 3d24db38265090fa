"""Argument checks shared by all floors; every message says what was expected and received."""

from __future__ import annotations

import difflib
import math
import os
import shlex
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

_TABLES = (".csv", ".tsv", ".jsonl")
# What to do with files that hold images or labels but are not read.
_REMEDIES = {
    (".xlsx", ".xls", ".ods"): "Save the spreadsheet as CSV UTF-8.",
    (".zip", ".tar", ".gz", ".tgz", ".7z"): "Unpack the archive and name the folder.",
    (".parquet",): "Write its images to files, and their names and labels to a CSV file.",
    (".json",): "Write the names and labels of the images to a CSV file.",
}


def nearest(value: str, options: Iterable[str]) -> str:
    """Returns a "Did you mean ...?" sentence for a misspelt name, or an empty string.

    Args:
        value: What the user wrote.
        options: The valid names.

    Returns:
        A sentence with a leading space, or `""` if nothing comes close.

    Example:
        >>> nearest("ViTB61", ["ViTB16", "ViTL16"])
        " Did you mean 'ViTB16'?"
    """
    by_lower_case = {option.lower(): option for option in options}
    close = difflib.get_close_matches(value.lower(), by_lower_case, n=1, cutoff=0.6)
    return f" Did you mean {by_lower_case[close[0]]!r}?" if close else ""


def shortlist(names: Sequence[str], shown: int = 8) -> str:
    """Returns the first names for a message, and how many more there are.

    Example:
        >>> shortlist(["daisy", "rose", "tulip"], shown=2)
        'daisy, rose and 1 more'
    """
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def listed(title: str, lines: Sequence[str], shown: int = 20) -> str:
    """Returns a title, the first lines below it, and how many more there are.

    Example:
        >>> print(listed("Flowers:", ["daisy", "rose"]))
        Flowers:
          daisy
          rose
    """
    more = [f"... and {len(lines) - shown} more"] if len(lines) > shown else []
    return "\n  ".join([title, *lines[:shown], *more])


def one_of(name: str, value: object, options: Sequence[object]) -> None:
    """Raises `ValueError` unless `value` is one of `options`.

    Args:
        name: Name of the argument, for the message.
        value: What was received.
        options: The valid values.

    Raises:
        ValueError: If `value` is not among `options`.

    Example:
        >>> one_of("gelu", "tanh", ("tanh", "exact"))
    """
    if value in options:
        return
    names = [option for option in options if isinstance(option, str)]
    hint = nearest(value, names) if isinstance(value, str) else ""
    expected = ", ".join(repr(option) for option in options)
    raise ValueError(f"`{name}` must be one of {expected}.{hint} Received: {name}={value!r}")


def positive_int(name: str, value: object) -> int:
    """Returns `value` if it is a positive integer.

    Args:
        name: Name of the argument, for the message.
        value: What was received.

    Returns:
        The value as an `int`.

    Raises:
        ValueError: If `value` is not an integer of at least 1.

    Example:
        >>> positive_int("num_heads", 3)
        3
    """
    return _integer(name, value, 1, "a positive integer")


def count(name: str, value: object) -> int:
    """Returns `value` if it is an integer of at least 0.

    Args:
        name: Name of the argument, for the message.
        value: What was received.

    Returns:
        The value as an `int`.

    Raises:
        ValueError: If `value` is not an integer of at least 0.

    Example:
        >>> count("register_tokens", 4)
        4
    """
    return _integer(name, value, 0, "an integer of at least 0")


def positive(name: str, value: object) -> float:
    """Returns `value` if it is a positive number.

    Args:
        name: Name of the argument, for the message.
        value: What was received.

    Returns:
        The value as a `float`.

    Raises:
        ValueError: If `value` is not a number above 0.

    Example:
        >>> positive("epsilon", 1e-6)
        1e-06
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ValueError(f"`{name}` must be a positive number. Received: {name}={value!r}")
    return float(value)


def hidden_size(value: int | None, num_heads: int) -> int:
    """Returns `value` if the heads of an attention can share it equally.

    Args:
        value: Width D of the tokens; None if a layer's input does not say it.
        num_heads: Number of heads K.

    Returns:
        The width.

    Raises:
        ValueError: If D is unknown or no multiple of K.

    Example:
        >>> hidden_size(768, 12)
        768
    """
    if value is None or value % num_heads:
        raise ValueError(
            "`hidden_size` must be a multiple of `num_heads`. "
            f"Received: hidden_size={value}, num_heads={num_heads}"
        )
    return value


def is_number(value: object) -> bool:
    """Tells a number from text, truth values and everything else.

    Args:
        value: What was received.

    Returns:
        Whether it is an `int` or a `float`.

    Example:
        >>> is_number(0.5), is_number("0.5"), is_number(True)
        (True, False, False)
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def rate(name: str, value: object) -> float:
    """Returns `value` if it is a probability that leaves something over.

    Args:
        name: Name of the argument, for the message.
        value: What was received.

    Returns:
        The value as a `float` in [0, 1).

    Raises:
        ValueError: If `value` is not a number in [0, 1).

    Example:
        >>> rate("dropout_rate", 0.1)
        0.1
    """
    if not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise ValueError(f"`{name}` must be a number in [0, 1). Received: {name}={value!r}")
    return float(value)


def size_pair(name: str, value: object) -> tuple[int, int]:
    """Returns (height, width) for a positive integer or a pair of them.

    Args:
        name: Name of the argument, for the message.
        value: A side in pixels, or (height, width).

    Returns:
        The pair (height, width).

    Raises:
        ValueError: If `value` is neither.

    Example:
        >>> size_pair("patch_size", 16)
        (16, 16)
    """
    sides = value if isinstance(value, (tuple, list)) else (value, value)
    if len(sides) != 2:
        raise ValueError(
            f"`{name}` must be a positive integer or a pair (height, width). "
            f"Received: {name}={value!r}"
        )
    return positive_int(name, sides[0]), positive_int(name, sides[1])


def regular_file(name: str, path: str | os.PathLike[str]) -> None:
    """Refuses what may never end or never begin, such as a pipe or `/dev/zero`, before it is read.

    Args:
        name: Name of the argument.
        path: Its value.

    Raises:
        ValueError: If no regular file is at the path, nor a link to one.
        OSError: If nothing is there.

    Example:
        >>> regular_file("path", "/dev/zero")
        Traceback (most recent call last):
        ValueError: `path` must be a regular file, no folder, pipe or device. Received: /dev/zero
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(
            f"`{name}` must be a regular file, no folder, pipe or device. "
            f"Received: {os.fspath(path)}"
        )


def image_source(data: str | os.PathLike[str]) -> None:
    """Raises `ValueError` unless `keras_vit.data.load` may find images there.

    Args:
        data: A folder, a table (.csv, .tsv or .jsonl), `"tfds:NAME"` or `"digits"`.

    Raises:
        ValueError: If `data` is none of these, with the nearest that is.

    Example:
        >>> image_source("digits")
    """
    spec, path = str(data), Path(data).expanduser()
    is_table = path.is_file() and path.suffix.lower() in _TABLES
    if path.is_dir() or is_table or spec.startswith("tfds:") or spec == "digits":
        return
    for suffixes, remedy in _REMEDIES.items():
        if path.is_file() and path.suffix.lower() in suffixes:
            raise ValueError(
                f"`data` must be a folder or a table. {remedy} Received: data={spec!r}"
            )
    scheme, colon, name = spec.partition(":")
    if colon and nearest(scheme, ["tfds"]):
        hint = f" Did you mean 'tfds:{name}'?"
    else:
        beside = path.parent.iterdir() if path.parent.is_dir() else ()
        names = [str(path.parent / p.name) for p in beside if p.is_dir() or p.suffix in _TABLES]
        hint = nearest(spec, ["digits", *names])
    raise ValueError(
        "`data` must be a folder of class folders, a folder with a labels.csv, a table (.csv, .tsv "
        f'or .jsonl), "tfds:NAME" or "digits".{hint} Received: data={spec!r}'
        f"{'' if path.exists() else ', which does not exist'}"
    )


def install_hint(extra: str) -> str:
    """Returns how to install an extra of this package, which is on no index yet.

    Args:
        extra: Its name in pyproject.toml.

    Returns:
        The end of a message.

    Example:
        >>> install_hint("gpu")
        'in the checkout of keras_vit: pip install -e ".[gpu]"'
    """
    return f'in the checkout of keras_vit: pip install -e ".[{extra}]"'


def command(*words: object) -> str:
    """Returns a `keras-vit` command that can be pasted into a shell.

    Args:
        *words: What stands behind `keras-vit`: names, options and paths.

    Returns:
        The line, in which a path with spaces or quotes is quoted.

    Example:
        >>> command("train", "--resume", "--out", Path("my runs/first"))
        "keras-vit train --resume --out 'my runs/first'"
    """
    return shlex.join(["keras-vit", *map(str, words)])


def _integer(name: str, value: object, least: int, wanted: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise ValueError(f"`{name}` must be {wanted}. Received: {name}={value!r}")
    return int(value)
