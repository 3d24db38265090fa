"""Masked patch prediction task, which pre-trains an encoder without labels."""

from __future__ import annotations

from keras_vit.tasks.masked_patches.objective import MaskedPatchesObjective
from keras_vit.tasks.pretraining import Pretraining


class MaskedPatches(Pretraining):
    """Pre-training of an encoder by predicting the mean colors of masked patches."""

    name = "masked_patches"
    objective_class = MaskedPatchesObjective
