"""Resolution of `weights=` arguments to checkpoints."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import sys
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import numpy as np

from keras_vit.download.cache import accept, cache_folder, fetch
from keras_vit.models.counting import count_parameters
from keras_vit.models.published import PUBLISHED
from keras_vit.weights import foreign_folders, foreign_keras, hub, keras_files, metadata, registry
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.containers import formats, h5, npz, safetensors, torch
from keras_vit.weights.dialects import DIALECTS, Dialect, default_preprocessing
from keras_vit.weights.positions import infer_prefix_positions

# No part of a name begins with a dot, as a path to another folder does.
_HUB = re.compile(r"(?:hf://(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)|timm/(?P<timm>[\w-][\w.-]*))")
# Prefix of all tensor names, in checkpoints of models that are part of other modules.
_PREFIX = re.compile(r"(?:(?:module|_orig_mod|teacher|backbone|model|encoder)\.)+")
_PASSWORD = re.compile(r"[\w+.-]+:/+[^/?#]*@")  # in a URL of any kind


def read_checkpoint(source: str | os.PathLike[str], model: str | None = None) -> Checkpoint:
    """Reads published or local weights; the file format is detected from the content.

    Args:
        source: One of: the path of a file (official `.npz`; `.safetensors`, also the index of a
            sharded checkpoint; `.weights.h5` or `.keras` of this package, vit-keras or KerasHub;
            `.h5` of vit-keras, keras-vit, kecam or transformers; `.pth` or `.bin` if torch is
            installed); the path of a folder (a run, Hugging Face, timm or a KerasHub preset); the
            name of published weights of `model`, see `list_weights`; `"hf://org/repository"`;
            `"timm/NAME"`; or an https URL.
        model: Name of the constructor, for example `"ViTB16"`, for the names of published weights.

    Returns:
        The checkpoint with this package's variable names.

    Raises:
        ValueError: If the file is missing, damaged, or of an unsupported format, or the name is
            unknown; the message lists the valid names.
        ConnectionError: If the download fails.

    Examples:
        >>> read_checkpoint("nowhere.npz")
        Traceback (most recent call last):
        ...
        ValueError: `weights` must be ...
    """
    text = os.fspath(source)
    if os.path.exists(text):
        return read_path(Path(text))
    if _PASSWORD.match(text):
        raise ValueError("`weights` must be a URL without a user name and a password")
    match = _HUB.fullmatch(text)
    # The hub's hash of a file is better than most entries of the registry.
    if model is not None and not (match and match["repo"]) and registry.matches(model, text):
        return _published(registry.find_weights(model, text))
    if match:
        return read_path(hub.fetch_repository(match["repo"] or f"timm/{match['timm']}"))
    if text.startswith("https://"):
        # Many URLs end in the same file name.
        folder = f"url-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        name = Path(urlsplit(text).path).name
        return read_path(accept(fetch([text], name, folder=folder, limit=_limit(model))))
    if model is not None and not re.search(r"[/\\]|\.\w+$", text):
        registry.find_weights(model, text)  # raises, with the valid names
    if model is None and any(text in (row.name, *row.aliases) for row in registry.list_weights()):
        raise ValueError(
            "The name of published weights must be passed to a constructor, as in "
            f"ViTB16(weights={text!r}) or `--model ViTB16`. Received: {text!r} alone"
        )
    raise ValueError(
        "`weights` must be None, the path of an existing file or folder, the name of published "
        "weights of this model (`keras_vit.list_weights()`), 'hf://org/repository', 'timm/NAME' "
        f"or an https URL. Received: weights={text!r}, which does not exist"
    )


def read_path(path: Path) -> Checkpoint:
    """Reads a local file or folder as a checkpoint (see `read_checkpoint`)."""
    if path.is_dir():
        return foreign_folders.read_folder(path, _read_file)
    checkpoint = _read_file(path)
    if "preprocessing" not in checkpoint.notes:
        return checkpoint
    try:
        return foreign_folders.configure(checkpoint, path.parent)
    except ValueError as error:  # the files beside it may be those of another program
        note = f"{path} is read without the configuration files beside it. {error}".rstrip(".")
        return checkpoint.replace(notes={**checkpoint.notes, "configuration": note})


def _read_file(path: Path) -> Checkpoint:
    kind = formats.format_of(path)
    if kind in ("h5", "keras") and foreign_keras.is_ours(path, kind):
        return keras_files.read_h5(path) if kind == "h5" else keras_files.read_keras(path)
    readers = {
        "npz": npz.read_npz,
        "safetensors": safetensors.read_safetensors,
        "torch": torch.read_torch,
        "legacy_h5": h5.read_legacy_h5,
    }
    tensors = readers.get(kind, foreign_keras.read_tensors)(path)
    checkpoint = dialect_of(tensors, str(path)).read(tensors, str(path))
    checkpoint = foreign_keras.complete(checkpoint, foreign_keras.read_layers(path, kind))
    checkpoint = default_preprocessing.assume(checkpoint)
    if kind == "safetensors":
        checkpoint = metadata.extend(checkpoint, safetensors.read_metadata(path))
    return checkpoint


def dialect_of(tensors: dict[str, np.ndarray], source: str) -> Dialect:
    """Returns the `Dialect` that matches a file's tensor names."""
    dialects = [*DIALECTS.values()]
    shared = os.path.commonprefix([*tensors])  # noqa: RUF071 character by character
    if prefix := _PREFIX.match(shared):
        dialects += [dataclasses.replace(dialect, prefix=prefix[0]) for dialect in dialects]
    for dialect in dialects:
        if dialect.matches(tensors):
            return dialect
    if any("patch_encoder/projection" in name for name in tensors):
        raise ValueError(
            "`weights` of a keras_vit model must be a .keras file, or a .weights.h5 file of this "
            "model alone. Load the whole model (`keras.models.load_model`, or `load_weights` of a "
            "model built in the same way), and save its keras_vit model as .keras. Received: "
            f"weights={source!r}, in the older .h5 format or of a model that contains it"
        )
    raise ValueError(
        f"{source} must be a Vision Transformer with tensor names as in "
        f"{', '.join(d.title for d in DIALECTS.values())}. Received: tensors named "
        f"{', '.join(sorted(tensors)[:5]) or 'nothing'}, ..."
    )


