"""Manifest file of an exported model version."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from keras_vit import files
from keras_vit.export.saved_model import EXTRA

MANIFEST = "manifest.json"


def write_manifests(served: Path, other_files: Path, content: dict[str, Any]) -> None:
    """Writes a manifest with file hashes into the SavedModel, and into a folder of other files."""
    for folder, target in ((served, served / EXTRA), (other_files, other_files)):
        hashes = {
            str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256(path)}
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        if hashes:
            files.write_json(target / MANIFEST, {**content, "files": hashes})


def sha256(path: Path) -> str:
    """Returns the SHA-256 hash of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
