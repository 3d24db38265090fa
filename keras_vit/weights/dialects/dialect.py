"""Weight names and layouts of other libraries' Vision Transformers, as tables.

A `Dialect` has one table row per tensor, used for both reading and writing.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from keras_vit.arguments import shortlist
from keras_vit.layers.position_embedding import POSITIONS
from keras_vit.models import ViTConfig
from keras_vit.weights.checkpoint import PROJECTION, Checkpoint
from keras_vit.weights.dialects.axes import Layout, sides
from keras_vit.weights.infer_config import infer_fields
from keras_vit.weights.positions import fold_registers, insert_registers, join_positions

# Part of the table for models whose last norm comes after the pooling.
NORM_AFTER_POOLING = "norm after pooling"
# The only part that some units or blocks of a model may lack.
SHORTCUT = "shortcut"

Index = tuple[tuple[str, int], ...]  # such as (("stage", 0), ("unit", 2))
Condition = Callable[[ViTConfig], bool]
# Name in the table -> name in the file, and the tensor.
Named = dict[str, tuple[str, np.ndarray]]
Normalize = Callable[[dict[str, np.ndarray]], Named]

# Numbers in names. Ours start from 0; `{stage1}` in their names starts from 1.
_PLACEHOLDER = re.compile(r"\{(\w+?)(1?)\}")


@dataclasses.dataclass(frozen=True)
class Row:
    """Table row that maps a variable of this package to tensors of another library.

    Args:
        ours: Path of the variable; `{block}`, `{stage}` and `{unit}` stand for numbers.
        theirs: Tensor name in the other library, or several names of tensors that are
            concatenated along the last axis of our variable.
        axes: Axes of the tensor in the other library and of our variable, see `Layout`.
        part: Optional part of a model, for example `"class token"`: a file has all rows of a
            part or none. Rows without a part are in every file, unless a part of the file has
            another row for the same variable.

    Examples:
        >>> Row("head/kernel", "head.weight", "YF -> FY", "head").theirs
        'head.weight'
    """

    ours: str
    theirs: str | tuple[str, ...]
    axes: str
    part: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Tensor names in the other library, always as a tuple."""
        return (self.theirs,) if isinstance(self.theirs, str) else self.theirs

    def part_at(self, index: Index) -> tuple[str, Index]:
        """Returns the row's part and, for shortcuts, which only some units have, the indices."""
        return self.part, index if self.part == SHORTCUT else ()

    @property
    def layout(self) -> Layout:
        """Axes of each tensor in the other library and of its slice of our variable."""
        return Layout.parse(self.axes)