def _published(row: registry.PublishedWeights) -> Checkpoint:
    """Downloads and reads published weights, and adds the fields of their registry entry."""
    checked: list[Checkpoint] = []  # a new download is not read twice

    def check(path: Path) -> None:
        # Checks every CRC of a zip file, and the names and shapes of all tensors.
        checkpoint = _read_file(path)
        classes = checkpoint.inferred["classes"]
        if classes != row.classes:
            raise ValueError(f"it has {classes} classes instead of {row.classes}")
        checked[:] = [checkpoint]

    if row.format == "pth":
        torch.need_torch(Path(PurePosixPath(row.urls[0]).name))  # before hundreds of megabytes
    if row.terms and not (cache_folder() / row.file_name).exists():
        text = f"The license of {row.model}(weights={row.name!r}) is {row.license}: {row.terms}"
        print(text, file=sys.stderr, flush=True)
    download = fetch(
        row.urls,
        row.file_name,
        size=row.bytes,
        limit=_limit(row.model, row.classes),
        sha256=row.sha256,
        sha256_prefix=row.sha256_prefix,
        # A file without a hash is on a branch, which its owner may move.
        needs_sha256=row.sha256 is None and row.urls[0].startswith(f"{hub.HUB}/"),
        check=check,
    )
    path = accept(download)
    checkpoint = checked[0].replace(source=str(path)) if checked else _read_file(path)
    if patch := checkpoint.inferred.get("patch_size"):
        grid = (row.image_size // patch[0], row.image_size // patch[1])
        checkpoint = infer_prefix_positions(checkpoint, grid)
    inferred = checkpoint.inferred | {"gelu": row.gelu, "epsilon": row.epsilon}
    preprocessing = registry.preprocessing_for(row)
    return checkpoint.replace(inferred=inferred, preprocessing=preprocessing, notes={})


def _limit(model: str | None, classes: int = 21_843) -> int:
    """Returns the largest size of a download: twice the bytes of a model's float32 weights."""
    config = PUBLISHED.get(model or "") or PUBLISHED["ViTG14"]
    return 2 * 4 * count_parameters(config.replace(classes=classes))
