from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_vit import models
from keras_vit.export import load_predictor, ray_engine
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.prediction import Scores
from keras_vit.tasks.detection.prediction import ObjectTable
from keras_vit.tasks.regression.task import ValueTable
from keras_vit.tasks.task import Table
from tests.cli.commands import call_main

pytestmark = pytest.mark.tensorflow
needs_ray = pytest.mark.skipif(
    not importlib.util.find_spec("ray"), reason="Ray is not installed (extras ray, dev)"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.keras"
    config = models.size("Micro/4").replace(num_layers=1, image_size=(8, 12), classes=3)
    network = models.build(config)
    rng = np.random.default_rng(0)
    network.set_weights(
        [rng.normal(0, 0.3, w.shape).astype(w.dtype) for w in network.get_weights()]
    )
    network.save(path)
    return path


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 images, two of which cannot be read, and one whose name is not UTF-8."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for index in range(23):
        pixels = rng.integers(0, 255, (11 + index, 17, 3), "uint8")
        PIL.Image.fromarray(pixels).save(folder / f"{index:02}.png")
    (folder / "05.png").write_bytes(b"")
    (folder / "13.png").write_bytes((folder / "12.png").read_bytes()[:60])
    os.rename(folder / "07.png", os.fsencode(folder / "07") + b"\xe9.png")
    return folder


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    pytest.importorskip("ray", reason="Ray is not installed (extras ray, dev)")
    for name, value in ray_engine.SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    ray.init("local", num_cpus=2, log_to_driver=False, include_dashboard=False)
    options = tf.config.optimizer.get_experimental_options()
    # Graphs are optimized here as in the actors: fused operators may round otherwise.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False} | options)
    ray.shutdown()


def table(model: Path, photos: Path, to: Path, *options: object) -> bytes:
    assert call_main("predict", model, photos, "--batch", 3, "--to", to, *options) == 1
    return to.read_bytes()


def test_batch_predictor_returns_the_rows_of_the_command(
    model: Path, photos: Path, tmp_path: Path
) -> None:
    files = [str(photos / "01.png"), "no\nwhere.png", str(photos / "02.png")]
    rows = ray_engine.BatchPredictor(model, top=2)({"file": files}).to_pylist()
    expected = load_predictor(model).predict(files)
    assert [row["file"] for row in rows] == files
    assert [row["label"] for row in rows] == [found.label for found in expected]
    assert [row["label_2"] for row in rows][::2] == [expected[i].top_labels[1] for i in (0, 2)]
    assert rows[1]["message"] == "cannot be read: No such file or directory"
    contents = [Path(files[0]).read_bytes(), b"", Path(files[2]).read_bytes()]
    read = ray_engine.BatchPredictor(model)({"file": files, "bytes": contents}).to_pylist()
    assert [row["score"] for row in read] == [row["score"] for row in rows]
    embedded = ray_engine.BatchPredictor(lambda: load(model), embedding=True)({"file": files})
    assert [len(row or ()) for row in embedded["embedding"].to_pylist()] == [96, 0, 96]


@pytest.mark.parametrize("options", [{}, {"every_class": True}, {"embedding": True}])
def test_tables_have_the_same_types_whether_images_can_be_read_or_not(
    model: Path, photos: Path, options: dict[str, bool]
) -> None:
    predictor = ray_engine.BatchPredictor(model, **options)
    files = [str(photos / "01.png"), "nowhere.jpg"]
    read, unread, both = (predictor({"file": part}) for part in (files[:1], files[1:], files))
    assert read.schema.equals(unread.schema)
    assert read.schema.equals(both.schema)
    found = [part["message"].to_pylist() for part in (read, unread, both)]
    assert found[2] == [*found[0], *found[1]] == [None, "cannot be read: No such file or directory"]


@pytest.mark.parametrize(
    ("table", "types"),
    [
        (
            Scores("ab", further=["set", "set_size", "in_distribution", "nearest_1"]),
            ["string", "double", "string", "int64", "bool", "string", "string", "double"],
        ),
        (ObjectTable(Preprocessing()), ["string", *["double"] * 5]),
        (ValueTable(["height"]), ["double"]),
        (Table(), ["string"]),
    ],
)
def test_columns_without_values_have_the_types_of_their_values(
    model: Path, table: Table, types: list[str]
) -> None:
    predictor = ray_engine.BatchPredictor(model)
    predictor._table = table
    found = predictor({"file": ["nowhere.jpg"]}).schema.types
    assert list(map(str, found)) == ["string", *types, "string"]


def load(model: Path) -> object:
    from keras_vit.weights.whole_models import load_model

    return load_model(model)


@needs_ray
@pytest.mark.parametrize("options", [(), pytest.param(("--embed",), marks=pytest.mark.slow)])
def test_rows_are_those_of_the_command_to_the_bit(
    model: Path, photos: Path, tmp_path: Path, ray: None, options: tuple[str, ...]
) -> None:
    expected = table(model, photos, tmp_path / "plain.csv", *options)
    found = table(model, photos, tmp_path / "ray.csv", "--engine", "ray", *options)
    assert expected.count(b"\n") == 24
    assert found == expected
    assert found != expected.replace(b"01.png", b"02.png")


def test_ray_absent(
    model: Path, photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"`--engine ray` needs Ray; .*\[ray\]"):
        ray_engine.connect()


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "localhost:port"])
def test_wrong_address(
    model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    to = tmp_path / "a.csv"
    options = ("--engine", "ray", "--address", address)
    assert call_main("predict", model, photos, "--to", to, *options) == 1
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("keras-vit: ")]
    assert "`--address` must be HOST:PORT of a Ray cluster that contains this machine. " in line
    assert f"Received: {address}" in line


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_killed_actors_lose_and_double_nothing(model: Path, photos: Path, ray: None) -> None:
    images = [str(path) for path in sorted(photos.glob("[0-9][0-9].png"))] * 400
    killed: list[int] = []
    killer = threading.Thread(target=kill_computing, args=(killed,), daemon=True)
    killer.start()
    found = list(ray_engine.predict(images, source=model, batch_size=64))
    assert len(killed) == 10
    expected = load_predictor(model).predict(images, 64)
    assert len(found) == len(images)
    for one, other in zip(found, expected, strict=True):
        assert one.message == other.message
        np.testing.assert_array_equal(one.probabilities, other.probabilities)


