"""Registry of published weights: URLs, hashes, architecture and preprocessing of each file."""

from __future__ import annotations

import csv
import dataclasses
import functools
import typing
import urllib.parse
from typing import Any

from keras_vit import arguments, files
from keras_vit.constants import CLIP_MEAN, CLIP_STD, IMAGENET_MEAN, IMAGENET_STD
from keras_vit.preprocessing import Preprocessing, imagenet_labels

# File names in every repository: a missing local file must not cause a download.
_GENERIC = ("model.safetensors", "pytorch_model.bin")

# Mean and standard deviation of each kind of scaling, in units of pixel / 255.
SCALINGS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "half": ((0.5,), (0.5,)),
    "imagenet": (IMAGENET_MEAN, IMAGENET_STD),
    "clip": (CLIP_MEAN, CLIP_STD),
    "unit": ((0.0,), (1.0,)),
    # Of the satellite images of DINOv3 (https://github.com/facebookresearch/dinov3, README.md).
    "satellite": ((0.43, 0.411, 0.296), (0.213, 0.156, 0.143)),
}

# URLs of the licenses that forbid some uses, or require more than a copy of their text.
_TERMS = {
    "BSD-3-Clause": "https://spdx.org/licenses/BSD-3-Clause.html",
    "CC-BY-NC-4.0": "https://creativecommons.org/licenses/by-nc/4.0/",
    "dinov3-license": "https://github.com/facebookresearch/dinov3/blob/main/LICENSE.md",
    "fair-noncommercial-research-license": "https://huggingface.co/facebook/EUPE-ViT-B",
}


@dataclasses.dataclass(frozen=True)
class PublishedWeights:
    """Registry entry of a published weight file; the fields are the columns of a CSV table.

    The table is `assets/weights.csv`. A name has the form
    `[repackager_]recipe_data[_ft_data][_pixels]`. Files of the original authors have no repackager;
    `jx` and `timm` are earlier and present files of PyTorch Image Models, `hf` files of
    transformers and `bv` files of big_vision. The default of 224 pixels is omitted. Names of
    foundation backbones are the tags of their files in PyTorch Image Models; the default size of
    the constructor is omitted.

    Args:
        model: Name of the constructor, for example `"ViTB16"`.
        name: Value for `weights=`; unique within the model.
        aliases: Alternative names, also unique within the model.
        urls: URLs of the file; the first URL is the source, the others are mirrors.
        format: `"npz"`, `"safetensors"` or `"pth"`.
        dialect: Naming scheme: `"npz"`, `"timm"`, `"timm_eva"`, `"open_clip"`, `"huggingface"` or
            `"torchvision"`.
        mebibytes: Rounded size as published, in units of 2**20 bytes; None if unknown.
        bytes: Exact size in bytes; None if unknown.
        sha256: SHA-256 of the file in 64 hex digits; None if not published. A file without a
            published hash on a branch of the Hugging Face hub (`/resolve/main/`) is verified by
            the hash in the hub's response to the download.
        sha256_prefix: First 8 hex digits of the SHA-256 if in the file name, or None.
        license: SPDX identifier, or the name on the Hugging Face hub.
        source: Public files that this entry was compiled from.
        top1: Accuracy on the ImageNet-1k validation images, in percent; None if not published.
        top1_source: Public file that contains the accuracy.
        image_size: Side of the images, in pixels.
        classes: Number of classifier outputs; 0 for no classifier.
        labels: `"imagenet1k"`, `"imagenet21k"`, or None without a classifier.
        scaling: `"half"` for pixels in [-1, 1], `"unit"` for [0, 1], or the mean and standard
            deviation of `"imagenet"`, `"clip"` or `"satellite"` images.
        resize: `"crop"` or `"squash"`, see `Preprocessing`.
        crop_fraction: See `Preprocessing`, in (0, 1].
        interpolation: `"bilinear"` or `"bicubic"`.
        gelu: `"tanh"`, `"exact"` or `"quick"`, as in the original code of `dialect`.
        epsilon: Added to the variance in the layer norms.
        note: Further remarks, as sentences.

    Examples:
        >>> row = find_weights("ViTTi16", "imagenet")
        >>> row.name, row.image_size, row.top1
        ('augreg_in21k_ft_in1k', 224, 75.452)
    """

    model: str
    name: str
    aliases: tuple[str, ...]
    urls: tuple[str, ...]
    format: str
    dialect: str
    mebibytes: int | None
    bytes: int | None
    sha256: str | None
    sha256_prefix: str | None
    license: str
    source: str
    top1: float | None
    top1_source: str
    image_size: int
    classes: int
    labels: str | None
    scaling: str
    resize: str
    crop_fraction: float
    interpolation: str
    gelu: str
    epsilon: float
    note: str

    @property
    def file_name(self) -> str:
        """Unique file name in the cache folder; many URLs end in the same file name."""
        return urllib.parse.urlsplit(self.urls[0]).path.strip("/").replace("/", "-")

    @property
    def terms(self) -> str | None:
        """URL of the license; None for Apache-2.0 and MIT."""
        return _TERMS.get(self.license)


