"""Outputs of open_clip for a tiny model: tests/weights/foundation."""

from __future__ import annotations

import numpy as np
import pytest

from keras_vit.weights.dialects.open_clip import OPEN_CLIP
from tests.weights.dialects.test_huggingface_backbones import CLIP, variables


@pytest.mark.parametrize("scaled", [False, True])
def test_the_image_tower_survives(scaled: bool) -> None:
    config = CLIP.replace(layer_scale=0.1 if scaled else None)
    theirs = OPEN_CLIP.write(variables(config), config)
    assert theirs["visual.positional_embedding"].shape == (10, 24)
    assert ("visual.transformer.resblocks.1.ls_2.gamma" in theirs) == scaled
    text = ("transformer.resblocks.0.ln_1.bias", "positional_embedding", "text_projection")
    found = OPEN_CLIP.read(theirs | dict.fromkeys((*text, "visual.proj"), np.zeros(5)), "x")
    assert found.ignored == (*text, "visual.proj")
    again = OPEN_CLIP.write(found.tensors, config)
    assert all(np.array_equal(again[name], theirs[name]) for name in theirs)
    assert ["projection" in note for note in found.notes.values()] == [True]
    numerics = ("exact", 1e-5, "bicubic_antialiased")
    names = ("gelu", "epsilon", "position_interpolation")
    assert tuple(found.inferred[name] for name in names) == numerics
