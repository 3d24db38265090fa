"""A bundle that version 17e621a exported answers, and a new one keeps the names in it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit import export
from tests.compatibility.conftest import Expected
from tests.compatibility.narrow import FILES
from tests.helpers import assert_close

pytestmark = pytest.mark.tensorflow

PATHS = ["bundle/vit", *(f"bundle/vit-files/1/{n}.tflite" for n in ("float32", "dynamic_range"))]
INT8 = "bundle/vit-files/1/int8.tflite"
# Measured: 0 on the processor that wrote the files, also on one thread without oneDNN. Another one
# may round whole numbers the other way, which is 1/256 of a range.
TOLERANCES = {**dict.fromkeys(PATHS, 1e-5), PATHS[-1]: 0.01, INT8: 0.02}


@pytest.mark.slow
@pytest.mark.parametrize("path", [*PATHS, INT8])
def test_file_answers_as_it_did(path: str, expected: Expected) -> None:
    names = ("ant/01.jpg", "cow/02.png")
    images = [(FILES / "data" / "photos" / name).read_bytes() for name in names]
    predictor = export.load_predictor(FILES / path)
    assert predictor.labels == ("ant", "bee", "cow")
    assert predictor.thresholds is None
    assert_close(predictor.probabilities(images), expected[f"files/{path}"], TOLERANCES[path], path)


def keys(value: object) -> object:
    """The names in a JSON document, without its values; of a list those of its first element."""
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    return [keys(value[0])] if isinstance(value, list) and value else None


def signatures(folder: Path) -> dict[str, object]:
    """What a client calls: per signature the names, types and shapes of inputs and outputs."""
    loaded = tf.saved_model.load(str(folder))
    return {
        name: (
            {k: str(v) for k, v in function.structured_input_signature[1].items()},
            {k: (v.dtype, v.shape.rank) for k, v in function.structured_outputs.items()},
        )
        for name, function in loaded.signatures.items()
    }


@pytest.mark.slow
def test_new_bundle_has_the_files_signatures_and_keys_of_the_stored_one(
    files: Path, tmp_path: Path
) -> None:
    for package in ("onnx", "tf2onnx", "openvino"):
        pytest.importorskip(package)
    done = export.bundle(
        "runs/finished",
        tmp_path / "new",
        quantizations=("float32", "dynamic_range", "int8"),
        runtimes=("onnx", "openvino"),
        min_agreement=0.0,
        warm_up=False,
        full=True,
        verbose=0,
    )
    old, new = Path("bundle"), tmp_path / "new"
    names = [{str(p.relative_to(f)) for p in f.rglob("*") if p.is_file()} for f in (old, new)]
    # A graph with constants has none: it would be that of the graph before.
    fingerprint = "vit/1/fingerprint.pb"
    assert names[1] >= names[0] - {fingerprint}
    assert signatures(done.saved_model) == signatures(old / "vit" / "1")
    for name in ("vit/1/assets.extra/manifest.json", "vit/1/assets/preprocessing.json"):
        stored, written = (json.loads((folder / name).read_text()) for folder in (old, new))
        if name.endswith("manifest.json"):
            del stored["files"]["fingerprint.pb"]
            assert written.pop("precision") == "float32"  # there is another one since
        assert keys(written) == keys(stored), name

    import onnx

    models = [onnx.load(folder / "vit-files" / "1" / "model.onnx") for folder in (old, new)]
    stored, written = (
        {
            "inputs": [value.name for value in model.graph.input],
            "outputs": [value.name for value in model.graph.output],
            "properties": {entry.key: entry.value for entry in model.metadata_props},
        }
        for model in models
    )
    assert written == stored

    import openvino

    images = np.full((1, 16, 16, 3), 0.3, "float32")
    answers = []
    for folder in (old, new):
        model = openvino.Core().read_model(folder / "vit-files" / "1" / "model.xml")
        compiled = openvino.Core().compile_model(model, "CPU")
        (answer,) = (compiled(images)[output] for output in compiled.outputs)
        answers.append((sorted(output.get_any_name() for output in compiled.outputs), answer))
    assert answers[0][0] == answers[1][0]
    assert_close(answers[1][1], answers[0][1], 1e-5)
