"""Image classification datasets of the Hugging Face Hub, through the `datasets` library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow

from keras_vit.arguments import naming_place, require_package
from keras_vit.data.examples import SPLIT_NAMES, Examples
from keras_vit.storage.names import Names, take
from keras_vit.storage.paths import StoredFiles


class HubImages(StoredFiles):
    """Contents of the images of a dataset in Arrow files, each read when it is used.

    Args:
        source: Name of the dataset, for messages.
        parts: Dataset of each split, with image files that are not decoded.
        column: Column of the images.
        names: SPLIT/ROW of each image.
    """

    def __init__(
        self, source: str, parts: Mapping[str, Any], column: str, names: Sequence[str]
    ) -> None:
        super().__init__(PurePosixPath(source), names)
        self.parts, self.column = parts, column

    def __getitem__(self, index: Any) -> Any:
        split, _, row = self.names[index].rpartition("/")
        file = self.parts[split][int(row)][self.column]
        return Path(file["path"]).read_bytes() if file["bytes"] is None else file["bytes"]

    def stamp(self, index: int) -> str:
        """Returns the fingerprint of the dataset."""
        return self.parts[self.names[index].rpartition("/")[0]]._fingerprint

    def subset(self, indices: Any) -> HubImages:
        """Returns the images at `indices`, without reading them."""
        return HubImages(str(self.folder), self.parts, self.column, take(self.names, indices))


def load_hf(name: str) -> Examples:
    """Loads an image classification dataset of any size, without decoding the images.

    The `datasets` library downloads the dataset first if necessary, and maps its Arrow files into
    memory. The splits are those of the dataset if it has one for training, else all images are one
    set. Splits for evaluation with images without a class (-1) are left out.

    Args:
        name: NAME or NAME:CONFIG of the dataset, or a local folder that `datasets.load_dataset`
            reads.

    Raises:
        ImportError: If the package of the extra `hf` is not installed.
        ValueError: If there is no such dataset, not one column of images and one of classes, or a
            training image without a class.
    """
    require_package("datasets", "hf", f"hf:{name} needs a further package")
    import datasets

    path, _, config = name.partition(":")
    with naming_place(
        "`data` must be hf:NAME or hf:NAME:CONFIG of a dataset of the Hugging Face Hub or of a "
        f"local folder. Received: hf:{name}"
    ):
        dataset = datasets.load_dataset(path, config or None)
    features = next(iter(dataset.values())).features
    images, labels = (
        [key for key, feature in features.items() if isinstance(feature, kind)]
        for kind in (datasets.Image, datasets.ClassLabel)
    )
    if len(images) != 1 or len(labels) != 1:
        raise ValueError(
            "`data` must be a dataset with one column of images and one of class labels. Received: "
            f"hf:{name} with the columns {dict(features)}"
        )
    split_names = {split: SPLIT_NAMES.get(split.lower(), "") for split in sorted(dataset)}
    if "train" in split_names.values():
        split_names = {split: name for split, name in split_names.items() if name}
    classes = {split: dataset[split].with_format("numpy")[labels[0]][:] for split in split_names}
    labeled = [split for split in split_names if np.min(classes[split], initial=0) >= 0]
    needed = [n for n, role in split_names.items() if role == "train" or not labeled]
    if counts := {n: int(np.sum(~(classes[n] >= 0))) for n in needed if n not in labeled}:
        raise ValueError(
            "Every training image must have a class; save the dataset without the others, and use "
            f"hf:FOLDER. Received: hf:{name} with images without a class (-1) in {counts}"
        )
    split_names = {split: split_names[split] for split in labeled}
    parts = {n: dataset[n].cast_column(images[0], datasets.Image(decode=False)) for n in labeled}
    names = Names(pyarrow.array([f"{n}/{i:09d}" for n in labeled for i in range(len(parts[n]))]))
    return Examples(
        names=names,
        targets=np.concatenate([classes[split] for split in labeled]),
        class_names=tuple(features[labels[0]].names),
        source=f"hf:{name}",
        encoded=HubImages(f"hf:{name}", parts, images[0], names),
        splits=tuple(split_names[n] for n in labeled for _ in range(len(parts[n])))
        if len(labeled) > 1 and "train" in split_names.values()
        else None,
    )
