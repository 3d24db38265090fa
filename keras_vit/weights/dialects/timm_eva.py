"""Weight names and layouts of timm's models of eva.py and beit.py: DINOv3, EUPE, EVA-02, BEiT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_vit.weights.dialects.dialect import NORM_AFTER_POOLING, Dialect, Row
from keras_vit.weights.dialects.rows import ALL_TORCH, COMMON_PARTS, TORCH, group, norm
from keras_vit.weights.dialects.timm import BLOCK, EMBEDDING

_BLOCK = "blocks.{block}."
_SEPARATE = ("", tuple(f"attn.{x}_proj" for x in "qkv"))
_GATED = ("mlp.fc1_g", "mlp.fc1_x")
_BIASES = (f"{_BLOCK}attn.q_bias", f"{_BLOCK}attn.v_bias")
_TABLE = f"{_BLOCK}attn.relative_position_bias_table"


def _implied_fields(inferred: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"gelu": "exact", "epsilon": 1e-6, "position_interpolation": "bicubic_antialiased"}
    if "position_embedding" not in inferred:  # DINOv3
        fields |= {"position_embedding": "rotary", "position_rescale": 2.0, "epsilon": 1e-5}
        # All published heads are of size 64, also those of H+.
        width = inferred["hidden_size"] or 0
        heads = {"num_heads": width // 64} if width and width % 64 == 0 else {}
        return fields | {"pooling": "gap"} | heads
    if inferred["position_embedding"] == "learned" and inferred["swiglu"]:
        fields["position_embedding"] = "learned_rotary"
    return fields


# timm/models/eva.py and timm/models/beit.py of
# https://github.com/huggingface/pytorch-image-models, release 1.0.31.
TIMM_EVA = Dialect(
    "timm_eva",
    "timm (DINOv3, EVA-02, BEiT)",
    (
        *group("embedding", EMBEDDING, ALL_TORCH, optional=COMMON_PARTS),
        *group("block", BLOCK, ALL_TORCH, scope=_BLOCK, optional=COMMON_PARTS),
        *group("scales", ("gamma_1", "gamma_2"), ALL_TORCH, scope=_BLOCK),
        Row("block_{block}/attention/query_value_bias", _BIASES, "D", "query and value bias"),
        Row("block_{block}/attention/relative_position", _TABLE, "NK", "relative positions"),
        *group("block", _SEPARATE, ALL_TORCH, scope=_BLOCK, part="separate", key_bias=False),
        *group("block", ("", "", "", "", _GATED), ALL_TORCH, scope=_BLOCK, part="gated"),
        *norm("block_{block}/mlp/norm", f"{_BLOCK}mlp.norm", TORCH, "norm of the MLP", "M"),
        *norm("encoder_norm", "fc_norm", TORCH, NORM_AFTER_POOLING),
        *group("top", ("norm", "", "head"), ALL_TORCH),
    ),
    required_names=("patch_embed.proj.weight", "blocks.0.norm1.weight"),
    any_of_names=(  # which vision_transformer.py lacks
        *("blocks.0.gamma_1", "blocks.0.attn.q_bias", "blocks.0.attn.q_proj.weight"),
        *("blocks.0.attn.relative_position_bias_table", "blocks.0.mlp.norm.weight"),
        "blocks.0.mlp.fc1_g.weight",
    ),
    format="timm",
    supports=lambda config: (
        config.position_embedding in ("rotary", "learned_rotary")
        or (config.qkv_bias and not config.key_bias)
        or (config.position_embedding == "relative" and not config.qkv_bias)
    ),
    alternatives={
        # EVA-02 B and L
        "separate": lambda config: config.mlp_norm and config.qkv_bias and not config.key_bias,
        "gated": lambda config: (
            config.swiglu and (config.mlp_norm or config.position_embedding == "rotary")
        ),
    },
    in_attention=("rotary", "learned_rotary", "relative"),
    implied_fields=_implied_fields,
    # Positions that older files of BEiT contain, and that are computed here.
    ignored=(r".*relative_position_index", r".*attn\.k_bias", r"rope\..*"),
    optional_prefix=True,
)
