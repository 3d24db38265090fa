"""Executes the notebooks and stores their outputs, which the pages of the site show.

    python .ci/notebook_outputs.py --weights Ti_16.npz --photos photos --cells bccd [NOTEBOOK...]

The notebooks 03, 05 and 06 are executed with these pretrained weights and photographs (the folders
of TensorFlow's flower photographs and of BCCD), as they are on Colab.
"""

from __future__ import annotations

import argparse
import base64
import io
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import PIL.Image
from nbclient import NotebookClient

_LARGEST = (900, 900)  # pixels of a picture
ROOT = Path(__file__).parents[1]
_TEMPORARY = re.compile(re.escape(tempfile.gettempdir()) + r"/\w+")


def execute(path: Path, values: dict[str, Any]) -> nbformat.NotebookNode:
    """Returns the notebook, executed with other parameters, with its own source."""
    parameters = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    notebook = nbformat.read(path, as_version=4)
    sources = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", ()):
            cell.source = parameters
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    for cell, source in zip(notebook.cells, sources, strict=True):
        cell.source = source
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            shown = filter(is_shown, cell.outputs)
            cell.outputs = [cleaned(output, values["PHOTOS"]) for output in shown]
    return notebook


def is_shown(output: Any) -> bool:
    """Returns whether an output is more than a log line or an unfinished progress bar."""
    text = output.get("text", output.get("data", {}).get("text/plain", ""))
    is_log = text.startswith(("INFO:", "Checking images")) or "UserWarning" in text
    return bool(text.strip()) and not is_log and output.get("name") != "stderr"


def cleaned(output: Any, photos: str) -> Any:
    """Returns an output without overwritten lines and names of folders, with small pictures."""
    if "text" in output:
        lines = [line.rsplit("\r", 1)[-1] for line in output.text.split("\n")]
        text = _TEMPORARY.sub("/tmp/work", "\n".join(lines))
        output.text = text.replace(photos, "/tmp/work/photos")
    if encoded := output.get("data", {}).get("image/png"):
        picture = PIL.Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")
        picture.thumbnail(_LARGEST)
        file = io.BytesIO()
        picture.quantize(128).save(file, "PNG", optimize=True)
        output["data"]["image/png"] = base64.b64encode(file.getvalue()).decode()
    return output


def main() -> None:
    """Executes notebooks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--cells", type=Path, required=True)
    parser.add_argument("notebooks", type=Path, nargs="*", help="by default all")
    given = parser.parse_args()
    for path in given.notebooks or sorted((ROOT / "notebooks").glob("*.ipynb")):
        photos = given.cells if path.stem == "06_detect" else given.photos
        places = {"WEIGHTS": str(given.weights.resolve()), "PHOTOS": str(photos.resolve())}
        notebook = execute(path, {**places, "NUMBER": 6})
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
