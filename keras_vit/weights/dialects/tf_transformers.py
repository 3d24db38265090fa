"""Weight names and layouts of `tf_model.h5`, the TensorFlow format of transformers up to v4."""

from __future__ import annotations

import re

from keras_vit.weights.dialects.dialect import Dialect, exact_gelu, renamed
from keras_vit.weights.dialects.huggingface import EMBEDDING, LAYERS, TOP
from keras_vit.weights.dialects.rows import group

# A path contains the layer of the model, the model's class, and the layer again.
_INNER = re.compile(r"(?:.*/)?(?:vit|deit)/((?:embeddings|encoder|layernorm|pooler)/.+)")
_OUTER = re.compile(r"(?:.*/)?(?:cls_)?((?:distillation_)?classifier/\w+)")


def _published(name: str) -> str:
    """Removes the scopes in front of a tensor name."""
    name = name.removesuffix(":0")
    match = _INNER.fullmatch(name) or _OUTER.fullmatch(name)
    return match[1] if match else name


# models/vit/modeling_tf_vit.py and models/deit/modeling_tf_deit.py of
# https://github.com/huggingface/transformers, release 4.57.6; the config.json of a folder overrides
# these. `tf.image.resize` has the cubic kernel of `bicubic_antialiased`; enlarging is the same.
TF_TRANSFORMERS = Dialect(
    "tf_transformers",
    "transformers for TensorFlow",
    (
        *group("embedding", EMBEDDING, scope="embeddings/"),
        *group("block", LAYERS, scope="encoder/layer_._{block}/", optional=("qkv bias",)),
        *group("top", TOP),
    ),
    required_names=("embeddings/cls_token", "embeddings/patch_embeddings/projection/kernel"),
    implied_fields=exact_gelu(epsilon=1e-12, position_interpolation="bicubic_antialiased"),
    ignored=(r"(?:.*/)?decoder/.*",),  # of a masked autoencoder
    normalize=renamed(_published),
)
