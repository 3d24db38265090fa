"""Argument checks whose error messages state the expected and the received value."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib.util
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

_MAX_FLOAT = sys.float_info.max
#: Beginnings of the URLs of object storage.
URL_SCHEMES = ("s3://", "gs://")
#: Beginnings of names of datasets of other libraries.
LIBRARIES = ("tfds:", "hf:")
#: Suffixes of tables of images.
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl")
# Remedies for files with images or labels in unsupported formats.
_REMEDIES = {
    (".xlsx", ".xls", ".ods"): "Save the spreadsheet as CSV UTF-8.",
    (".zip", ".tar", ".gz", ".tgz", ".7z"): "Unpack the archive and pass the folder.",
    (".parquet",): "Save its images as files, and list their names and labels in a CSV file.",
    (".json",): (
        "List names and labels in a CSV file; COCO's masks need `--task segmentation`, its boxes "
        "`--task detection`."
    ),
}


@contextlib.contextmanager
def naming_place(place: str) -> Iterator[None]:
    """Converts errors of a damaged file to a `ValueError` that begins with `place`."""
    try:
        yield
    except Exception as error:  # each parser has its own error classes
        reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ValueError(f"{place} ({' '.join(reason.split())})") from error


def nearest(value: str, options: Iterable[str]) -> str:
    """Returns a "Did you mean ...?" sentence for a misspelled name, or an empty string."""
    by_lower_case = {option.lower(): option for option in options}
    close = difflib.get_close_matches(value.lower(), by_lower_case, n=1, cutoff=0.6)
    return f" Did you mean {by_lower_case[close[0]]!r}?" if close else ""


def shortlist(names: Sequence[str], shown: int = 8) -> str:
    """Formats the first few names and the number of remaining names for a message."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def listed(title: str, lines: Sequence[str], shown: int = 20) -> str:
    """Formats a title, the first few lines and the number of remaining lines as indented text."""
    more = [f"... and {len(lines) - shown} more"] if len(lines) > shown else []
    return "\n  ".join([title, *lines[:shown], *more])


def text_table(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Formats rows as lines of aligned columns; `sides` has `<` or `>` for each column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    columns = [f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True)]
    return ["  ".join(columns).format(*row).rstrip() for row in rows]


def one_of(name: str, value: object, options: Sequence[object], hint: str = "") -> None:
    """Raises `ValueError` unless `value` is one of `options`; `hint` replaces the nearest."""
    if value in options:
        return
    names = [option for option in options if isinstance(option, str)]
    hint = hint or (nearest(value, names) if isinstance(value, str) else "")
    introduction = f"these.{hint} Options: " if hint else ""  # before a list that may be long
    expected = introduction + ", ".join(repr(option) for option in options)
    raise ValueError(f"`{name}` must be one of {expected}. Received: {name}={value!r}")


def among(*options: object) -> Callable[[str, object], None]:
    """Returns the check of an annotated field whose value must be one of `options`."""
    return partial(one_of, options=options)


def optional(check: Callable[[str, object], Any]) -> Callable[[str, object], Any]:
    """Returns the check of a value, such as that of an annotated field, that may also be None."""
    return lambda name, value: None if value is None else check(name, value)


