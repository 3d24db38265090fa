"""Every example in a docstring, of README and of docs/in_python.md is executed.

Examples are doctests (`>>>`) or ```python blocks. In scope are the names of the module they stand
in, and `keras`, `keras_vit` and `np`. They run in an empty folder.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import keras_vit
from keras_vit import models
from tests.pages import marked_blocks, run_python

pytestmark = pytest.mark.tensorflow  # examples of data, training and export need it

README = Path(__file__).parents[1] / "README.md"
IN_PYTHON = README.parent / "docs" / "in_python.md"
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
BLOCK = re.compile(r"^[ \t]*```python\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
# Examples that train a model, or export it in several formats; quicker tests go the same way.
SLOW = {
    "keras_vit.reports.model_card.write_card",
    "keras_vit.reports.evaluation_page.write_evaluation",
    "keras_vit.reports.feature_probe.probe",
    "keras_vit.training.loop.fit_run",
    "keras_vit.export.bundle.bundle",
    "keras_vit.export.tflite.TFLiteConverter",
    "keras_vit.export.saved_model.write",
    "keras_vit.export.predictor.Predictor.predict",
    "keras_vit.export.predictor.Predictor.probabilities",
    "keras_vit.doctor.examine.examine",
    "keras_vit.tasks.evaluate.evaluate_in_detail",
}


def modules() -> Iterator[ModuleType]:
    yield keras_vit
    for info in pkgutil.walk_packages(keras_vit.__path__, prefix="keras_vit."):
        if not info.name.endswith("__main__"):
            yield importlib.import_module(info.name)


def examples() -> Iterator[doctest.DocTest]:
    """Every docstring of the package that has an example, as a doctest."""
    finder = doctest.DocTestFinder(exclude_empty=False)
    for module in modules():
        scope = {**vars(module), "keras": keras, "keras_vit": keras_vit, "np": np}
        for test in finder.find(module, globs=scope):
            if test.examples or BLOCK.search(test.docstring or ""):
                yield test


def marked(test: doctest.DocTest) -> Any:
    return pytest.param(test, marks=pytest.mark.slow if test.name in SLOW else (), id=test.name)


def public_objects() -> Iterator[tuple[str, object]]:
    """The classes and functions that the package and its subpackages declare public."""
    for module in modules():
        for name in getattr(module, "__all__", ()):
            item = getattr(module, name)
            is_error = inspect.isclass(item) and issubclass(item, BaseException)
            if callable(item) and not is_error:
                yield f"{module.__name__}.{name}", item


@pytest.mark.parametrize("test", [marked(test) for test in examples()])
def test_example_runs(
    test: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in BLOCK.findall(test.docstring or ""):
        exec(compile(textwrap.dedent(block), test.name, "exec"), dict(test.globs))
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize(("name", "item"), list(public_objects()))
def test_public_name_has_an_example(name: str, item: object) -> None:
    documentation = inspect.getdoc(item) or ""
    assert ">>> " in documentation or BLOCK.search(documentation), name


@pytest.mark.parametrize(
    ("name", "item"),
    [
        (name, item)
        for name, item in public_objects()
        if name.startswith("keras_vit.layers.") or name.count(".") == 1
    ],
)
def test_public_name_documents_arguments_and_result(name: str, item: Any) -> None:
    documentation = inspect.getdoc(item) or ""
    signature = inspect.signature(item)
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    arguments = [each.name for each in signature.parameters.values() if each.kind not in several]
    _, _, listed = documentation.partition("Args:\n")
    listed = re.split(r"^\w+:", listed, maxsplit=1, flags=re.MULTILINE)[0]
    if "**kwargs" not in listed:  # of the class in Keras
        assert {*arguments} <= {*re.findall(r"^ {4}(\w+):", listed, re.MULTILINE)}
    if not inspect.isclass(item) and signature.return_annotation not in (None, "None"):
        assert "\nReturns:\n" in documentation


def test_constructor_is_documented_as_a_function_is() -> None:
    documentation = inspect.getdoc(keras_vit.ViTB16)
    assert documentation.startswith("Builds the Vision Transformer ViTB16 as a functional Keras")
    names = list(inspect.signature(keras.applications.ResNet50).parameters)
    assert list(inspect.signature(keras_vit.ViTB16).parameters)[: len(names)] == names


def test_example_of_readme_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
    constructor = 'ViTB16(weights="imagenet21k", classes=5, reset_head=True)'
    assert constructor in block
    small = block.replace(constructor, "ViTMicro4(weights=None, classes=5)")
    images = np.random.default_rng(0).normal(size=(7, 32, 32, 3)).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((images, np.arange(7) % 5)).batch(3)
    run_python(small, README, {"dataset": dataset})


def test_examples_of_the_questions_run() -> None:
    page = IN_PYTHON.with_name("faq.md")
    blocks = marked_blocks(page.read_text(encoding="utf-8"))
    assert blocks
    for _, block in blocks:
        run_python(block, page, {})


@pytest.mark.slow
def test_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = marked_blocks(IN_PYTHON.read_text(encoding="utf-8"))
    assert len(blocks) == 10
    monkeypatch.chdir(tmp_path)
    Path("runs/photos").mkdir(parents=True)
    config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 8), classes=3)
    models.build(config).save("runs/photos/last.keras")
    for name in ("new.jpg", "another.png"):
        PIL.Image.new("RGB", (8, 8)).save(name)
    scope: dict[str, object] = {}
    for language, block in blocks:
        assert language == "python"
        run_python(block, IN_PYTHON, scope)
    assert steps_of_the_first_update(scope) == pytest.approx((0.75**13, 1.0), rel=1e-3)


def steps_of_the_first_update(scope: dict[str, Any]) -> tuple[float, float]:
    """How far the page's optimizer moves the first and the last variable, in learning rates."""
    variables = scope["model"].trainable_variables
    before = [keras.ops.convert_to_numpy(variables[i]).copy() for i in (0, -1)]
    optimizer = scope["LayerDecay"](0.5, weight_decay=0.0)
    optimizer.apply([keras.ops.ones_like(v) for v in variables], variables)
    first, last = (
        np.abs(keras.ops.convert_to_numpy(variables[i]) - old).mean() / 0.5
        for i, old in zip((0, -1), before, strict=True)
    )
    return float(first), float(last)
