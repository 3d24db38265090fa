"""Sample images from the validation set in a run folder."""

from __future__ import annotations

import os
import re

import numpy as np

from keras_vit import data
from keras_vit.data.image_metadata import without_metadata
from keras_vit.runs.run_folder import RunFolder

# Validation images written to a run folder, to try predictions and verify exports.
_SAMPLES = 16
_LONGEST_LABEL = 80  # characters of a file name for all labels of an image
_LONGEST_NAME, _LONGEST_SUFFIX = 200, 20  # bytes; file systems allow 255


def write_samples(run: RunFolder, validation: data.Examples) -> None:
    """Writes a few validation images, spread over the classes, without metadata to a run folder."""
    run.samples.mkdir(parents=True, exist_ok=True)
    labels = validation.targets
    order = np.argsort(labels.argmax(axis=1) if validation.multi_label else labels, kind="stable")
    positions = np.linspace(0, len(order) - 1, min(_SAMPLES, len(order))).round().astype(int)
    for index in order[np.unique(positions)]:
        label, name = "_".join(validation.shown(index)) or "none", validation.names[index]
        label = label if not validation.multi_label else label[:_LONGEST_LABEL]
        name = name if name.startswith(f"{label}/") else f"{label}_{name}"
        content = without_metadata(encoded := validation.read(int(index)))
        name = name if content[:2] == encoded[:2] else f"{name}.png"
        # Neither a slash nor a name of dots alone, so that the path stays inside the folder.
        stem, suffix = os.path.splitext(re.sub(r"[^\w.-]", "_", name))
        end = suffix.encode()[:_LONGEST_SUFFIX]
        name = (stem.encode()[: _LONGEST_NAME - len(end)] + end).decode(errors="ignore")
        (run.samples / name).write_bytes(content)
