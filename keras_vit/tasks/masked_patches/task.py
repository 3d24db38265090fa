"""Masked patch prediction task, which pre-trains an encoder without labels."""

from __future__ import annotations

import keras

from keras_vit.tasks.masked_patches.objective import MaskedPatchesObjective
from keras_vit.tasks.objective import Objective
from keras_vit.tasks.pretraining import Pretraining


class MaskedPatches(Pretraining):
    """Pre-training of an encoder by predicting the mean colors of masked patches."""

    name = "masked_patches"

    def new_objective(self, network: keras.Model) -> Objective:
        return MaskedPatchesObjective(network, mask_ratio=self.config.masked)
