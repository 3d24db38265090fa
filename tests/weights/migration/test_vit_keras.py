from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import keras_vit
from keras_vit.weights import read_checkpoint
from tests.helpers import randomise
from tests.weights.migration.foreign_packages import (
    TOLERANCE_OF_REAL_SIZES,
    assert_same_logits,
    images_of,
    rebuilt,
)

vit_keras = pytest.importorskip("vit_keras.vit", reason="needs vit-keras for Keras 3")

pytestmark = pytest.mark.slow

SIZES: dict[str, Any] = {
    "image_size": (15, 12),
    "patch_size": 3,
    "num_layers": 2,
    "hidden_size": 24,
    "num_heads": 4,
    "mlp_dim": 29,
    "name": "vit",
    "classes": 11,
}


def built(**changes: Any) -> Any:
    return randomise(vit_keras.build_model(**{**SIZES, **changes}))


@pytest.mark.parametrize(
    "changes", [{}, {"representation_size": 7}, {"include_top": False}], ids=str
)
@pytest.mark.parametrize("name", ["m.h5", "m.keras", "m.weights.h5"])
def test_file(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    theirs = built(**changes)
    theirs.compile("adam", "mse")
    theirs.train_on_batch(images_of(15, 12), np.zeros((2, *theirs.output_shape[1:])))
    if name == "m.weights.h5":
        theirs.save_weights(tmp_path / name)
        model = rebuilt(tmp_path / name, num_heads=4, image_size=(15, 12))
    else:
        theirs.save(tmp_path / name)
        model = rebuilt(tmp_path / name)
    assert_same_logits(model, images_of(15, 12), theirs(images_of(15, 12)))


def test_fine_tuned_model_around_it(tmp_path: Path) -> None:
    import keras

    theirs = keras.Sequential(
        [built(include_top=False), keras.layers.Dropout(0.1), keras.layers.Dense(5)]
    )
    theirs.build((None, 15, 12, 3))
    randomise(theirs)
    for name in ("m.weights.h5", "m.h5", "m.keras"):
        (theirs.save_weights if name == "m.weights.h5" else theirs.save)(tmp_path / name)
        model = rebuilt(tmp_path / name, num_heads=4, image_size=(15, 12))
        assert_same_logits(model, images_of(15, 12), theirs(images_of(15, 12)))


def test_real_size_on_another_grid(tmp_path: Path) -> None:
    sizes = {"num_layers": 12, "hidden_size": 192, "num_heads": 3, "mlp_dim": 768}
    common = {"patch_size": 16, "name": "vit", "classes": 11, **sizes}
    theirs = randomise(vit_keras.build_model(image_size=96, **common), scale=0.03)
    theirs.save_weights(tmp_path / "m.weights.h5")
    options: dict[str, Any] = {"classes": 11, "classifier_activation": None}
    model = keras_vit.ViTTi16(weights=tmp_path / "m.weights.h5", **options)
    images = images_of(96, 96)
    assert_same_logits(model, images, theirs(images), TOLERANCE_OF_REAL_SIZES)

    from vit_keras.utils import apply_embedding_weights

    larger = vit_keras.build_model(image_size=(128, 160), **common)
    table = theirs.get_layer("Transformer_posembed_input").get_weights()[0]
    for mine, other in zip(larger.layers, theirs.layers, strict=True):
        if mine.name == "Transformer_posembed_input":
            with pytest.warns(UserWarning, match="Resizing position embeddings"):
                apply_embedding_weights(mine, table, num_x_patches=10, num_y_patches=8)
        else:
            mine.set_weights(other.get_weights())
    with pytest.warns(UserWarning, match="Position embeddings resized"):
        model = keras_vit.ViTTi16(
            weights=tmp_path / "m.weights.h5", input_shape=(128, 160, 3), **options
        )
    images = images_of(128, 160)
    assert_same_logits(model, images, larger(images), TOLERANCE_OF_REAL_SIZES)
    inferred = read_checkpoint(tmp_path / "m.weights.h5").inferred
    assert inferred["position_grid"] == (6, 6)
