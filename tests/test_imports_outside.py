"""Every name of `keras_vit` that benchmarks and notebooks use exists; the rest of them is not run.

Imports of `keras_vit` only: what else benchmarks import may not be installed.
"""

from __future__ import annotations

import ast
import importlib
import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).parents[1]
PACKAGE = "keras_vit"
PATHS = [
    path
    for folder, pattern in (("benchmarks", "*.py"), ("notebooks", "*.ipynb"))
    for path in sorted((ROOT / folder).glob(pattern))
]


def source(path: Path) -> str:
    """The Python of a module, or of all code cells of a notebook, without commands of the shell."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return text
    cells = [cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join("".join(cell) for cell in cells).splitlines()
    return "\n".join(without_command(line) for line in lines)


def without_command(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return f"{indent}pass" if line.lstrip().startswith(("!", "%")) else line


def lookup(module: str, name: str) -> Any:
    """What `from module import name` gives."""
    holder = importlib.import_module(module)
    if not hasattr(holder, name):
        return importlib.import_module(f"{module}.{name}")
    return getattr(holder, name)


def imported(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """The names that imports of `keras_vit` bind, anywhere in a file, with what they are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE:
                    module = importlib.import_module(alias.name)
                    bound = module if alias.asname else importlib.import_module(PACKAGE)
                    yield alias.asname or PACKAGE, bound
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE:
            for alias in node.names:
                yield alias.asname or alias.name, lookup(node.module, alias.name)


def missing(tree: ast.Module) -> Iterator[str]:
    """The attributes of modules of `keras_vit` that are read and do not exist."""
    modules = {name: held for name, held in imported(tree) if isinstance(held, types.ModuleType)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and not hasattr(module, node.attr):
                yield f"{module.__name__}.{node.attr}"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_every_name_of_the_package_exists(path: Path) -> None:
    assert list(missing(ast.parse(source(path), filename=str(path)))) == []


def test_missing_name_is_found() -> None:
    for text in ("from keras_vit import nothing", "import keras_vit.nothing"):
        with pytest.raises(ImportError):
            list(missing(ast.parse(text)))
    assert list(missing(ast.parse("import keras_vit\nkeras_vit.layers\nkeras_vit.nothing"))) == [
        "keras_vit.nothing"
    ]


def test_most_files_use_the_package() -> None:
    used = [path.name for path in PATHS if any(imported(ast.parse(source(path))))]
    assert len(used) > len(PATHS) / 2