def _integer(name: str, value: object, least: int, rule: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return int(value)


def _number(name: str, value: object, fits: Callable[[float], bool], rule: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not fits(value):
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return float(value)


# Checks of a named value, which return it as an integer or as a float, or raise `ValueError`.
positive_int = partial(_integer, least=1, rule="a positive integer")
count = partial(_integer, least=0, rule="a non-negative integer")
positive = partial(_number, fits=lambda x: 0 < x <= _MAX_FLOAT, rule="a positive number")
non_negative = partial(_number, fits=lambda x: 0 <= x <= _MAX_FLOAT, rule="a non-negative number")
fraction = partial(_number, fits=lambda x: 0 <= x <= 1, rule="in [0, 1]")
positive_fraction = partial(_number, fits=lambda x: 0 < x <= 1, rule="in (0, 1]")
inner_fraction = partial(_number, fits=lambda x: 0 < x < 1, rule="in (0, 1)")
rate = partial(_number, fits=lambda x: 0 <= x < 1, rule="a number in [0, 1)")

# Annotations of numeric fields, with the function that checks their range (`check_kinds`).
Count = Annotated[int, count]
PositiveInt = Annotated[int, positive_int]
Fraction = Annotated[float, fraction]
InnerFraction = Annotated[float, inner_fraction]
NonNegative = Annotated[float, non_negative]
Positive = Annotated[float, positive]
Rate = Annotated[float, rate]

# Types by the annotation of other fields, and their names in messages.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "str": ((str, os.PathLike), "text"),
    "str | None": ((str, os.PathLike, type(None)), "text"),
    "tuple[str, ...]": ((list, tuple), "a list"),
    "tuple[Any, ...]": ((list, tuple), "a list"),
    "dict[str, Any]": ((dict,), "a mapping"),
}


_hints = cache(partial(get_type_hints, include_extras=True))


def check_kinds(settings: Any) -> None:
    """Raises `ValueError` if a field of a dataclass has a value of another type or range."""
    hints = _hints(settings.__class__)
    for field in dataclasses.fields(settings):
        value, annotation = getattr(settings, field.name), str(field.type)
        if check := getattr(hints[field.name], "__metadata__", None):
            if type(checked := check[0](field.name, value)) is int:
                object.__setattr__(settings, field.name, checked)  # JSON has no integers of NumPy
            continue
        kinds, rule = _KINDS.get(annotation, ((object,), f"of the class {annotation}"))
        mismatch = annotation.istitle() and type(value).__name__ != annotation  # such as `Recipe`
        if mismatch or not isinstance(value, kinds):
            raise ValueError(f"`{field.name}` must be {rule}. Received: {field.name}={value!r}")


def hidden_size(value: int | None, num_heads: int) -> int:
    """Returns `value`; raises `ValueError` unless it is a multiple of `num_heads`."""
    if value is None or value % num_heads:
        raise ValueError(
            "`hidden_size` must be a multiple of `num_heads`. "
            f"Received: hidden_size={value}, num_heads={num_heads}"
        )
    return value


def is_number(value: object) -> bool:
    """Returns whether a value is an integer or a float, but not a boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def size_pair(name: str, value: object) -> tuple[int, int]:
    """Converts a positive integer, or a pair of positive integers, to (height, width)."""
    sides = value if isinstance(value, (tuple, list)) else (value, value)
    if len(sides) != 2:
        raise ValueError(
            f"`{name}` must be a positive integer or a pair (height, width). "
            f"Received: {name}={value!r}"
        )
    return positive_int(name, sides[0]), positive_int(name, sides[1])


def regular_file(name: str, path: str | os.PathLike[str]) -> None:
    """Raises `ValueError` unless `path` is a regular file; `/dev/zero`, for example, is not."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(
            f"`{name}` must be a regular file, not a folder, pipe or device. Received: "
            f"{os.fspath(path)}"
        )


def image_source(data: str | os.PathLike[str]) -> None:
    """Raises `ValueError` if `data` cannot be a data source for `keras_vit.data.load`."""
    spec, path = str(data), Path(data).expanduser()
    is_table = path.is_file() and path.suffix.lower() in TABLE_SUFFIXES
    if path.is_dir() or is_table or spec == "digits" or spec.startswith((*LIBRARIES, *URL_SCHEMES)):
        return
    remedies = (text for suffixes, text in _REMEDIES.items() if path.suffix.lower() in suffixes)
    if path.is_file() and (remedy := next(remedies, None)):
        raise ValueError(f"`data` must be a folder or a table. {remedy} Received: data={spec!r}")
    scheme, colon, name = spec.partition(":")
    if colon and (similar := [s for s in LIBRARIES if nearest(scheme, [s[:-1]])]):
        hint = f" Did you mean '{similar[0]}{name}'?"
    else:
        neighbors = path.parent.iterdir() if path.parent.is_dir() else ()
        names = [
            str(path.parent / p.name) for p in neighbors if p.is_dir() or p.suffix in TABLE_SUFFIXES
        ]
        hint = nearest(spec, ["digits", *names])
    raise ValueError(
        "`data` must be a folder of class folders, a folder with a labels.csv, a table (.csv, .tsv "
        "or .jsonl), one of these at s3:// or gs://, packed shards, "
        f'"tfds:NAME", "hf:NAME" or "digits".{hint} Received: data={spec!r}'
        f"{'' if path.exists() else ', which does not exist'}"
    )


def install_hint(extra: str) -> str:
    """Returns the command to install an extra of this package, from its checkout or from PyPI."""
    if Path(__file__).parents[1].joinpath("pyproject.toml").is_file():
        return f'in your keras_vit checkout, run: pip install -e ".[{extra}]"'
    return f'run: pip install "keras-vit-toolkit[{extra}]"'


def require_package(module: str, extra: str, reason: str) -> None:
    """Raises `ImportError` with a reason and `install_hint` unless a module is installed."""
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{reason}; {install_hint(extra)}")


def without_password(url: str) -> str:
    """Returns a URL or address whose user name and password are replaced by dots."""
    return re.sub(r"^(\w+://)?.*@", r"\1...@", url, flags=re.DOTALL)


def command(*words: object) -> str:
    """Returns a `keras-vit` command line, quoted for a shell."""
    return shlex.join(["keras-vit", *map(str, words)])
