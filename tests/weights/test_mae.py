"""The encoder of a masked autoencoder, as transformers computes it on the patches it keeps."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from keras_vit.models import build
from keras_vit.weights import load_weights, read_checkpoint
from keras_vit.weights.containers.safetensors import write_safetensors
from keras_vit.weights.infer_config import config_of
from tests.helpers import assert_close, numpy


@pytest.mark.parametrize("name", ["vit_mae_pretraining", "vit_mae_norm_pix"])
def test_encoder_on_the_patches_kept(
    name: str, recipe: ModuleType, test_data: Path, tmp_path: Path
) -> None:
    case = recipe.load(str(test_data / "reference" / "hf" / f"{name}.json"))
    expected = recipe.outputs(case)
    path = tmp_path / "model.safetensors"
    write_safetensors(path, recipe.weights(case))
    checkpoint = read_checkpoint(path)
    model = build(config_of(checkpoint, num_heads=4, pooling="none"))
    report = load_weights(model, checkpoint, report=True)
    assert all(left.startswith("decoder.") for left in report.of("left"))
    assert len(report.of("left")) > 30  # the decoder has no place in a classifier

    encoder = model.get_layer("patch_encoder")
    z = numpy(encoder(model.get_layer("patches")(recipe.image(case))))  # (B, N + 1, D)
    # The patches with the least noise are kept, in that order; the class token always.
    kept = np.argsort(expected["noise"], axis=1, kind="stable")
    kept = kept[:, : expected["hidden00"].shape[1] - 1] + 1
    z = np.stack([z[b, [0, *kept[b]]] for b in range(len(z))])
    assert_close(z, expected["hidden00"], 2e-5)
    for index in range(2):
        z = numpy(model.get_layer(f"block_{index:02d}")(z))
        # Measured: 2e-6.
        assert_close(z, expected[f"hidden{index + 1:02d}"], 2e-5, f"block {index}")