@dataclasses.dataclass(frozen=True)
class Dialect:
    """Tensor names and layouts of Vision Transformers in one library.

    Args:
        name: Short name, `"timm"`.
        title: Name for messages, `"timm"` or `"official"`.
        rows: The table. The row of a position table has only the axis T, or 1 and T.
        required_names: Tensor names that identify the library: every file contains all of them.
        any_of_names: Further names, at least one of which is in every file.
        in_attention: Kinds of positions in attention that the library has, see `Positions`.
        format: Format of `save_weights` that writes this dialect; by default `name`.
        supports: Whether the format writes models of a configuration in this dialect; the first
            dialect of a format that supports the configuration is taken.
        alternatives: Other names of the same variables: part -> condition for writing it.
        implied_fields: Function that returns the fields of `ViTConfig` that are fixed by the
            library's code and not stored in files, given the fields inferred from a file.
        ignored: Patterns of names to ignore deliberately, for example of a decoder.
        normalize: Converts names and tensors of older or newer files to those of the table.
        optional_prefix: Whether a position table may lack rows for the prefix tokens.
        no_register_rows: Whether a position table has no rows for the register tokens. They are
            read as zeros, and added to the tokens to be written.
        packed: Tensors of files that concatenate several tensors of the table along the first
            axis: name in the file -> names in the table.
        notes: Pattern of a tensor's name -> note for the user on how it is converted.
        prefix: Text before all tensor names of a file, which is ignored.

    Examples:
        >>> rows = (Row("head/kernel", "fc", "YF -> FY"),)  # theirs is (classes, channels)
        >>> toy = Dialect("toy", "toy", rows, required_names=("fc",))
        >>> checkpoint = toy.read({"fc": np.zeros((5, 7))}, "a.npz")
        >>> checkpoint.tensors["head/kernel"].shape, checkpoint.inferred["classes"]
        ((7, 5), 5)
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    required_names: tuple[str, ...]
    any_of_names: tuple[str, ...] = ()
    in_attention: tuple[str, ...] = ()
    format: str = ""
    supports: Condition = lambda config: True
    alternatives: Mapping[str, Condition] = dataclasses.field(default_factory=dict)
    implied_fields: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda inferred: {}
    ignored: tuple[str, ...] = ()
    normalize: Normalize = lambda tensors: {n: (n, tensor) for n, tensor in tensors.items()}
    optional_prefix: bool = False
    no_register_rows: bool = False
    packed: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prefix: str = ""

    def matches(self, names: Iterable[str]) -> bool:
        """Returns whether a file with these tensor names is from this library.

        Args:
            names: Names of the tensors in a file.
        """
        normalized = self._normalized(dict.fromkeys(names, np.zeros(0))).keys()
        any_of = not self.any_of_names or not normalized.isdisjoint(self.any_of_names)
        return any_of and set(self.required_names) <= normalized

    def read(self, tensors: Mapping[str, np.ndarray], source: str) -> Checkpoint:
        """Converts a file's tensors to a checkpoint; each name must be in the table or ignored.

        Args:
            tensors: Arrays by name in the file.
            source: Source of the tensors, for messages.

        Returns:
            The checkpoint with this package's variable names and layouts.

        Raises:
            ValueError: If tensors are missing or unknown, or have a shape that contradicts the
                others; the message lists all of them.
        """
        normalized = self._normalized(tensors)
        file_names = {name: file_name for name, (file_name, _) in normalized.items()}
        ignored = tuple(n for n in normalized if any(re.fullmatch(p, n) for p in self.ignored))
        named = {name: tensor for name, (_, tensor) in normalized.items() if name not in ignored}

        expected = list(self._expected(set(named)))
        expected_rows = {name: row for row, _, names in expected for name in names}
        layouts = {name: row.layout for name, row in expected_rows.items() if name in named}
        sizes = _most_frequent(
            s for name, layout in layouts.items() for s in sides(layout.theirs, named[name].shape)
        )
        misfits = [n for n, layout in layouts.items() if not layout.fits(named[n].shape, sizes)]
        contradicting = [f"{file_names[name]} {named[name].shape}" for name in misfits]
        missing = sorted(expected_rows.keys() - named.keys())
        duplicates = tensors.keys() - file_names.values()  # old and new names of the same tensor
        extra = {file_names[name] for name in named.keys() - expected_rows.keys()}
        unknown = sorted(duplicates | extra)
        if sizes.keys() >= {"D", "K", "d"} and sizes["K"] * sizes["d"] != sizes["D"]:
            contradicting.append(f"{sizes['K']} heads of {sizes['d']} for {sizes['D']} channels")
        if missing or unknown or contradicting:
            raise ValueError(
                f"{source} is not a complete {self.title} Vision Transformer checkpoint. "
                f"Missing: {_some(missing)}. Unknown: {_some(unknown)}. With a shape that does "
                f"not match the other tensors: {_some(contradicting)}."
            )
        variables, origins = {}, {}
        for row, index, names in expected:
            ours = _fill(row.ours, index, block_digits=2)
            parts = [row.layout.read(named.pop(name), sizes) for name in names]
            variables[ours] = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
            origins[ours] = tuple(file_names[name] for name in names)
        if self.no_register_rows:
            insert_registers(variables)
        inferred = infer_fields(variables, optional_prefix=self.optional_prefix)
        inferred |= self.implied_fields(inferred)
        letters = {"num_heads": "K", "channels": "C"}
        # The projection of a hybrid has the channels of the feature map, not of the image.
        inferred = {n: sizes[letter] for n, letter in letters.items() if letter in sizes} | inferred
        if {"P", "Q"} <= sizes.keys():
            inferred["patch_size"] = (sizes["P"], sizes["Q"])
        if any(row.part == NORM_AFTER_POOLING for row, *_ in expected):
            inferred |= {"norm_after_pooling": True, "pooling": "gap"}
        inferred.setdefault("position_embedding", "none")
        prefix_note = f"The prefix {self.prefix!r} of all tensor names in {source} is ignored"
        notes = {"prefix": prefix_note} if self.prefix else {}
        notes |= {p: f"{source}: {note}" for p, note in self.notes.items() if _any(p, tensors)}
        ignored = tuple(file_names[name] for name in ignored)
        checkpoint = Checkpoint(source, variables, inferred, None, self.name, origins, ignored)
        return checkpoint.replace(optional_prefix=self.optional_prefix, notes=notes)

    def write(self, tensors: Mapping[str, np.ndarray], config: ViTConfig) -> dict[str, np.ndarray]:
        """Converts a model's weights to the tensor names and layouts of this library.

        Args:
            tensors: Arrays of all variables of a model by path.
            config: The model's configuration.

        Returns:
            Arrays by their name, in the order of the table.

        Raises:
            ValueError: If the dialect does not support a tensor, or requires a missing tensor.
        """
        kind, format = config.position_embedding, self.format or self.name
        if POSITIONS[kind].in_attention and kind not in self.in_attention:
            raise ValueError(
                f"The format {format!r} must support the model's positions. Received: "
                f"position_embedding={kind!r}, key_bias={config.key_bias}. Write this model in the "
                "'keras' format."
            )
        if self.no_register_rows:
            tensors = fold_registers(tensors, config)
            config = config.replace(prefix_position=True)
        tensors = join_positions(tensors, config, optional_prefix=self.optional_prefix)
        sizes = {"K": config.num_heads, "d": config.hidden_size // config.num_heads}
        sizes |= {"P": config.patch[0], "Q": config.patch[1], "C": config.channels}
        if config.stem_blocks is not None:
            sizes["C"] = len(tensors[PROJECTION]) // math.prod(config.patch)
        chosen = {part for part, condition in self.alternatives.items() if condition(config)}
        norm = NORM_AFTER_POOLING if config.norm_after_pooling else ""
        replaced = {row.ours for row in self.rows if row.part in chosen}
        rows = [r for r in self.rows if r.part == norm or not r.ours.startswith("encoder_norm/")]
        rows = [
            row
            for row in rows
            if row.part in chosen or not (row.part in self.alternatives or row.ours in replaced)
        ]
        matches = [(row, name, i) for row in rows for name, i in _matches(row.ours, tensors)]
        unknown = sorted(tensors.keys() - {name for _, name, _ in matches})
        matched = {row.ours for row, *_ in matches}
        unmatched = [row.ours for row in rows if not row.part and row.ours not in matched]
        missing = [_fill(ours, (("block", 0),), block_digits=2) for ours in unmatched]
        if unknown or missing:
            raise ValueError(
                f"The format {format!r} must have a name for every tensor of the model, and the "
                f"model must have a tensor for every name. Without a name: {_some(unknown)}. "
                f"Without a tensor: {_some(missing)}. Write this model in the 'keras' format."
            )
        for row, name, _ in matches:
            *shape, last = tensors[name].shape
            sizes = dict(sides(row.layout.ours, (*shape, last // len(row.names)))) | sizes
        written = {}
        for row, name, index in matches:
            parts = np.split(tensors[name], len(row.names), axis=-1)
            for theirs, part in zip(row.names, parts, strict=True):
                written[_fill(theirs, index)] = np.ascontiguousarray(row.layout.write(part, sizes))
        for packed, names in self.packed.items():
            if names[0] in written:
                written[packed] = np.concatenate([written.pop(name) for name in names])
        return written

    def _normalized(self, tensors: Mapping[str, np.ndarray]) -> Named:
        """Returns the names and tensors of a file by the names of the table."""
        normalized = self.normalize({n.removeprefix(self.prefix): t for n, t in tensors.items()})
        for packed, names in self.packed.items():
            if packed in normalized:
                file_name, tensor = normalized.pop(packed)
                parts = np.array_split(np.atleast_1d(tensor), len(names))
                normalized |= {n: (file_name, part) for n, part in zip(names, parts, strict=True)}
        return {n: (self.prefix + file_name, t) for n, (file_name, t) in normalized.items()}

    def _expected(self, names: set[str]) -> Iterator[tuple[Row, Index, list[str]]]:
        """Yields the rows that a file with these names must contain, with indices filled in.

        If a file contains no blocks at all, the tensors of block 0 are expected.
        """
        indices: dict[tuple[str, ...], set[Index]] = {(): {()}, ("block",): {(("block", 0),)}}
        present: set[tuple[str, Index]] = set()
        for row in self.rows:
            row_indices = indices.setdefault(_placeholders(row.ours), set())
            for template in row.names:
                for _, index in _matches(template, names):
                    row_indices.add(index)
                    if template == row.names[0]:  # the others may belong to another part as well
                        present.add(row.part_at(index))
        indices = {key: group | _gaps(group) for key, group in indices.items()}
        replaced = {row.ours for row in self.rows if row.part and (row.part, ()) in present}
        for row in self.rows:
            for index in sorted(indices[_placeholders(row.ours)]):
                has_part = row.part_at(index) in present
                if has_part if row.part else row.ours not in replaced:
                    yield row, index, [_fill(template, index) for template in row.names]


def renamed(rename: Callable[[str], str]) -> Normalize:
    """Returns a `normalize` function for a library whose files differ only in tensor names."""
    return lambda tensors: {rename(name): (name, tensor) for name, tensor in tensors.items()}


def exact_gelu(**fields: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Returns an `implied_fields` function for a library that always uses the exact GELU."""
    return lambda inferred: {"gelu": "exact", **fields}


