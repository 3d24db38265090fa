"""Manifest file of an exported model version."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_vit import files
from keras_vit.data.image_reading import Limits
from keras_vit.download import integrity
from keras_vit.export import saved_model
from keras_vit.export.compare_artifacts import ArtifactComparison
from keras_vit.preprocessing import Preprocessing
from keras_vit.runs.config import versions

MANIFEST = "manifest.json"


def write(
    staged: Path,
    preprocessing: Preprocessing,
    limits: Limits,
    results: Sequence[ArtifactComparison],
    images: int,
    **facts: Any,
) -> None:
    """Writes a manifest with file hashes into both folders of an exported version."""
    content = {
        **facts,
        "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "preprocessing": preprocessing.get_config(),
        "limits": dataclasses.asdict(limits),
        "versions": versions(),
        # With the British spelling of earlier manifests.
        "verification": {"images": images, "artefacts": [dataclasses.asdict(r) for r in results]},
    }
    for result in content["verification"]["artefacts"]:
        if math.isnan(result["largest_difference"]):  # not representable in JSON
            result["largest_difference"] = None
    extra = staged / "saved_model" / saved_model.EXTRA
    extra.mkdir(exist_ok=True)
    for folder, place in ((staged / "saved_model", extra), (staged / "files",) * 2):
        hashes = {
            str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256(path)}
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        if hashes:
            files.write_json(place / MANIFEST, {**content, "files": hashes})


def sha256(path: Path) -> str:
    """Returns the SHA-256 hash of a file as 64 hexadecimal digits."""
    return integrity.file_digests(path, ["sha256"])["sha256"].hex()
