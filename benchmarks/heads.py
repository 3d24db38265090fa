"""How well do the heads of a segmentation model segment?

Trains the same backbone with each head on a folder of images and masks, and compares the mean IoU
on the images that are held out.

    python benchmarks/heads.py street/ --weights imagenet [--model ViTTi16] [--epochs 4]
        [--heads linear adapter queries] [--out results.md]
"""

from __future__ import annotations

import argparse
import functools
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
from keras import ops
from train_step import hardware

from keras_vit import layers, models, training
from keras_vit.models.dense import on_grid
from keras_vit.tasks.segmentation import task

BLOCKS = 4  # the last blocks, which the queries go through


@keras.saving.register_keras_serializable(package="benchmarks")
class Queries(layers.base.BaseLayer):
    """Puts a learned token for each class in front of the tokens."""

    def __init__(self, classes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.classes = classes

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        shape = (1, self.classes, input_shape[-1])
        self.queries = self.add_weight(shape=shape, initializer="random_normal", name="queries")

    def call(self, tokens: Any) -> Any:
        queries = ops.repeat(ops.cast(self.queries, tokens.dtype), ops.shape(tokens)[0], axis=0)
        return ops.concatenate([queries, tokens], axis=1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:
        return (input_shape[0], self.classes + input_shape[1], input_shape[2])  # type: ignore[operator]


@keras.saving.register_keras_serializable(package="benchmarks")
class Products(layers.base.BaseLayer):
    """Computes logits (B, h, w, K) from features (B, h, w, D) and queries (B, K, D)."""

    def call(self, features: Any, queries: Any) -> Any:
        return ops.einsum("bhwd,bkd->bhwk", features, queries)

    def compute_output_shape(self, features_shape: Any, queries_shape: Any) -> Any:
        return (*features_shape[:3], queries_shape[1])


def query_segmenter(backbone: keras.Model, classes: int, dtype: Any = None) -> keras.Model:
    """Builds an encoder-only mask transformer with a query for each class.

    Without the matching and the masked attention of the publication.

    Reference: https://arxiv.org/abs/2503.19108
    """
    config = models.config_of(backbone)
    width, depth = config.hidden_size, config.num_layers
    tokens = backbone.get_layer(f"block_{depth - BLOCKS - 1:02d}").output
    tokens = Queries(classes, dtype=dtype)(tokens)
    for index in range(depth - BLOCKS, depth):
        tokens = backbone.get_layer(f"block_{index:02d}")(tokens)
    tokens = layers.LayerNorm(config.epsilon, dtype=dtype, name="queries_norm")(tokens)
    rest = config.num_prefix_tokens + config.grid[0] * config.grid[1]
    queries = keras.layers.Cropping1D((0, rest), dtype=dtype)(tokens)
    for _ in range(2):
        queries = keras.layers.Dense(width, "gelu", dtype=dtype)(queries)
    queries = keras.layers.Dense(width, dtype=dtype)(queries)
    features = on_grid(backbone, keras.layers.Cropping1D((classes, 0), dtype=dtype)(tokens), dtype)
    for _ in range(2):
        features = keras.layers.Conv2DTranspose(width, 2, 2, activation="gelu", dtype=dtype)(
            features
        )
        features = keras.layers.DepthwiseConv2D(3, padding="same", dtype=dtype)(features)
        features = layers.LayerNorm(config.epsilon, dtype=dtype)(features)
    logits = Products(dtype="float32", name="head")(features, queries)
    return keras.Model(backbone.input, logits)


HEADS = {
    "linear": functools.partial(models.Segmenter, head="linear"),
    "adapter": models.Segmenter,
    "queries": query_segmenter,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="ViTTi16")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--out", type=Path, help="Markdown file to write the table to")
    options = parser.parse_args()
    recipe = training.recipe("segmentation").replace(epochs=options.epochs)
    config = training.RunConfig(
        str(options.data),
        options.model,
        weights=options.weights,
        task="segmentation",
        recipe=recipe,
    )
    rows = []
    for head in options.heads:
        task.Segmenter = HEADS[head]  # type: ignore[assignment]
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            report = training.train(config, Path(folder) / "run", tensorboard=False)
        minutes = (time.perf_counter() - start) / 60
        low, high = report.interval
        scores = [f"{row.iou:.3f}" for row in report.per_class]
        rows.append(
            [head, f"{report.mean_iou:.3f} ({low:.3f} to {high:.3f})", *scores, f"{minutes:.0f}"]
        )
        header = ["head", "mean IoU (95% interval)", *report.names, "minutes"]
        table = "\n".join(
            f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows]
        )
        text = (
            f"# Heads of segmentation: {options.model}, {options.epochs} epochs\n\n"
            f"{hardware()}.\n\n"
            f"{len(report.counts)} images are held out; one seed.\n\n{table}\n"
        )
        print(text, flush=True)
        if options.out:
            options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
