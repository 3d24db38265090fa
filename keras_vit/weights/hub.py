"""Downloads of Hugging Face repositories, without the huggingface_hub package."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from pathlib import Path
from typing import Any

from keras_vit.arguments import naming_place
from keras_vit.download.cache import accept, fetch
from keras_vit.weights.containers.guards import read_json

HUB = "https://huggingface.co"
_LISTING = "files.json"
_LIMIT = 1 << 26  # bytes, for listings and configurations
_LARGEST = 1 << 36  # bytes, for weights
_CONFIGS = ("config.json", "preprocessor_config.json")
# In order of preference; PyTorch files need torch.
_WEIGHTS = (
    *(r"model\.safetensors", r"model[^/]*\.safetensors(\.index\.json)?"),
    *(r"tf_model\.h5", r"pytorch_model\.bin"),
)


def fetch_repository(repository: str) -> Path:
    """Downloads the weights and configuration files of a Hugging Face repository.

    Large files are verified by the SHA-256 in the hub's listing. All files are from the listed
    revision. A mirror must also serve the listing with its hashes if the hub cannot be reached; its
    files are unverified then.

    Reference: https://huggingface.co/docs/hub/api
    """
    folder = f"hf--{repository.replace('/', '--')}"
    url = f"{HUB}/api/models/{repository}?blobs=true"
    listing = fetch(
        *([url], _LISTING), folder=folder, check=_read_listing, limit=_LIMIT, publisher_first=True
    )
    revision, files = _read_listing(listing.path)
    weights = _weights(files)
    if not weights:
        raise ValueError(
            f"The repository {repository!r} must contain model.safetensors, tf_model.h5 or "
            f"pytorch_model.bin. Received: {', '.join(sorted(files)) or 'no files'}"
        )
    for name in (*(name for name in _CONFIGS if name in files), *weights):
        lfs = files[name].get("lfs") or {}  # only for large files
        file = fetch(
            [f"{HUB}/{repository}/resolve/{revision}/{name}"],
            name,
            folder=folder,
            size=lfs.get("size", files[name].get("size")),
            sha256=lfs.get("sha256"),
            limit=_LARGEST if lfs else _LIMIT,
            publisher_first=not lfs and "blobId" not in files[name],
            check=None if lfs else functools.partial(_check_blob, files[name].get("blobId")),
        )
        if lfs and "https" not in listing.level:
            file = dataclasses.replace(file, level="the SHA-256 in a listing of unknown origin")
        if lfs:
            accept(file)
    return listing.path.parent


def _check_blob(expected: str | None, path: Path) -> None:
    """Raises `ValueError` if a small file differs from its git hash in the listing."""
    content = path.read_bytes()
    head = f"blob {len(content)}\0".encode()
    actual = hashlib.sha1(head + content, usedforsecurity=False).hexdigest()
    if expected not in (None, actual):
        raise ValueError(f"its git hash is {actual} instead of {expected}")


def _read_listing(path: Path) -> tuple[str, dict[str, Any]]:
    """Returns the revision, and the files by name, from a repository listing."""
    with naming_place(
        "the listing of a repository must be a JSON object with the revision (`sha`) and the files "
        "(`siblings`)"
    ):
        listing = read_json(path)
        revision = listing.get("sha", "main")
        files = {file["rfilename"]: file for file in listing["siblings"]}
        hashes = {name: (file.get("lfs") or {}).get("sha256") for name, file in files.items()}
        if not re.fullmatch(r"main|[0-9a-f]{40}", revision):
            raise ValueError(f"sha={revision!r}")
        if not all(isinstance(name, str) for name in files):
            raise ValueError("a file without a name")
    # The index of shards is a small file, for which the hub has no hash.
    missing = [n for n in _weights(files) if not n.endswith(".json") and not hashes[n]]
    if missing:
        raise ValueError(
            "the listing of a repository must contain the `lfs.sha256` of its weights; a mirror "
            f"must serve the hub's API with ?blobs=true. Received: no hash for {', '.join(missing)}"
        )
    return revision, files


def _weights(files: dict[str, Any]) -> list[str]:
    """Returns the names of a repository's weight files in the most preferred format."""
    kinds = ([name for name in files if re.fullmatch(kind, name)] for kind in _WEIGHTS)
    return next(filter(None, kinds), [])
