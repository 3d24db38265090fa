"""The same dataset from a folder, from shards, and from a server of S3."""

from __future__ import annotations

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import data, tasks
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import RunConfig
from keras_vit.runs.recipe import Recipe
from keras_vit.storage.packing import pack
from keras_vit.storage.paths import (
    StoredFiles,
    as_array_value,
    fields_of_paths,
    join_path,
    names_below,
    to_path,
)
from keras_vit.tasks.run_data import Run
from keras_vit.training.loop import fit_run
from tests.storage.conftest import KINDS, TASKS, write_dataset

pytestmark = pytest.mark.tensorflow


def upload(folder: Path, url: str) -> str:
    import s3fs

    s3fs.S3FileSystem().put(f"{folder}/", url, recursive=True)
    return url


@pytest.fixture(scope="module", params=KINDS)
def sources(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, s3: str):
    kind = request.param
    folder = write_dataset(tmp_path_factory.mktemp(kind), kind)
    packed = tmp_path_factory.mktemp("packed") / kind
    pack(folder, packed, processes=1, shard_bytes=3000, progress=False)
    urls = [upload(path, f"{s3}/{name}/{kind}") for path, name in ((folder, "a"), (packed, "b"))]
    return TASKS.get(kind, "classification"), str(folder), [str(packed), *urls]


def test_every_source_contains_the_same(sources) -> None:
    task, folder, others = sources
    expected = tasks.get(task).load(folder)
    for source in others:
        found = tasks.get(task).load(source)
        assert isinstance(found.encoded, StoredFiles)
        for field in ("names", "splits", "class_names", "columns"):
            assert getattr(found, field) == getattr(expected, field), (source, field)
        assert [found.read(i) for i in range(8)] == [expected.read(i) for i in range(8)]
        texts = [[e.kind.text(e, i) for i in range(8)] for e in (found, expected)]
        assert texts[0] == texts[1]
        assert found.source.rstrip("/") == expected.source.replace(folder, source)
        ignored = {k: n for k, n in expected.ignored.items() if k != "hidden"}
        assert {k: n for k, n in found.ignored.items() if k != "hidden"} == ignored
        assert found.places()[0] == f"{source}/{found.names[0]}"


@pytest.mark.parametrize(
    "sources", ["folder", "masks", pytest.param("voc", marks=pytest.mark.slow)], indirect=True
)
def test_every_source_makes_the_same_batches(sources) -> None:
    task, folder, others = sources
    batches = []
    for source in (folder, *others):
        examples = tasks.get(task).load(source).subset([1, 3, 4, 5, 7])
        dataset = data.training_dataset(
            examples, Preprocessing(size=(16, 12)), data.Augmentation(), batch_size=2, epochs=2
        )
        batches.append(
            [array.tobytes() for batch in dataset.as_numpy_iterator() for array in batch]
        )
    assert batches[1:] == batches[:1] * (len(batches) - 1)


def test_images_of_a_table_may_be_named_without_folder_and_suffix(s3: str, tmp_path: Path) -> None:
    folder = write_dataset(tmp_path, "table")
    text = (folder / "labels.csv").read_text()
    (folder / "labels.csv").write_text(text.replace("images/", "").replace(".png", ""))
    expected = data.load(folder)
    found = data.load(f"{upload(folder, f'{s3}/short')}/labels.csv")
    assert found.names == expected.names
    np.testing.assert_array_equal(found.targets, expected.targets)


def test_a_file_that_disappears_is_a_bad_image(s3: str, tmp_path: Path) -> None:
    import s3fs

    examples = data.load(upload(write_dataset(tmp_path, "folder"), f"{s3}/lost"))
    s3fs.S3FileSystem().rm(f"{s3}/lost/tulip/5.png")
    assert data.audit(examples, progress=False).bad == (
        ("tulip/5.png", "cannot be read: No such file or directory"),
    )


def test_local_paths_stay_local(tmp_path: Path) -> None:
    assert to_path(str(tmp_path)) == tmp_path == to_path(tmp_path)
    assert join_path(tmp_path, "a", "../b/./c.png") == tmp_path / "b" / "c.png"
    assert join_path(tmp_path, "/c.png") == Path("/c.png")
    assert as_array_value(tmp_path) == str(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_text("")
    assert names_below(tmp_path) == ["a/b.txt"]
    paths = [tmp_path / "a" / "b.txt"]
    assert fields_of_paths(tmp_path, paths) == {"names": ("a/b.txt",), "paths": (str(paths[0]),)}


def test_dots_in_urls_are_resolved(s3: str, tmp_path: Path) -> None:
    root = to_path(upload(write_dataset(tmp_path, "folder"), f"{s3}/dots"))
    assert join_path(root / "rose", "..", "tulip/./5.png").read_bytes().startswith(b"\x89PNG")
    assert names_below(root)[:2] == ["rose/.hidden.png", "rose/0.png"]
    assert as_array_value(root) is root


@pytest.mark.slow
def test_runs_from_every_source_are_the_same(test_data: Path, s3: str, tmp_path: Path) -> None:
    folder = tmp_path / "flowers"
    for name in ("daisy", "roses", "tulips"):
        (folder / name).mkdir(parents=True)
        for path in sorted((test_data / "data" / "flower_photos" / name).glob("*.jpg"))[:84]:
            shutil.copy(path, folder / name)
    pack(folder, tmp_path / "packed", processes=1, shard_bytes=2**21, progress=False)
    sources = [folder, tmp_path / "packed", upload(folder, f"{s3}/flowers")]
    sources.append(upload(tmp_path / "packed", f"{s3}/flowers-packed"))
    found = []
    for number, source in enumerate(sources):
        recipe = Recipe(epochs=1, batch_size=4, image_size=(32, 32))
        run = tmp_path / f"run_{number}"
        fit_run(RunConfig(str(source), "ViTMicro4", recipe=recipe), run, tensorboard=False)
        weights = keras.saving.load_model(run / "last.keras").get_weights()
        found.append(((run / "history.csv").read_text(), [w.tobytes() for w in weights]))
        assert Run(run).examples("train").names == Run(tmp_path / "run_0").examples("train").names
    assert found[0][0].count("\n") == 2  # an epoch of 50 steps
    assert found[1:] == found[:1] * 3
