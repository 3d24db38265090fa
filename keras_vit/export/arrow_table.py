"""Tables of predictions with a type for each column, for Parquet files and Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Columns of text, some of them numbered.
_TEXTS = ("class", "file", "label", "message", "nearest", "prediction", "present", "set")


def arrow_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Any:
    """Returns rows as a `pyarrow.Table`; columns without values have the types of their values."""
    import pyarrow

    table = pyarrow.table({name: [row.get(name) for row in rows] for name in columns})
    types = dict.fromkeys(_TEXTS, pyarrow.string())
    types |= {"set_size": pyarrow.int64(), "in_distribution": pyarrow.bool_()}
    types["embedding"] = pyarrow.list_(pyarrow.float64())
    for index, name in enumerate(columns):
        if table[index].type == pyarrow.null():
            kind = types.get(name.rstrip("_0123456789"), pyarrow.float64())
            table = table.set_column(index, name, pyarrow.nulls(len(rows), kind))
    return table
