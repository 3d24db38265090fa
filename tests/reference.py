"""The paper's equations in plain NumPy, float64: an oracle that shares no code with the package.

"An Image is Worth 16x16 Words", https://arxiv.org/abs/2010.11929, section 3.1 and appendix A;
the attention pooling head is that of "Scaling Vision Transformers", section 3.1 of
https://arxiv.org/abs/2106.04560. Everything is written for one image or one sequence, with loops.
Weights are dictionaries {name: array} with the names of the package's variables.

Letters: P, Q patch height and width; N patches; T tokens; D hidden size; K heads; d = D / K.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

Weights = Mapping[str, np.ndarray]


def below(weights: Weights, prefix: str) -> dict[str, np.ndarray]:
    """The weights of one part."""
    return {
        name.removeprefix(prefix + "/"): np.asarray(array, "float64")
        for name, array in weights.items()
        if name.startswith(prefix + "/")
    }


def dense(x: np.ndarray, w: Weights) -> np.ndarray:
    return x @ np.asarray(w["kernel"], "float64") + w.get("bias", 0.0)


def layer_norm(x: np.ndarray, w: Weights, epsilon: float = 1e-6) -> np.ndarray:
    centered = x - x.mean(-1, keepdims=True)
    return (
        centered / np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon) * w["gamma"] + w["beta"]
    )


def gelu(x: np.ndarray, kind: str = "tanh") -> np.ndarray:
    if kind == "exact":
        return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def patches(image: np.ndarray, patch: tuple[int, int]) -> np.ndarray:
    """(H, W, C) -> (h, w, P*Q*C): row by row, each flattened row, column, channel."""
    p, q = patch
    rows, columns = image.shape[0] // p, image.shape[1] // q
    return np.stack(
        [
            np.stack(
                [
                    image[i * p : (i + 1) * p, j * q : (j + 1) * q].astype("float64").ravel()
                    for j in range(columns)
                ]
            )
            for i in range(rows)
        ]
    )


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equations 6 and 7 for one head: (T, d), (S, d), (S, d) -> (T, d), weights (T, S)."""
    scores = softmax(q @ k.T / math.sqrt(q.shape[-1]))
    return scores @ v, scores


