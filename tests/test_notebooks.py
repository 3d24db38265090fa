"""Every notebook executes from its first cell to its last, here and in an environment like Colab's.

Each starts in an empty folder. Colab's environment has what `colab-preinstalled.txt` lists, and not
this package: the install cell has to add it, and to change nothing.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from PIL import Image

import keras_vit

pytestmark = pytest.mark.tensorflow

ROOT = Path(__file__).parents[1]
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
PREINSTALLED = Path(__file__).with_name("colab-preinstalled.txt")
DISTRIBUTION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["name"]
CELL_SECONDS = 300


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOKS[name], as_version=4)


def execute(
    notebook: nbformat.NotebookNode, folder: Path, kernel: str = "python3", **start: Any
) -> None:
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name=kernel,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(**start)  # raises with the failing cell


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(out.get("text", "") for out in cell.outputs)


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_executes(name: str, tmp_path: Path) -> None:
    execute(read(name), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "photos", "pictures"),
    [
        ("03_look_inside", "imagenet_sample", 7),
        ("05_segment", "flower_photos", 5),
        ("06_detect", "bccd", 4),
    ],
)
def test_notebook_executes_with_pretrained_weights(
    name: str, photos: str, pictures: int, test_data: Path, tmp_path: Path
) -> None:
    notebook = read(name)
    cell = next(c for c in notebook.cells if "parameters" in c.metadata.get("tags", ()))
    weights = next((test_data / "weights").glob("Ti_16*.npz"))
    cell.source = "\n".join(
        [
            f"WEIGHTS = {str(weights)!r}",
            f"PHOTOS = {str(test_data / 'data' / photos)!r}",
            "NUMBER = 6",
        ]
    )
    execute(notebook, tmp_path)
    kinds = [out for c in notebook.cells for out in c.get("outputs", ()) if "data" in out]
    assert sum(bool({"image/png", "image/jpeg"} & out["data"].keys()) for out in kinds) == pictures


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_stored_with_outputs_of_no_machine(name: str) -> None:
    """`.ci/notebook_outputs.py` writes them; they are small, without logs, errors and paths."""
    outputs = [output for cell in read(name).cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert NOTEBOOKS[name].stat().st_size < 2**20
    assert not {output["output_type"] for output in outputs} - {"stream", "display_data"}
    texts = [str(output.get("text") or output["data"].get("text/plain")) for output in outputs]
    paths = re.findall(r"(?<![\w.:/])/\w[\w/.-]*", "\n".join(texts))
    assert all(path.startswith("/tmp/work") for path in paths), paths
    assert not any(output.get("name") == "stderr" for output in outputs)


def test_constraints_for_colab_are_what_it_preinstalls() -> None:
    first = (ROOT / "constraints-colab.txt").read_text("utf-8").partition("\n\n")[0]
    core = {line for line in first.splitlines() if not line.startswith("#")}
    assert core
    assert core <= set(PREINSTALLED.read_text("utf-8").splitlines())


def test_notebooks_start_with_the_same_install_cell() -> None:
    cells = [next(c for c in read(name).cells if c.cell_type == "code") for name in NOTEBOOKS]
    assert len({cell.source for cell in cells}) == 1
    assert f'"{DISTRIBUTION}"' in cells[0].source


@pytest.mark.slow
def test_notebook_takes_photographs_from_colab(tmp_path: Path) -> None:
    """Its dialog is canceled first: the patterns. Then it saves an archive, and gives its name."""
    pixels = np.random.default_rng(0).integers(0, 255, (11, 13, 3), "uint8")
    Image.fromarray(pixels).save(tmp_path / "a.png")
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        for name in ("pets/cat/1.png", "pets/cat/2.png", "pets/dog/1.png"):
            archive.write(tmp_path / "a.png", name)
    dialog = """\