def _gaps(indices: Iterable[Index]) -> set[Index]:
    """Returns the indices that are missing from a sequence 0, 1, ..., for error messages.

    Never returns more indices than `indices` has, however large their numbers are.
    """
    numbers_at: dict[tuple[Index, str, Index], set[int]] = collections.defaultdict(set)
    for index in indices:
        for level, (name, number) in enumerate(index):
            rest = tuple((other, 0) for other, _ in index[level + 1 :])
            numbers_at[index[:level], name, rest].add(number)
    return {
        (*before, (name, number), *rest)
        for (before, name, rest), numbers in numbers_at.items()
        for number in set(range(len(numbers))) - numbers
    }


def _most_frequent(letter_sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the most frequent size of each axis letter, so that outliers can be reported."""
    counts: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for letter, size in letter_sizes:
        counts[letter][size] += 1
    wide = counts["W"]
    for size in counts["M"]:  # W = M, or 2M if the MLP is gated
        counts["M"][size] += wide[size] + wide[2 * size]
    sizes = {letter: counts[letter].most_common(1)[0][0] for letter in counts if counts[letter]}
    if "M" in sizes and "W" in sizes:
        sizes["W"] = sizes["M"] * (1 + (wide[2 * sizes["M"]] > wide[sizes["M"]]))
    return sizes


def _placeholders(template: str) -> tuple[str, ...]:
    return tuple(name for name, _ in _PLACEHOLDER.findall(template))


def _fill(template: str, index: Index, block_digits: int = 1) -> str:
    """Replaces the placeholders of a name template with numbers."""
    numbers = dict(index)

    def number(match: re.Match[str]) -> str:
        digits = block_digits if match[1] == "block" else 1
        return str(numbers[match[1]] + bool(match[2])).zfill(digits)

    return _PLACEHOLDER.sub(number, template)


def _matches(template: str, names: Iterable[str]) -> Iterator[tuple[str, Index]]:
    """Yields the names that match a template, and the numbers in them."""
    pattern = _pattern(template)
    for name in names:
        if match := pattern.fullmatch(name):
            numbers = match.groupdict().items()
            yield name, tuple((key.rstrip("1"), int(n) - key.endswith("1")) for key, n in numbers)


@functools.cache
def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", re.escape(template)))


def _any(pattern: str, names: Iterable[str]) -> bool:
    return any(re.fullmatch(pattern, name) for name in names)


def _some(names: list[str]) -> str:
    return shortlist(names, shown=20) or "nothing"
