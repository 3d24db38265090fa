"""Repositories of the Hugging Face hub, without its client."""

from __future__ import annotations

import json
import re
from pathlib import Path

from keras_vit.download import fetch

_HUB = "https://huggingface.co"
_LISTING = "files.json"
_CONFIGS = ("config.json", "preprocessor_config.json")
# The first kind that a repository has is taken; PyTorch's own needs torch.
_WEIGHTS = (
    *(r"model\.safetensors", r"model.*\.safetensors(\.index\.json)?"),
    *(r"tf_model\.h5", r"pytorch_model\.bin"),
)


def fetch_repository(repository: str) -> Path:
    """Downloads the weights and configuration of a repository on the Hugging Face hub.

    The hub lists the SHA-256 of every large file, by which it is verified.

    Args:
        repository: Owner and name, `"google/vit-base-patch16-224"`.

    Returns:
        The folder in the cache. A later call uses it as it is: delete it to fetch a new
        revision.

    Raises:
        ValueError: If the repository holds no weights, or a file is not the one listed.
        ConnectionError: If the hub cannot be reached.

    Reference: https://huggingface.co/docs/hub/api
    """
    folder = f"hf--{repository.replace('/', '--')}"
    listing = fetch([f"{_HUB}/api/models/{repository}?blobs=true"], _LISTING, folder=folder).path
    files = {file["rfilename"]: file for file in json.loads(listing.read_text())["siblings"]}
    kinds = ([n for n in files if re.fullmatch(kind, n)] for kind in _WEIGHTS)
    weights: list[str] = next(filter(None, kinds), [])
    if not weights:
        raise ValueError(
            f"The repository {repository!r} must hold model.safetensors, tf_model.h5 or "
            f"pytorch_model.bin. Received: {', '.join(sorted(files)) or 'no files'}"
        )
    for name in (*(name for name in _CONFIGS if name in files), *weights):
        large = files[name].get("lfs") or {}
        fetch(
            [f"{_HUB}/{repository}/resolve/main/{name}"],
            name,
            folder=folder,
            size=large.get("size", files[name].get("size")),
            sha256=large.get("sha256"),
        )
    return listing.parent
