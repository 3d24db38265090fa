"""Every notebook executes from its first cell to its last, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.tensorflow

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 300


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_executes(path: Path, tmp_path: Path) -> None:
    execute(nbformat.read(path, as_version=4), tmp_path)


@pytest.mark.slow
def test_notebook_looks_inside_a_pretrained_model(test_data: Path, tmp_path: Path) -> None:
    path = next(path for path in NOTEBOOKS if path.stem == "03_look_inside")
    notebook = nbformat.read(path, as_version=4)
    cell = next(c for c in notebook.cells if "parameters" in c.metadata.get("tags", ()))
    weights = next((test_data / "weights").glob("Ti_16*.npz"))
    cell.source = "\n".join(
        [
            f"WEIGHTS = {str(weights)!r}",
            f"PHOTOS = {str(test_data / 'data' / 'imagenet_sample')!r}",
            "NUMBER = 6",
        ]
    )
    execute(notebook, tmp_path)
    kinds = [out for c in notebook.cells for out in c.get("outputs", ()) if "data" in out]
    assert sum("image/png" in out["data"] for out in kinds) == 7


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()  # raises with the failing cell


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_output(path: Path) -> None:
    """Outputs are what CI produces, not what one machine once did."""
    cells = nbformat.read(path, as_version=4).cells
    assert not any(cell.get("outputs") for cell in cells)
