"""Packages for Keras 2: each runs in a process of its own, with tf-keras."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import keras_vit
from keras_vit.models import build
from keras_vit.weights import load_weights, read_checkpoint
from keras_vit.weights.infer_config import config_of
from tests.weights.migration.foreign_packages import (
    TOLERANCE_OF_REAL_SIZES,
    assert_same_logits,
    images_of,
    need_old_package,
    rebuilt,
    run_keras_2,
)

pytestmark = pytest.mark.slow

IMAGES = images_of(15, 12)

# It imports both, for activations and files that it does not need here.
_VIT_KERAS = """
for name in ("tensorflow_addons", "pkg_resources"):
    sys.modules.setdefault(name, types.ModuleType(name))
from vit_keras.vit import build_model
sizes = dict(image_size=(15, 12), patch_size=3)
sizes |= dict(num_layers=2, hidden_size=24, num_heads=4, mlp_dim=29)
"""


@pytest.mark.parametrize("options", ["", ", representation_size=7", ", include_top=False"])
def test_vit_keras(options: str, tmp_path: Path) -> None:
    need_old_package("vit_keras")
    code = f"""
model = randomised(build_model(name="vit", classes=11, **sizes{options}))
logits = model(images)
model.save_weights("weights.h5")
model.compile("adam", "mse")
model.train_on_batch(images, np.zeros(logits.shape))
model.save("model.h5")
np.save("later.npy", model(images))
"""
    logits = run_keras_2(_VIT_KERAS + code, tmp_path, IMAGES)
    model = rebuilt(tmp_path / "weights.h5", num_heads=4, image_size=(15, 12))
    assert_same_logits(model, IMAGES, logits)
    later = np.load(tmp_path / "later.npy")  # after a step of training
    assert_same_logits(rebuilt(tmp_path / "model.h5"), IMAGES, later)


def test_vit_keras_inside_another_model(tmp_path: Path) -> None:
    need_old_package("vit_keras")
    code = """
vit = build_model(name="vit-b16", classes=11, include_top=False, **sizes)
model = tf_keras.Sequential([vit, tf_keras.layers.Dropout(0.1), tf_keras.layers.Dense(5)])
model.build((None, 15, 12, 3))
logits = randomised(model)(images)
model.save_weights("weights.h5")
model.save("model.h5")
"""
    logits = run_keras_2(_VIT_KERAS + code, tmp_path, IMAGES)
    for name in ("weights.h5", "model.h5"):
        model = rebuilt(tmp_path / name, num_heads=4, image_size=(15, 12))
        assert_same_logits(model, IMAGES, logits)


@pytest.mark.parametrize("pre_logits", [True, False])
def test_keras_vit_of_pypi(pre_logits: bool, tmp_path: Path) -> None:
    need_old_package("keras_vit")
    # It takes TensorFlow and NumPy from the Keras of its time; the second model counts on.
    code = f"""
tf_keras.backend.tf, tf_keras.backend.np = tf, np
sys.modules["keras"] = tf_keras
for name in ("activations", "backend", "layers", "models", "utils"):
    sys.modules["keras." + name] = getattr(tf_keras, name)
sys.modules.setdefault("cv2", types.ModuleType("cv2"))
from keras_vit.vit import ViT
for name in ("first.h5", "second.h5"):
    model = ViT(image_size=(15, 12), patch_size=3, encoder_depth=11, hidden_dim=24, atten_heads=4,
                mlp_dim=29, num_classes=7, pre_logits={pre_logits})
    logits = randomised(model)(images)
    model.save_weights(name)
    np.save(name + ".npy", logits)
"""
    run_keras_2(code, tmp_path, IMAGES)
    for name in ("first.h5", "second.h5"):
        model = rebuilt(tmp_path / name, num_heads=4, image_size=(15, 12))
        assert_same_logits(model, IMAGES, np.load(tmp_path / f"{name}.npy"))


KECAM = {
    "vit": "vit.ViT(patch_size=3, **sizes)",
    "tanh": 'vit.ViT(patch_size=3, activation="gelu/approximate", **sizes)',
    "layer scale": "vit.ViT(patch_size=3, layer_scale=0.3, **sizes)",
    "epsilon": "vit.ViT(patch_size=3, layer_norm_epsilon=0.1, **sizes)",
    "flexivit": "flexivit.FlexiViT(patch_size=3, **sizes)",
    "eva": "eva.EVA(patch_size=3, attn_qkv_bias=True, **sizes)",
    "meta": "meta_transformer.MetaTransformer(patch_size=3, **sizes)",
}


@pytest.mark.parametrize("case", KECAM)
def test_kecam(case: str, tmp_path: Path) -> None:
    need_old_package("keras_cv_attention_models")
    code = f"""
