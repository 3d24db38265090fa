"""The rules of the layout, read from the source: floors, cycles, file length, tests, imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "keras_vit"
TESTS = ROOT / "tests"

# Imports only go down; packages on one floor never import each other. Floor 0 is single modules,
# which may (without a cycle, as everywhere).
FLOORS = (
    {
        *("_version", "constants", "arguments", "choices", "escapes", "files"),
        *("preprocessing", "preprocessing_files"),
        *("accelerators", "download", "output_folder", "startup", "storage"),
        *("image_formats", "image_conversion"),
    },
    {"layers", "data"},
    {"models", "adamw"},
    {"weights"},
    {"zoo"},
    {"runs"},
    {"evaluation", "visualization"},
    {"tasks"},
    {"training", "tf_serving"},
    {"export"},
    {"reports", "doctor"},
    {"cli", "__main__"},
)
FLOOR = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
ONE_PACKAGE = {"cli", "__main__"}  # the command line

WITH_TENSORFLOW = {"data", "training", "tf_serving", "reports", "export", "cli"}
# Imported within a function, and only on TensorFlow: to ask tf.distribute which replica draws, to
# compile a part of a graph, for gradients outside of training, which Keras does not have, and to
# ask whether oneDNN is used.
ON_TENSORFLOW_ONLY = {
    PACKAGE / "accelerators.py",
    PACKAGE / "layers" / "fused_elementwise.py",
    PACKAGE / "layers" / "dropout.py",
    PACKAGE / "models" / "feature_extractor.py",
    PACKAGE / "models" / "inference_graphs.py",
}
SERVING = {
    *(PACKAGE / "tasks" / name for name in ("serving_graph.py", "class_rows.py")),
    *PACKAGE.glob("tasks/*/serving_graph.py"),
}
WITH_MATPLOTLIB = {
    *(
        PACKAGE / "visualization" / f"{name}.py"
        for name in ("attention_figures", "drawing", "embeddings", "training_curves")
    ),
    *PACKAGE.glob("tasks/*/figures.py"),
}
LONGEST_FILE = 400
UNMIRRORED = {
    "_version.py": "one string; test_packaging.py builds with it",
    "constants.py": "numbers only; the tests of their users hold them",
    "__main__.py": "run by test_packaging.py",
    "choices.py": "lists only; the tests of their users hold them",
    "tasks/classification/page.py": "tested by tests/reports/test_evaluation_page.py",
    "tasks/multi_label/page.py": "tested by tests/reports/test_evaluation_page.py",
    "tasks/serving_graph.py": "tested by tests/tasks/toy and tests/export/test_saved_model.py",
    "tasks/classification/predict.py": "tested by tests/tasks/test_evaluate.py",
    "tasks/masked_patches/task.py": "tested by tests/tasks/test_pretraining.py",
    "training/tensorflow_steps.py": "half of TrainingModel, tested by its tests on TensorFlow",
    "training/jax_steps.py": "half of TrainingModel, tested by its tests on JAX",
}

Import = tuple[str, str | None]  # module, and the name imported from it if any


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
SOURCES = [path for path in FILES.values() if path != PACKAGE / "__init__.py"]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_module = pytest.mark.parametrize("path", FILES.values(), ids=relative)
each_source = pytest.mark.parametrize("path", SOURCES, ids=relative)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions included; relative ones made absolute."""
    parent = module_name(path).split(".")
    if path.name != "__init__.py":
        parent = parent[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = parent[: len(parent) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            yield from ((module, alias.name) for alias in node.names)


def own_imports(path: Path) -> Iterator[str]:
    """The modules of this package that a file imports."""
    for module, name in imports(path):
        if module.split(".")[0] == "keras_vit":
            submodule = f"{module}.{name}"
            yield submodule if submodule in FILES else module


def part(module: str) -> str:
    """`keras_vit.layers.mlp` belongs to `layers`."""
    return module.split(".")[1]


def used_names(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


def test_every_part_stands_on_a_floor() -> None:
    assert {part(module) for module in FILES if module != "keras_vit"} <= FLOOR.keys()


@each_source
def test_imports_only_go_down(path: Path) -> None:
    here = part(module_name(path))
    for module in own_imports(path):
        if module == "keras_vit":  # the facade: test_nobody_imports_the_facade
            continue
        there = part(module)
        if here == there or {here, there} <= ONE_PACKAGE or FLOOR[here] == FLOOR[there] == 0:
            continue
        assert FLOOR[there] < FLOOR[here], f"{relative(path)} imports {module}"


@each_module
def test_nobody_imports_the_entry_point(path: Path) -> None:
    assert "keras_vit_toolkit" not in {module for module, _ in imports(path)}


@each_source
def test_nobody_imports_the_facade(path: Path) -> None:
    assert "keras_vit" not in set(own_imports(path))


@each_source
def test_no_package_imports_through_its_own_init(path: Path) -> None:
    if path.name == "__init__.py":
        return
    package = module_name(path).rpartition(".")[0]
    assert package not in set(own_imports(path))


def test_imports_have_no_cycle() -> None:
    graph = {module: set(own_imports(path)) - {module} for module, path in FILES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_no_file_is_too_long() -> None:
    paths = [
        path for folder in (PACKAGE, TESTS, ROOT / "benchmarks") for path in folder.rglob("*.py")
    ]
    lengths = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


@each_source
def test_every_module_has_its_test(path: Path) -> None:
    inner = path.relative_to(PACKAGE)
    if path.name == "__init__.py" or str(inner) in UNMIRRORED:
        return
    assert (TESTS / inner.with_name(f"test_{path.name}")).is_file()


def test_every_exemption_is_needed() -> None:
    assert {str(path.relative_to(PACKAGE)) for path in SOURCES} >= UNMIRRORED.keys()


@each_module
def test_tensorflow_is_imported_only_where_it_is_needed(path: Path) -> None:
    if path in SOURCES and part(module_name(path)) in WITH_TENSORFLOW:
        return
    if path in ON_TENSORFLOW_ONLY | SERVING:
        return
    roots = {module.split(".")[0] for module, _ in imports(path)}
    assert not roots & {"tensorflow", "tensorflow_datasets", "keras_cv"}


@each_module
def test_matplotlib_is_imported_only_by_plots(path: Path) -> None:
    roots = {module.split(".")[0] for module, _ in imports(path)}
    assert ("matplotlib" in roots) == (path in WITH_MATPLOTLIB)


@each_source
def test_tasks_do_not_import_each_other(path: Path) -> None:
    here = module_name(path).split(".")
    if here[1] != "tasks" or len(here) < 4:
        return
    allowed = {"classification"} if here[2] == "multi_label" else set()
    others = {m.split(".")[2] for m in own_imports(path) if m.startswith("keras_vit.tasks.")}
    folders = {folder.name for folder in (PACKAGE / "tasks").iterdir() if folder.is_dir()}
    assert others & folders <= allowed | {here[2]}


@pytest.mark.parametrize("folder", ["training", "export"])
def test_machinery_imports_no_task(folder: str) -> None:
    tasks = {path.name for path in (PACKAGE / "tasks").iterdir() if path.is_dir()}
    for path in (PACKAGE / folder).rglob("*.py"):
        found = {m.split(".")[2] for m in own_imports(path) if m.startswith("keras_vit.tasks.")}
        allowed = {"classification"} if path.name == "__init__.py" else set()  # `Prediction`
        assert not found & tasks - allowed, path


@each_module
def test_no_pickle(path: Path) -> None:
    roots = {module.split(".")[0] for module, _ in imports(path)}
    assert not roots & {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}


@each_module
def test_no_lambda_layer(path: Path) -> None:
    assert "Lambda" not in set(used_names(path))


@each_module
def test_no_assert(path: Path) -> None:
    asserts = [node.lineno for node in ast.walk(tree(path)) if isinstance(node, ast.Assert)]
    assert asserts == []


def test_every_imported_distribution_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    lists = [project["dependencies"], *(names for extra, names in extras if extra != "dev")]
    requirements = [requirement for names in lists for requirement in names]
    declared = {normal(re.split(r"[^\w.-]", requirement)[0]) for requirement in requirements}

    roots = {module.split(".")[0] for path in FILES.values() for module, _ in imports(path)}
    roots -= sys.stdlib_module_names | {"keras_vit"}
    distributions = metadata.packages_distributions()
    undeclared = {
        root
        for root in roots
        if not {normal(name) for name in distributions.get(root, [root])} & declared
    }
    assert undeclared == set()


def normal(distribution: str) -> str:
    """The normalized name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
