"""A SavedModel is a program: what it may do unless it is trusted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_vit.export import load_predictor
from keras_vit.export.saved_model_operators import check_operators
from tests.export.conftest import LABELS

pytestmark = pytest.mark.tensorflow


def foreign(folder: Path, exported: Path, answer: Callable[[tf.Tensor], Any]) -> Path:
    """A SavedModel with the description of an exported one, and another program."""

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def serve(self, image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            n = tf.shape(image_bytes)[0]
            answer(image_bytes)
            return {
                "probabilities": tf.fill([n, len(LABELS)], 1 / len(LABELS)),
                "message": tf.fill([n], ""),
            }

    module = Module()
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve})
    shutil.copytree(exported / "assets", folder / "assets", dirs_exist_ok=True)
    return folder


def save(path: Path) -> Any:
    return lambda _: tf.raw_ops.SaveV2(
        prefix=str(path), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.constant([1.0])]
    )


def table_of(path: Path, captured: bool) -> Any:
    name = tf.constant(str(path)) if captured else str(path)

    def read(_: tf.Tensor) -> None:
        table = tf.raw_ops.HashTableV2(key_dtype=tf.int64, value_dtype=tf.string)
        tf.raw_ops.InitializeTableFromTextFileV2(
            table_handle=table, filename=name, key_index=-1, value_index=-2
        )

    return read


@pytest.mark.parametrize(
    ("operator", "answer"),
    [
        ("WriteFile", lambda path: lambda _: tf.io.write_file(str(path), "text")),
        ("ReadFile", lambda path: lambda _: tf.io.read_file("/etc/hostname")),
        ("MatchingFiles", lambda path: lambda _: tf.io.matching_files("/*")),
        ("EagerPyFunc", lambda path: lambda x: tf.py_function(len, [x], tf.int32)),
        ("SaveV2", save),
        ("InitializeTableFromTextFileV2", lambda path: table_of(path, captured=False)),
        ("Const", lambda path: table_of(path, captured=True)),
    ],
)
def test_operators_of_other_programs_are_refused(
    operator: str, answer: Any, exported: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "written"
    folder = foreign(tmp_path / "1", exported["saved_model"], answer(path))
    with pytest.raises(ValueError, match=rf"`--trust`\).* Received: .* with .*{operator}"):
        load_predictor(folder)
    assert not list(tmp_path.glob("written*"))


def test_trusted_program_runs(
    exported: dict[str, Path], images: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "written"
    folder = foreign(
        tmp_path / "1", exported["saved_model"], lambda _: tf.io.write_file(str(path), "text")
    )
    load_predictor(folder, trust=True).probabilities(images[:1])
    assert path.read_text() == "text"


def edited(folder: Path, change: Callable[[Any], None]) -> None:
    file = folder / "saved_model.pb"
    content = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    change(content.meta_graphs[0])
    file.write_bytes(content.SerializeToString())


def outside(graph: Any) -> None:
    graph.asset_file_def[0].filename = "../../../etc/hostname"


def publish_checkpoint(graph: Any) -> None:
    """Makes the function that writes checkpoints one that can be called."""
    (name,) = (
        function.signature.name
        for function in graph.graph_def.library.function
        if any(node.op == "SaveV2" for node in function.node_def)
    )
    graph.object_graph_def.concrete_functions[name].canonicalized_input_signature.SetInParent()


def publish_by_another_field(graph: Any) -> None:
    """TensorFlow takes names of functions from several fields of the object graph."""
    (name,) = (
        function.signature.name
        for function in graph.graph_def.library.function
        if any(node.op == "SaveV2" for node in function.node_def)
    )
    graph.object_graph_def.nodes.add().bare_concrete_function.concrete_function_name = name


def of_tensorflow_1(graph: Any) -> None:
    graph.ClearField("object_graph_def")


def shadow(graph: Any) -> None:
    """Gives a function the name of an operator."""
    graph.graph_def.library.function[0].signature.name = "WriteFile"
    graph.graph_def.library.function[1].node_def[0].op = "WriteFile"


def replace_by_device(graph: Any) -> None:
    """TensorFlow runs a function with the same interface in its place, whose name is nowhere."""
    function = graph.graph_def.library.function[0]
    function.attr["api_implements"].s = b"interface"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace_by_device, "the attribute api_implements"),
        (outside, "the asset ../../../etc"),
        (publish_checkpoint, "SaveV2"),
        (publish_by_another_field, "SaveV2"),
        (of_tensorflow_1, "must be a SavedModel of TensorFlow 2"),
        (shadow, "WriteFile"),
    ],
)
def test_changed_graphs_are_refused(
    change: Any, message: str, exported: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(exported["saved_model"], tmp_path / "1"))
    check_operators(folder)
    edited(folder, change)
    with pytest.raises(ValueError, match=message):
        check_operators(folder)


def test_links_to_other_files_are_refused(exported: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported["saved_model"], tmp_path / "1"))
    (folder / "assets" / "labels.txt").unlink()
    (folder / "assets" / "labels.txt").symlink_to("/etc/hostname")
    with pytest.raises(ValueError, match=r"with the asset labels\.txt"):
        check_operators(folder)


def test_other_files_of_the_graph_are_refused(exported: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported["saved_model"], tmp_path / "1"))
    file = folder / "saved_model.pb"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ValueError, match="`source` must be a complete SavedModel"):
        load_predictor(folder)
    (folder / "saved_model.cpb").write_bytes(b"")
    with pytest.raises(ValueError, match=r"must not have the file saved_model\.cpb"):
        load_predictor(folder)