def msa(z: np.ndarray, w: Weights, heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Equations 5 to 8: (T, D) -> (T, D), attention weights (K, T, T)."""
    q, k, v = np.split(dense(z, below(w, "qkv")), 3, axis=1)
    parts = [np.split(x, heads, axis=1) for x in (q, k, v)]
    outputs, scores = zip(*(attend(*head) for head in zip(*parts, strict=True)), strict=True)
    return dense(np.concatenate(outputs, axis=1), below(w, "out")), np.stack(scores)


def mlp(x: np.ndarray, w: Weights, kind: str = "tanh") -> np.ndarray:
    return dense(gelu(dense(x, below(w, "expand")), kind), below(w, "reduce"))


def block(
    z: np.ndarray, w: Weights, heads: int, kind: str = "tanh", epsilon: float = 1e-6
) -> np.ndarray:
    """Equations 2 and 3; with the scales of LayerScale if there are any."""
    scales = [w.get(f"scale_{index}/gamma", 1.0) for index in (1, 2)]
    attended = msa(layer_norm(z, below(w, "norm_1"), epsilon), below(w, "attention"), heads)[0]
    z = attended * scales[0] + z
    return mlp(layer_norm(z, below(w, "norm_2"), epsilon), below(w, "mlp"), kind) * scales[1] + z


def embed(grid: np.ndarray, w: Weights, table: np.ndarray | None) -> np.ndarray:
    """Equation 1: patches (h, w, F) -> tokens (T, D); `table` (h, w, D) is E_pos of the patches."""
    z = dense(grid, below(w, "projection"))
    if table is not None:
        z = z + table
    z = z.reshape(-1, z.shape[-1])
    names = ("class_token", "distillation_token", "register_tokens")
    prefix = [w[name][0] for name in names if name in w]
    if not prefix:
        return z
    positions = w.get("prefix_position", np.zeros((1, 1, 1)))[0]
    return np.concatenate([np.concatenate(prefix) + positions, z])


def attention_pool(
    z: np.ndarray, w: Weights, heads: int, kind: str = "tanh", epsilon: float = 1e-6
) -> np.ndarray:
    """(T, D) -> (D,): one learned query attends to all tokens; a perceptron follows."""

    q = dense(w["probe"][0], below(w, "query"))
    k, v = np.split(dense(z, below(w, "key_value")), 2, axis=1)
    parts = (np.split(x, heads, axis=1) for x in (q, k, v))
    outputs = [attend(*head)[0] for head in zip(*parts, strict=True)]  # (1, d) each
    y = dense(np.concatenate(outputs, axis=1), below(w, "out"))
    return (y + mlp(layer_norm(y, below(w, "norm"), epsilon), below(w, "mlp"), kind))[0]


def pool(z: np.ndarray, mode: str, prefix_tokens: int) -> np.ndarray:
    """Equation 4 for "token"; (T, D) -> (D,), or (2 D,) for "token_gap"."""
    content = z[prefix_tokens:]
    both = np.concatenate([z[0], content.mean(0)])
    return {"token": z[0], "gap": content.mean(0), "max": content.max(0), "token_gap": both}[mode]


def position_table(kind: str, grid: tuple[int, int], w: Weights, width: int) -> np.ndarray | None:
    """E_pos of the patches, (h, w, D), or None."""
    if kind == "none":
        return None
    if kind == "learned":
        return w["position"]
    if kind == "learned_2d":  # half of the channels for the row, half for the column
        halves = [np.broadcast_to(w[name], (*grid, width // 2)) for name in ("row", "column")]
        return np.concatenate(halves, axis=-1)
    table = np.zeros((*grid, width))  # sin and cos of the column, then of the row
    quarter = width // 4
    for i, j in np.ndindex(*grid):
        for k in range(quarter):
            omega = 10_000 ** (-k / (quarter - 1))
            angles = (j * omega, j * omega, i * omega, i * omega)
            for part, (wave, angle) in enumerate(
                zip((math.sin, math.cos) * 2, angles, strict=True)
            ):
                table[i, j, part * quarter + k] = wave(angle)
    return table


def vit(image: np.ndarray, weights: Weights, config: Mapping) -> np.ndarray:
    """The whole model without its last activation; `config` has the fields of `ViTConfig`."""
    heads, numerics = config["num_heads"], (config["gelu"], config["epsilon"])
    grid = patches(image, config["patch_size"])
    encoder = below(weights, "patch_encoder")
    kind = config["position_embedding"]
    z = embed(grid, encoder, position_table(kind, grid.shape[:2], encoder, config["hidden_size"]))
    if config["pre_norm"]:
        z = layer_norm(z, below(weights, "pre_norm"), config["epsilon"])
    for index in range(config["num_layers"]):
        z = block(z, below(weights, f"block_{index:02d}"), heads, *numerics)
    norm = below(weights, "encoder_norm")
    if not config["norm_after_pooling"]:
        z = layer_norm(z, norm, config["epsilon"])
    tokens = z
    if config["pooling"] == "map":
        z = attention_pool(z, below(weights, "pooling"), heads, *numerics)
    elif config["pooling"] != "none":
        prefix = config["class_token"] + config["distillation_token"] + config["register_tokens"]
        z = pool(z, config["pooling"], prefix)
    if config["norm_after_pooling"]:
        z = layer_norm(z, norm, config["epsilon"])
    if config["representation_size"]:
        z = np.tanh(dense(z, below(weights, "pre_logits")))
    if not config["classes"]:
        return z
    logits = dense(z, below(weights, "head"))
    if config["distillation_head"]:
        logits = (logits + dense(tokens[1], below(weights, "distillation_head"))) / 2
    return logits