def list_weights(model: str | None = None) -> list[PublishedWeights]:
    """Returns the published weights of a model, or of all models.

    Args:
        model: Name of the constructor, for example `"ViTB16"`; None for all models.

    Returns:
        The entries in the table's order; an empty list for a model without published weights.

    Examples:
        >>> [row.name for row in list_weights("ViTS8")]
        ['dino', 'timm_dino']
    """
    return [row for row in _table() if model in (None, row.model)]


def find_weights(model: str, name: str) -> PublishedWeights:
    """Returns the registry entry for published weights of a model, given their name."""
    matching = matches(model, name)
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise ValueError(
            "`weights` must identify one file, but several files match: use one of "
            f"{', '.join(repr(row.name) for row in matching)}. Received: weights={name!r}"
        )
    rows = list_weights(model)
    if not rows:
        raise ValueError(
            f"`weights` must be None or a file; there are no published weights for {model}. "
            f"Received: weights={name!r}"
        )
    names = [row.name for row in rows]
    hint = arguments.nearest(name, [*names, *(alias for row in rows for alias in row.aliases)])
    raise ValueError(
        f"`weights` must be a file or one of the published weights of {model}.{hint} Options: "
        f"{', '.join(map(repr, names))}. Received: weights={name!r}"
    )


def preprocessing_for(row: PublishedWeights) -> Preprocessing:
    """Returns the preprocessing with which published weights were evaluated."""
    mean, std = SCALINGS[row.scaling]
    return Preprocessing(
        size=(row.image_size, row.image_size),
        resize=row.resize,
        crop_fraction=row.crop_fraction,
        interpolation=row.interpolation,
        mean=mean,
        std=std,
        class_names=imagenet_labels() if row.labels == "imagenet1k" else None,
    )


def matches(model: str, name: str) -> list[PublishedWeights]:
    """Returns a model's entries with this name or alias, or else those whose URL ends in it."""
    rows = list_weights(model)
    same_name = [row for row in rows if name == row.name or name in row.aliases]
    if name in _GENERIC:
        return []
    ends = tuple(f"/{name.removeprefix('gs://')}{suffix}" for suffix in ("", ".npz"))
    return same_name or [row for row in rows if any(f"/{url}".endswith(ends) for url in row.urls)]


@functools.cache
def _table() -> tuple[PublishedWeights, ...]:
    rows = csv.DictReader(files.asset("weights.csv").splitlines())
    hints = typing.get_type_hints(PublishedWeights)
    fields = ({name: _value(hints[name], cell) for name, cell in row.items()} for row in rows)
    return tuple(PublishedWeights(**values) for values in fields)


def _value(hint: Any, cell: str) -> Any:
    """Converts a cell of the table to the type of its column."""
    if typing.get_origin(hint) is tuple:
        return tuple(cell.split())
    kind, *optional = typing.get_args(hint) or (hint,)
    return kind(cell) if cell or not optional else None