def kill_computing(killed: list[int], number: int = 10) -> None:
    """Kills actors while they compute, each process once."""
    while len(killed) < number:
        listed = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True)
        for line in listed.stdout.splitlines():
            pid, _, title = line.strip().partition(" ")
            if (
                title.startswith("ray::MapWorker(MapBatches(_ListPredictor)).")
                and int(pid) not in killed
            ):
                killed.append(int(pid))
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.05)


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("part", ["gcs_server", "raylet"])
def test_cluster_gone_in_the_middle(model: Path, photos: Path, tmp_path: Path, part: str) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), **ray_engine.SETTINGS}
    place = Path(tempfile.mkdtemp(prefix="ray"))  # short, as sockets are in it
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    start = ["start", "--head", f"--port={address[10:]}", "--num-cpus=2", f"--temp-dir={place}"]
    start = ["-m", "ray.scripts.scripts", *start, "--include-dashboard=false"]
    subprocess.run([sys.executable, *start], env=environment, check=True, capture_output=True)
    try:
        to = tmp_path / "answers.csv"
        words = ["predict", model, "-", "--to", to, "--engine", "ray", "--address", address]
        code = "import keras_vit_toolkit; keras_vit_toolkit.main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, words)],
            env=environment,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        process.stdin.write(f"{photos / '01.png'}\n" * 100_000)
        process.stdin.close()
        parts = tmp_path / ".answers.csv.parts"
        while not list(parts.glob("*.part")) and process.poll() is None:
            time.sleep(0.1)
        kill_all(f"/{part} ", place)
        said = process.stderr.read()
        assert process.wait() == 1, said
        lines = [line for line in said.splitlines() if line.startswith("keras-vit: ")]
        assert lines == ["keras-vit: Ray ended this process, because its cluster is gone"], said
        assert list(parts.glob("*.part"))
    finally:
        kill_all("", place)
        shutil.rmtree(place, ignore_errors=True)


def kill_all(name: str, place: Path) -> None:
    """Kills the processes of a cluster, by its folder."""
    listed = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        if name in line and f"{place}/" in line:
            os.kill(int(line.split()[0]), signal.SIGKILL)
