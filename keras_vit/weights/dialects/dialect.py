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
# The only part that may exist in some units or blocks only.
SHORTCUT = "shortcut"

Index = tuple[tuple[str, int], ...]  # such as (("stage", 0), ("unit", 2))
Condition = Callable[[ViTConfig], bool]
# Arrays by the name in the table, with the name in the file.
Tidy = Callable[[dict[str, np.ndarray]], dict[str, tuple[str, np.ndarray]]]

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
        marks: Tensor names that identify the library; each of its files contains all of them.
        any_mark: Further names, of which each of its files contains at least one.
        in_attention: Kinds of positions in attention that the library has, see `Positions`.
        format: Format of `save_weights` that writes this dialect; by default `name`.
        suits: Whether the format writes models of this configuration in this dialect; the first
            dialect of a format that suits is taken.
        alternatives: Parts that have other names for the same variables, with the condition under
            which a model is written with them.
        numerics: Returns fields of `ViTConfig` that the library's code determines and files do
            not contain, from the fields inferred from a file.
        left: Patterns of names to ignore deliberately, for example of a decoder.
        tidy: Converts names and tensors of older or newer files to those of the table.
        loose_positions: Whether a position table may lack rows for the prefix tokens.
        bare_registers: Whether a position table has no rows for the register tokens. They are
            read as zeros, and added to the tokens to be written.
        packed: Tensors of files that hold several of the table in equal parts of the first axis.
        notes: Sentences on what is not read as it is in the file, by the pattern of a name.
        prefix: Text before all tensor names of a file, which is ignored.

    Examples:
        >>> rows = (Row("head/kernel", "fc", "YF -> FY"),)  # theirs is (classes, channels)
        >>> toy = Dialect("toy", "toy", rows, marks=("fc",)).read({"fc": np.zeros((5, 7))}, "a.npz")
        >>> toy.tensors["head/kernel"].shape, toy.inferred["classes"]
        ((7, 5), 5)
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    marks: tuple[str, ...]
    any_mark: tuple[str, ...] = ()
    in_attention: tuple[str, ...] = ()
    format: str = ""
    suits: Condition = lambda config: True
    alternatives: Mapping[str, Condition] = dataclasses.field(default_factory=dict)
    numerics: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda inferred: {}
    left: tuple[str, ...] = ()
    tidy: Tidy = lambda tensors: {name: (name, tensor) for name, tensor in tensors.items()}
    loose_positions: bool = False
    bare_registers: bool = False
    packed: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    prefix: str = ""

    def speaks(self, names: Iterable[str]) -> bool:
        """Returns whether tensors with these names come from this library.

        Args:
            names: Names of the tensors in a file.
        """
        found = self._tidied(dict.fromkeys(names, np.zeros(0))).keys()
        one = not self.any_mark or not found.isdisjoint(self.any_mark)
        return one and set(self.marks) <= found

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
        tidied = self._tidied(tensors)
        original = {name: before for name, (before, _) in tidied.items()}
        left = tuple(n for n in tidied if any(re.fullmatch(p, n) for p in self.left))
        named = {name: tensor for name, (_, tensor) in tidied.items() if name not in left}

        expected = list(self._expected(set(named)))
        wanted = {name: row for row, _, names in expected for name in names}
        present = {name: row.layout for name, row in wanted.items() if name in named}
        sizes = _most_frequent(
            s for name, layout in present.items() for s in sides(layout.theirs, named[name].shape)
        )
        wrong = [n for n, layout in present.items() if not layout.fits(named[n].shape, sizes)]
        contradicting = [f"{original[name]} {named[name].shape}" for name in wrong]
        missing = sorted(wanted.keys() - named.keys())
        doubled = tensors.keys() - original.values()  # old and new names of the same tensor
        unknown = sorted(doubled | {original[name] for name in named.keys() - wanted.keys()})
        if sizes.keys() >= {"D", "K", "d"} and sizes["K"] * sizes["d"] != sizes["D"]:
            contradicting.append(f"{sizes['K']} heads of {sizes['d']} for {sizes['D']} channels")
        if missing or unknown or contradicting:
            raise ValueError(
                f"{source} is not a complete {self.title} Vision Transformer checkpoint. "
                f"Missing: {_some(missing)}. Unknown: {_some(unknown)}. With a shape that does "
                f"not match the other tensors: {_some(contradicting)}."
            )
        found, origins = {}, {}
        for row, index, names in expected:
            ours = _fill(row.ours, index, block_digits=2)
            parts = [row.layout.read(named.pop(name), sizes) for name in names]
            found[ours] = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
            origins[ours] = tuple(original[name] for name in names)
        if self.bare_registers:
            insert_registers(found)
        inferred = infer_fields(found, loose_positions=self.loose_positions)
        inferred |= self.numerics(inferred)
        letters = {"num_heads": "K", "channels": "C"}
        # The projection of a hybrid has the channels of the feature map, not of the image.
        inferred = {n: sizes[letter] for n, letter in letters.items() if letter in sizes} | inferred
        if {"P", "Q"} <= sizes.keys():
            inferred["patch_size"] = (sizes["P"], sizes["Q"])
        if any(row.part == NORM_AFTER_POOLING for row, *_ in expected):
            inferred |= {"norm_after_pooling": True, "pooling": "gap"}
        inferred.setdefault("position_embedding", "none")
        ignored = f"The prefix {self.prefix!r} of all tensor names in {source} is ignored"
        notes = {"prefix": ignored} if self.prefix else {}
        notes |= {p: f"{source}: {note}" for p, note in self.notes.items() if _any(p, tensors)}
        origin = (self.name, origins, tuple(original[name] for name in left))
        return Checkpoint(source, found, inferred, None, *origin, self.loose_positions, notes)

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
                f"position_embedding={kind!r}. Write this model in the 'keras' format."
            )
        if self.bare_registers:
            tensors = fold_registers(tensors, config)
            config = config.replace(prefix_position=True)
        tensors = join_positions(tensors, config, loose=self.loose_positions)
        sizes = {"K": config.num_heads, "d": config.hidden_size // config.num_heads}
        sizes |= {"P": config.patch[0], "Q": config.patch[1], "C": config.channels}
        if config.stem_blocks is not None:
            sizes["C"] = len(tensors[PROJECTION]) // math.prod(config.patch)
        chosen = {part for part, holds in self.alternatives.items() if holds(config)}
        last = NORM_AFTER_POOLING if config.norm_after_pooling else ""
        replaced = {row.ours for row in self.rows if row.part in chosen}
        rows = [r for r in self.rows if r.part == last or not r.ours.startswith("encoder_norm/")]
        rows = [
            row
            for row in rows
            if row.part in chosen or not (row.part in self.alternatives or row.ours in replaced)
        ]
        places = [(row, name, index) for row in rows for name, index in _matches(row.ours, tensors)]
        homeless = sorted(tensors.keys() - {name for _, name, _ in places})
        found = {row.ours for row, *_ in places}
        needed = [row.ours for row in rows if not row.part and row.ours not in found]
        lacking = [_fill(ours, (("block", 0),), block_digits=2) for ours in needed]
        if homeless or lacking:
            raise ValueError(
                f"The format {format!r} must have a name for every tensor of the model, and the "
                f"model must have a tensor for every name. Without a name: {_some(homeless)}. "
                f"Without a tensor: {_some(lacking)}. Write this model in the 'keras' format."
            )
        for row, name, _ in places:
            *shape, last = tensors[name].shape
            sizes = dict(sides(row.layout.ours, (*shape, last // len(row.names)))) | sizes
        written = {}
        for row, name, index in places:
            shares = np.split(tensors[name], len(row.names), axis=-1)
            for theirs, share in zip(row.names, shares, strict=True):
                written[_fill(theirs, index)] = np.ascontiguousarray(row.layout.write(share, sizes))
        for whole, parts in self.packed.items():
            if parts[0] in written:
                written[whole] = np.concatenate([written.pop(name) for name in parts])
        return written

    def _tidied(self, tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
        """Returns the names and tensors of a file by the names of the table."""
        tidied = self.tidy({n.removeprefix(self.prefix): tensor for n, tensor in tensors.items()})
        for whole, names in self.packed.items():
            if whole in tidied:
                old, tensor = tidied.pop(whole)
                parts = np.array_split(np.atleast_1d(tensor), len(names))
                tidied |= {name: (old, part) for name, part in zip(names, parts, strict=True)}
        return {name: (self.prefix + old, tensor) for name, (old, tensor) in tidied.items()}

    def _expected(self, names: set[str]) -> Iterator[tuple[Row, Index, list[str]]]:
        """Yields the rows that a file with these names must contain, with indices filled in.

        If a file contains no blocks at all, the tensors of block 0 are expected.
        """
        kinds: dict[tuple[str, ...], set[Index]] = {(): {()}, ("block",): {(("block", 0),)}}
        present: set[tuple[str, Index]] = set()
        for row in self.rows:
            found = kinds.setdefault(_kind(row.ours), set())
            for template in row.names:
                for _, index in _matches(template, names):
                    found.add(index)
                    if template == row.names[0]:  # the others may belong to another part as well
                        present.add(row.part_at(index))
        kinds = {kind: found | _gaps(found) for kind, found in kinds.items()}
        replaced = {row.ours for row in self.rows if row.part and (row.part, ()) in present}
        for row in self.rows:
            for index in sorted(kinds[_kind(row.ours)]):
                has_part = row.part_at(index) in present
                if has_part if row.part else row.ours not in replaced:
                    yield row, index, [_fill(template, index) for template in row.names]


def renamed(rename: Callable[[str], str]) -> Tidy:
    """Returns a `tidy` function for a library whose files differ only in tensor names."""
    return lambda tensors: {rename(name): (name, tensor) for name, tensor in tensors.items()}


def exact(**fields: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Returns a `numerics` function for a library that always uses the exact GELU."""
    return lambda inferred: {"gelu": "exact", **fields}


def _gaps(found: Iterable[Index]) -> set[Index]:
    """Returns the indices that are missing from a sequence 0, 1, ..., for error messages.

    Never returns more indices than were found, however large the numbers are.
    """
    counts: dict[tuple[Index, str, Index], set[int]] = collections.defaultdict(set)
    for index in found:
        for place, (name, number) in enumerate(index):
            rest = tuple((other, 0) for other, _ in index[place + 1 :])
            counts[index[:place], name, rest].add(number)
    return {
        (*before, (name, number), *rest)
        for (before, name, rest), numbers in counts.items()
        for number in set(range(len(numbers))) - numbers
    }


def _most_frequent(found: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Returns the most frequent size of each axis letter, so that outliers can be reported."""
    votes: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for letter, side in found:
        votes[letter][side] += 1
    wide = votes["W"]
    for side in votes["M"]:  # W = M, or 2M if the MLP is gated
        votes["M"][side] += wide[side] + wide[2 * side]
    sizes = {letter: votes[letter].most_common(1)[0][0] for letter in votes if votes[letter]}
    if "M" in sizes and "W" in sizes:
        sizes["W"] = sizes["M"] * (1 + (wide[2 * sizes["M"]] > wide[sizes["M"]]))
    return sizes


def _kind(template: str) -> tuple[str, ...]:
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
