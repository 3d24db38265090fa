"""Image classification datasets from TensorFlow Datasets."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from keras_vit.arguments import command, nearest
from keras_vit.constants import MAX_IN_MEMORY_BYTES
from keras_vit.data.examples import Examples
from keras_vit.image_formats import image_format
from keras_vit.storage.packing import Part

# NAME, NAME/CONFIG and NAME:1.0.0 in the notation of tensorflow-datasets, then :SPLIT.
_SPEC = re.compile(r"(?P<name>[^:\[]+(:(\d+|\*)\.(\d+|\*)\.(\d+|\*))?)(:(?P<split>.+))?")


def load_tfds(name: str, data_dir: str | os.PathLike[str] | None = None) -> Examples:
    """Loads an image classification dataset into memory, without decoding the images.

    tensorflow-datasets prepares the dataset first if necessary, which may include a download.
    Without a split, `train` is the training set, and `validation`, or else `test`, the validation
    set, if the dataset has one; with a split, all images of the split are one set.
    """
    builder, image, label, splits, tfds = _prepared(name, data_dir)
    part_rows = {part: _read(builder, split, image, label, tfds) for split, part in splits.items()}
    rows = [(*row, part) for part, split_rows in part_rows.items() for row in split_rows]
    names, encoded, labels, parts = zip(*rows, strict=True)
    return Examples(
        names=names,
        targets=np.array(labels),
        class_names=tuple(builder.info.features[label].names),
        source=f"tfds:{name}",
        encoded=encoded,
        splits=parts if len(splits) > 1 else None,
    )


def tfds_parts(
    name: str, shard_bytes: int, data_dir: str | os.PathLike[str] | None = None
) -> tuple[list[Part], dict[str, Any]]:
    """Returns the parts of a dataset of any size, and the plan, for `storage.packing.pack_parts`.

    The names are those of files in class folders, below the folders of splits if there are two.
    The splits are those of `load_tfds`.
    """
    builder, image, label, splits, tfds = _prepared(name, data_dir)
    classes = [text.replace("/", "_") for text in builder.info.features[label].names]
    nonempty_splits = [split for split in builder.info.splits.values() if split.num_examples]
    image_bytes = builder.info.dataset_size / sum(split.num_examples for split in nonempty_splits)

    def images(part: Any, folder: str) -> Iterator[tuple[str, bool, bytes]]:
        for example in _encoded(builder, part, image, tfds).as_numpy_iterator():
            content, format_name = example[image], image_format(example[image]) or ""
            file = f"{example['tfds_id'].decode()}.{format_name.lower()}"
            if (index := int(example[label])) < 0:
                raise ValueError(
                    "Every image must have a class; choose another split. Received: label "
                    f"{index} of {file} in tfds:{name}"
                )
            yield f"{folder}{classes[index]}/{file}", True, content

    parts: list[Part] = []
    for split, role in splits.items():
        number = builder.info.splits[split].num_examples
        shards = min(number, math.ceil(number * image_bytes / shard_bytes) or 1)  # 0: size unknown
        folder = f"{role}/" if len(splits) > 1 else ""
        parts += [partial(images, part, folder) for part in tfds.even_splits(split, shards)]
    plan = {"source": f"tfds:{name}", "version": builder.info.full_name, "shards": len(parts)}
    return parts, plan


def _prepared(name: str, data_dir: str | os.PathLike[str] | None) -> tuple[Any, ...]:
    """Returns a prepared builder, its image and label feature, its splits and its module."""
    import tensorflow_datasets as tfds  # takes seconds to import

    if not hasattr(tfds, "builder"):  # a failed import is only logged
        raise ImportError(
            "tensorflow-datasets cannot be imported; see the log above. With protobuf 5 (for "
            "example on Colab), run: pip install 'tensorflow-metadata<1.18'"
        )
    match = _SPEC.fullmatch(name)
    if match is None:
        raise ValueError(f"`data` must be tfds:NAME or tfds:NAME:SPLIT. Received: tfds:{name}")
    try:
        builder = tfds.builder(match["name"], data_dir=data_dir)
    except tfds.core.registered.DatasetNotFoundError:  # its message lists hundreds of names
        hint = nearest(match["name"], tfds.list_builders(with_community_datasets=False))
        raise ValueError(
            "`data` must name a dataset of tensorflow-datasets, or a dataset already prepared in "
            f"its data folder (TFDS_DATA_DIR).{hint} Received: tfds:{match['name']}"
        ) from None
    try:
        builder.download_and_prepare()
    except Exception as error:
        raise RuntimeError(
            f"tensorflow-datasets could not prepare {match['name']!r} in {builder.data_dir}: "
            f"{type(error).__name__}: {error}"
        ) from error
    image, label = _features(builder, tfds)
    return builder, image, label, _splits(builder, match["split"]), tfds


def _features(builder: Any, tfds: Any) -> tuple[str, str]:
    """Returns the names of the dataset's image feature and label feature."""
    features = builder.info.features
    supervised = builder.info.supervised_keys or ()

    def chosen(kind: type) -> list[str]:
        keys = [key for key, value in features.items() if isinstance(value, kind)]
        # Of several features, `supervised_keys` of the dataset selects the pair.
        return [key for key in keys if len(keys) == 1 or key in supervised]

    images, labels = chosen(tfds.features.Image), chosen(tfds.features.ClassLabel)
    if len(images) != 1 or len(labels) != 1:
        raise ValueError(
            "`data` must be a dataset with one image feature and one class-label feature. "
            f"Received: tfds:{builder.name} with the features {sorted(features)}"
        )
    return images[0], labels[0]


def _splits(builder: Any, split: str | None) -> dict[str, str]:
    """Maps each split that is read to `"train"` or `"validation"`."""
    available = list(builder.info.splits)
    if split is not None:
        try:
            count = builder.info.splits[split].num_examples
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"The split must be one of {available}, or a slice such as 'train[:10%]'. "
                f"Received: split={split!r} of tfds:{builder.name}"
            ) from error
        if not count:
            raise ValueError(f"The split must not be empty. Received: {split!r}")
        return {split: "train"}
    if "train" not in available:
        raise ValueError(
            f"tfds:{builder.name} has no split `train`; choose a split, as in "
            f"tfds:{builder.name}:{available[0]}. Received: splits {available}"
        )
    held_out = next((name for name in ("validation", "test") if name in available), None)
    return {"train": "train"} | ({held_out: "validation"} if held_out else {})


def _encoded(builder: Any, split: str, image: str, tfds: Any) -> Any:
    return builder.as_dataset(
        split=split,
        decoders={image: tfds.decode.SkipDecoding()},
        shuffle_files=False,
        read_config=tfds.ReadConfig(add_tfds_id=True),
    )


def _read(
    builder: Any, split: str, image: str, label: str, tfds: Any
) -> Iterator[tuple[str, bytes, int]]:
    total = 0
    for example in _encoded(builder, split, image, tfds).as_numpy_iterator():
        total += len(example[image])
        if total > MAX_IN_MEMORY_BYTES:
            raise ValueError(
                "A split is loaded into memory, so it must be smaller than "
                f"{MAX_IN_MEMORY_BYTES / 2**30:g} GiB. Pack the dataset with "
                f"`{command('data', 'pack', f'tfds:{builder.name}', 'DEST')}`, or use a slice, as "
                f"in tfds:{builder.name}:train[:10%]. Received: {split!r} of tfds:{builder.name}"
            )
        yield example["tfds_id"].decode(), example[image], int(example[label])
