"""Check of the operators in a SavedModel, which is a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError, Message
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from keras_vit import arguments, files

# Operators of exported models that read or write files. `tf.saved_model.load` does not call the
# functions that contain those of checkpoints.
_CHECKPOINT = {"MergeV2Checkpoints", "RestoreV2", "SaveV2"}
_TABLE = "InitializeTableFromTextFileV2"


def check_operators(folder: Path) -> None:
    """Raises `ValueError` if a SavedModel has operators that exported models do not have.

    An operator can read and write any file and run code, with the permissions of the process. Files
    may be read only from the folder `assets`.
    """
    if (folder / "saved_model.cpb").exists():  # TensorFlow would prefer it
        raise ValueError(f"`source` must not have the file saved_model.cpb. Received: {folder}")
    try:
        content = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    except DecodeError as error:
        raise ValueError(f"`source` must be a complete SavedModel. Received: {folder}") from error
    allowed = set(files.asset("saved_model_operators.txt").split())
    graph = content.meta_graphs[0] if len(content.meta_graphs) == 1 else None
    if graph is None or not graph.HasField("object_graph_def"):
        raise ValueError(f"`source` must be a SavedModel of TensorFlow 2. Received: {folder}")
    functions = {f.signature.name: f.node_def for f in graph.graph_def.library.function}
    known = allowed | {name for name in functions if name.startswith("__")}
    called = {gradient.function_name for gradient in graph.graph_def.library.gradient}
    for node in (node for nodes in functions.values() for node in nodes):
        inner = (f for value in node.attr.values() for f in (value.func, *value.list.func))
        called |= {node.op}.union(*map(_strings, inner))
    public = called | _strings(graph.object_graph_def)
    forbidden = {
        node.op
        for name, nodes in functions.items()
        for node in nodes
        if node.op not in known
        or (node.op in _CHECKPOINT and name in public)
        or (node.op == _TABLE and (name in called or ":" in node.input[1]))
    }
    # With attributes such as `api_implements`, TensorFlow replaces functions by others. Those of
    # exported models begin with an underscore.
    for function in graph.graph_def.library.function:
        forbidden |= {f"the attribute {name}" for name in function.attr if name[0] != "_"}
    captured = {node.constant.operation for node in graph.object_graph_def.nodes}
    for node in graph.graph_def.node:
        # A captured string may be the path of a table; that of exported models is empty.
        value = node.attr["value"].tensor
        is_text = value.dtype == types_pb2.DT_STRING and node.name in captured
        if node.op not in known or (is_text and (any(value.string_val) or value.tensor_content)):
            forbidden.add(node.op)
    assets = folder.resolve() / "assets"
    for asset in graph.asset_file_def:
        if (assets / asset.filename).resolve().parent != assets:
            forbidden.add(f"the asset {asset.filename}")
    if forbidden:
        raise ValueError(
            "`source` must be a SavedModel with the operators of models exported by keras_vit, or "
            "from a trusted source (`trust=True`, `--trust`), because it can read and write files. "
            f"Received: {str(folder)!r} with {arguments.shortlist(sorted(forbidden))}"
        )


def _strings(message: Message) -> set[str]:
    """Returns all strings in a message: TensorFlow takes names of functions from many fields."""
    strings: set[str] = set()
    queue: list[Any] = [message]
    while queue:
        value = queue.pop()
        if isinstance(value, str):
            strings.add(value)
        elif isinstance(value, Message):
            queue += [inner for _, inner in value.ListFields()]
        elif isinstance(value, Mapping):
            queue += [*value.keys(), *value.values()]
        elif isinstance(value, Iterable) and not isinstance(value, bytes):
            queue += value
    return strings
