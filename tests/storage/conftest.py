"""Datasets of every kind in folders, and a server of S3 on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

KINDS = ("folder", "table", "splits", "masks", "voc", "coco", "yolo")
TASKS = {"masks": "segmentation", "voc": "detection", "coco": "detection", "yolo": "detection"}
XML = (
    "<annotation><size><width>30</width><height>20</height></size><object><name>cat</name><bndbox>"
    "<xmin>{0}</xmin><ymin>3</ymin><xmax>14</xmax><ymax>9</ymax></bndbox></object></annotation>"
)


def write_image(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (20, 30, 3), "uint8")
    PIL.Image.fromarray(pixels).save(path)


def write_dataset(folder: Path, kind: str) -> Path:
    """Writes eight images with the targets of a kind of dataset."""
    for i in range(8):
        split = ("train", "validation")[i % 2]
        name = f"{'rose' if i < 4 else 'tulip'}/{i}.png"
        if kind == "splits":
            name = f"{split}/images/{i}.png"
        elif kind != "folder":
            name = f"images/{i}.png"
        write_image(folder / name, i)
        if kind == "folder":
            (folder / "rose" / "notes.txt").write_text("no image")
            (folder / "rose" / ".hidden.png").write_bytes(b"")
        if kind == "masks":
            mask = np.zeros((20, 30), np.uint8)
            mask[i:, i:] = 1
            (folder / "masks").mkdir(exist_ok=True)
            PIL.Image.fromarray(mask).save(folder / "masks" / f"{i}.png")
            (folder / "classes.txt").write_text("ground\nroof\n")
        if kind == "voc":
            (folder / "annotations").mkdir(exist_ok=True)
            (folder / "annotations" / f"{i}.xml").write_text(XML.format(i + 1))
        if kind == "yolo":
            (folder / "labels").mkdir(exist_ok=True)
            (folder / "labels" / f"{i}.txt").write_text(f"0 0.5 0.5 0.{i + 1} 0.3\n")
            (folder / "data.yaml").write_text("names: [cat]\n")
    rows = [f"images/{i}.png,{'rose' if i < 4 else 'tulip'}\n" for i in range(8)]
    if kind == "table":
        (folder / "labels.csv").write_text("file,label\n" + "".join(reversed(rows)))
    if kind == "splits":
        for part, split in enumerate(("train", "validation")):
            text = "file,label\n" + "".join(rows[part::2])
            (folder / split / "labels.csv").write_text(text)
    if kind == "coco":
        box = {"category_id": 3, "iscrowd": 0, "segmentation": [], "area": 12}
        content = {
            "images": [
                {"id": i, "file_name": f"{i}.png", "height": 20, "width": 30} for i in range(8)
            ],
            "annotations": [
                {"id": i, "image_id": i, "bbox": [i, 2, 4, 3], **box} for i in range(8)
            ],
            "categories": [{"id": 3, "name": "cat"}],
        }
        (folder / "annotations").mkdir()
        (folder / "annotations" / "instances_all.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URL of a bucket of a server that needs credentials, which the environment has."""
    pytest.importorskip("s3fs", reason="s3fs is not installed (extras cloud, dev)")
    moto = pytest.importorskip("moto.server", reason="moto is not installed (extra dev)")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "user")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import s3fs

        s3fs.S3FileSystem().mkdir("photos")
        yield "s3://photos"
    server.stop()