from keras_cv_attention_models.beit import eva, flexivit, meta_transformer, vit
sizes = dict(input_shape=(15, 12, 3), depth=2, embed_dim=24, num_heads=4, num_classes=11)
sizes |= dict(classifier_activation=None, pretrained=None)
model = {KECAM[case]}
logits = randomised(model)(images)
model.save_weights("weights.h5")
model.save("model.h5")
"""
    logits = run_keras_2(code, tmp_path, IMAGES)
    assert_same_logits(rebuilt(tmp_path / "model.h5"), IMAGES, logits)
    # Weights alone do not tell heads, grid and epsilon.
    known: dict[str, Any] = {"num_heads": 4, "image_size": (15, 12)}
    known |= {"epsilon": 0.1} if case == "epsilon" else {}
    if case == "flexivit":
        known["prefix_position"] = False
    assert_same_logits(rebuilt(tmp_path / "weights.h5", **known), IMAGES, logits)


def test_kecam_on_another_grid(tmp_path: Path) -> None:
    need_old_package("keras_cv_attention_models")
    code = """
from keras_cv_attention_models.beit import vit
sizes = dict(patch_size=3, depth=2, embed_dim=24, num_heads=4, num_classes=11)
sizes |= dict(classifier_activation=None, pretrained=None)
trained = randomised(vit.ViT(input_shape=(15, 15, 3), **sizes))
trained.save("model.h5")
model = vit.ViT(input_shape=(21, 33, 3), **sizes)
for mine, other in zip(model.layers, trained.layers):
    if mine.name == "positional_embedding":
        mine.load_resized_weights(other)
    else:
        mine.set_weights(other.get_weights())
logits = model(images)
"""
    images = images_of(21, 33)
    logits = run_keras_2(code, tmp_path, images)
    checkpoint = read_checkpoint(tmp_path / "model.h5")
    model = build(config_of(checkpoint, image_size=(21, 33)))
    assert load_weights(model, checkpoint, report=True).resized == (
        "Position embeddings resized from (5, 5) to (7, 11) patches",
    )
    assert_same_logits(model, images, logits)


TRANSFORMERS = {
    "vit": "TFViTForImageClassification(ViTConfig(**sizes))",
    "tanh": 'TFViTForImageClassification(ViTConfig(**sizes, hidden_act="gelu_new"))',
    "no qkv bias": "TFViTForImageClassification(ViTConfig(**sizes, qkv_bias=False))",
    "epsilon": "TFViTForImageClassification(ViTConfig(**sizes, layer_norm_eps=0.1))",
    "bare": "TFViTModel(ViTConfig(**sizes))",
    "deit": "TFDeiTForImageClassification(DeiTConfig(**sizes))",
    "deit with teacher": "TFDeiTForImageClassificationWithTeacher(DeiTConfig(**sizes))",
}


def need_transformers() -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("needs transformers")
    version = importlib.metadata.version("transformers")
    if int(version.split(".")[0]) > 4:
        pytest.skip(f"needs transformers 4, which runs on TensorFlow; this is {version}")


def transformers_code(call: str, sizes: dict[str, Any]) -> str:
    return f"""
from transformers import (
    DeiTConfig, TFDeiTForImageClassification, TFDeiTForImageClassificationWithTeacher,
    TFViTForImageClassification, TFViTModel, ViTConfig,
)
sizes = {sizes!r}
model = {call}
channels_first = tf.transpose(images, (0, 3, 1, 2))
model(channels_first)
output = randomised(model)(channels_first)
logits = output.pooler_output if hasattr(output, "pooler_output") else output.logits
model.save_pretrained("model")
"""


SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 29,
    "image_size": 15,
    "patch_size": 3,
    "num_labels": 11,
}


@pytest.mark.parametrize("case", TRANSFORMERS)
def test_transformers(case: str, tmp_path: Path) -> None:
    need_transformers()
    images = images_of(15, 15)
    logits = run_keras_2(transformers_code(TRANSFORMERS[case], SIZES), tmp_path, images)
    assert json.loads((tmp_path / "model/config.json").read_text())["model_type"]
    assert (tmp_path / "model/tf_model.h5").is_file()
    assert_same_logits(rebuilt(tmp_path / "model"), images, logits)


def test_transformers_real_size_on_another_grid(tmp_path: Path) -> None:
    need_transformers()
    sizes = {**SIZES, "hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3}
    sizes |= {"intermediate_size": 768, "image_size": 96, "patch_size": 16}
    code = f"""
from transformers import ViTConfig, TFViTForImageClassification
model = TFViTForImageClassification(ViTConfig(**{sizes!r}))
channels_first = tf.transpose(images, (0, 3, 1, 2))
model(channels_first, interpolate_pos_encoding=True)
rng = np.random.default_rng(5)
model.set_weights([w + rng.normal(scale=0.03, size=w.shape) for w in model.get_weights()])
logits = model(channels_first, interpolate_pos_encoding=True).logits
model.save_pretrained("model")
"""
    images = images_of(128, 160)
    logits = run_keras_2(code, tmp_path, images)
    with pytest.warns(UserWarning, match="Position embeddings resized"):
        model = keras_vit.ViTTi16(
            weights=tmp_path / "model",
            input_shape=(128, 160, 3),
            classes=11,
            classifier_activation=None,
        )
    assert read_checkpoint(tmp_path / "model").inferred["position_grid"] == (6, 6)
    # Its cubic kernel is a table of 1024 steps, and rounds.
    assert_same_logits(model, images, logits, TOLERANCE_OF_REAL_SIZES)
