"""Weight names and layouts of open_clip, also of the original CLIP; the text tower is ignored."""

from __future__ import annotations

from keras_vit.weights.dialects.dialect import Dialect, Row, exact_gelu
from keras_vit.weights.dialects.rows import ALL_IN_PROJ, ALL_TORCH, TORCH, group, norm

_BLOCK = "visual.transformer.resblocks.{block}."
_LAYERS = ("ln_1", "", "attn.out_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")

# src/open_clip/transformer.py and model.py of https://github.com/mlfoundations/open_clip, release
# 3.3.0; open_clip_config.json overrides these.
OPEN_CLIP = Dialect(
    "open_clip",
    "open_clip",
    (
        Row("patch_encoder/class_token", "visual.class_embedding", "D -> 11D"),
        Row("patch_encoder/positions", "visual.positional_embedding", "TD"),
        Row("patch_encoder/projection/kernel", "visual.conv1.weight", "DCPQ -> (PQC)D"),
        *norm("pre_norm", "visual.ln_pre", TORCH, "norm before the blocks"),
        *group("block", ("", "attn.in_proj"), ALL_IN_PROJ, scope=_BLOCK),
        *group("block", _LAYERS, ALL_TORCH, scope=_BLOCK),
        *group("scales", ("ls_1.gamma", "ls_2.gamma"), ALL_TORCH, scope=_BLOCK),
        *group("top", ("ln_post",), ALL_TORCH, scope="visual/"),
    ),
    required_names=("visual.class_embedding", "visual.conv1.weight"),
    implied_fields=exact_gelu(epsilon=1e-5, position_interpolation="bicubic_antialiased"),
    ignored=(
        *(r"(transformer|token_embedding|ln_final|text)\..*", r"(positional|cls)_embedding"),
        *(r"text_projection(\.weight)?", r"logit_(scale|bias)", r"attn_mask", r"visual\.proj"),
        *(r"input_resolution", r"context_length", r"vocab_size"),
    ),
    notes={
        r"visual\.proj": "the projection to the space that images and texts share is not read; the "
        "model returns the vector before it"
    },
)