import sys, types
sys.modules["google.colab"] = colab = types.ModuleType("google.colab")
answers = iter([{}, {"pets.zip": b""}])
colab.files = types.SimpleNamespace(upload=lambda: next(answers))"""
    notebook = read("02_fine_tune")
    last = next(k for k, cell in enumerate(notebook.cells) if "def upload" in cell.source)
    cells = notebook.cells[: last + 1]
    tell = "print(FOLDER, data.load(FOLDER).class_names)"
    notebook.cells = [nbformat.v4.new_code_cell(dialog), *cells]
    notebook.cells += [nbformat.v4.new_code_cell(code) for code in (tell, cells[-1].source, tell)]
    execute(notebook, tmp_path)
    canceled, _, chosen = (printed(cell) for cell in notebook.cells[-3:])
    assert canceled.endswith("/photos ('across', 'checks', 'down')\n")
    assert chosen == "photos/pets ('cat', 'dog')\n"


def clean() -> dict[str, str]:
    """The environment without what would lead another interpreter to this one's packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(*command: str | Path, folder: Path) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(
        command, cwd=folder, env=clean(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a package index with the wheel of this checkout, and the wheel."""
    folder = tmp_path_factory.mktemp("index")
    dist = folder / DISTRIBUTION
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, ROOT, folder=folder)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", next(dist.glob("*.whl"))
        server.shutdown()


def python313() -> str:
    """An interpreter of Colab's version, from the path or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for python in ("python3.13", *sorted(pyenv.glob("3.13*/bin/python3.13"))):
        command = shutil.which(python)
        # A shim of pyenv may be on the path and refuse to run.
        if command and subprocess.call([command, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            return command
    pytest.skip("no python3.13 on the path, nor in pyenv: Colab's version")


@pytest.fixture(scope="module")
def colab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The interpreter of an environment with what Colab preinstalls, from the package registry."""
    folder = tmp_path_factory.mktemp("colab")
    run(python313(), "-m", "venv", folder, folder=folder)
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip")
    missing = ("download", "-q", "--retries", "0", "--no-deps", "-d", folder, "importlib_resources")
    if subprocess.run([*pip, *missing], capture_output=True, check=False).returncode:
        pytest.skip("no package registry can be reached")
    print(f"\ninstalling what {PREINSTALLED.name} lists, 3 GB")
    # Not what pip would resolve: Colab itself leaves some requirements out.
    exact = ("--no-deps", "--no-compile", "-r", PREINSTALLED)
    run(*pip, "install", "-q", *exact, folder=folder)
    yield python
    shutil.rmtree(folder)  # pytest would keep it


def versions(python: Path) -> dict[str, str]:
    lines = run(python, "-m", "pip", "list", "--format=freeze", folder=python.parent).splitlines()
    return dict(line.split("==") for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # the first also makes the environment
@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "tensorflow") for name in NOTEBOOKS), ("02_fine_tune", "jax")],
)
def test_notebook_executes_on_colab(
    name: str,
    backend: str,
    colab: Path,
    index: tuple[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = tmp_path / "jupyter" / "kernels" / "colab" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    command = [str(colab), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": command, "language": "python", "display_name": "Colab"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    # This version, also where the registry has a later one.
    constraint = tmp_path / "constraint.txt"
    constraint.write_text(f"{DISTRIBUTION}=={keras_vit.__version__}\n")
    address, wheel = index
    indexes = f"{os.environ.get('PIP_EXTRA_INDEX_URL', '')} {address}"
    env = clean() | {"PIP_EXTRA_INDEX_URL": indexes, "PIP_CONSTRAINT": str(constraint)}
    if backend == "jax":
        env |= {"KERAS_BACKEND": "jax", "KERAS_VIT_INSTALL": str(wheel)}
    before = versions(colab)
    assert DISTRIBUTION not in before
    notebook = read(name)
    notebook.cells.append(nbformat.v4.new_code_cell("assert _exit_code == 0"))  # of pip, or export
    folder = tmp_path / "content"
    folder.mkdir()
    try:
        execute(notebook, folder, "colab", env=env)
        after = versions(colab)
    finally:
        if added := sorted(versions(colab).keys() - before.keys()):
            run(colab, "-m", "pip", "uninstall", "-q", "-y", *added, folder=folder)
    print(f"{name} on {backend}: added {', '.join(added)}")
    assert {key: after.get(key) for key in before} == before
    assert after[DISTRIBUTION] == keras_vit.__version__
