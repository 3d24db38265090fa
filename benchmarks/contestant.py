"""One Vision Transformer of one library, timed on request: what `peers.py` starts for each.

PyTorch's compute on a GPU if there is one: `gpu.py` has them as well.

Prints a line of JSON when it is ready. Then it reads seconds from standard input, a number a line,
computes for as long and prints the time of a step. At the end of the input it prints its peak
memory.

    echo 5 | python benchmarks/contestant.py timm-compile --task inference --size Ti --batch 8
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import turns

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

#: Hidden size, heads, blocks and what timm calls it. All have patches of 16 pixels.
SIZES = {
    "Ti": (192, 3, 12, "tiny"),
    "S": (384, 6, 12, "small"),
    "B": (768, 12, 12, "base"),
    "L": (1024, 16, 24, "large"),
}
TASKS = ("inference", "training")
PRECISIONS = ("float32", "bfloat16")
CLASSES = 1000
RATE, DECAY = 1e-4, 0.05  # of AdamW, the optimizer of all
MATRIX = 3072  # rows and columns of the product that stands for the machine's limit
PASSES = {"inference": 1, "training": 3}  # operations, relative to forward

Options = argparse.Namespace
#: Computes as many steps.
Run = Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A library in one of its modes.

    Args:
        prepare: Builds the model and returns what computes steps of it.
        tasks: What it can do.
        precisions: In what it can compute.
    """

    prepare: Callable[[Options], Run]
    tasks: tuple[str, ...] = TASKS
    precisions: tuple[str, ...] = PRECISIONS

    def competes(self, task: str, precision: str) -> bool:
        return task in self.tasks and precision in self.precisions


def keras_vit_model(options: Options, dtype: str | None = None) -> Any:
    import numpy as np

    import keras_vit

    model = getattr(keras_vit, f"ViT{options.size}16")(
        weights=None,
        input_shape=(options.image_size, options.image_size, 3),
        classifier_activation=None,
        dtype=dtype or _policy(options),
    )
    draw = np.random.default_rng(0)
    for weight in model.trainable_weights:
        if len(weight.shape) == 1:  # biases are zero, which a compiler may leave out if constant
            weight.assign(weight + draw.normal(0, 0.02, weight.shape))
    return model


def keras_hub_model(options: Options) -> Any:
    import keras
    import keras_hub

    keras.config.set_dtype_policy(_policy(options))
    width, heads, blocks, _ = SIZES[options.size]
    backbone = keras_hub.models.ViTBackbone(
        image_shape=(options.image_size, options.image_size, 3),
        patch_size=16,
        num_layers=blocks,
        num_heads=heads,
        hidden_dim=width,
        mlp_dim=4 * width,
    )
    head = keras.layers.Dense(CLASSES, dtype="float32")
    return keras.Model(backbone.inputs, head(backbone.output[:, 0]))


def keras_in(mode: str, library: str) -> Contestant:
    """Returns a Keras model as a contestant, with the AdamW of its library.

    Args:
        mode: `"user"`, `model.fit` and `model.predict` as they are by default; `"graph"` or
            `"xla"`, the compiled function alone.
        library: `"keras_vit"` or `"keras_hub"`.
    """

    def prepare(options: Options) -> Run:
        import keras
        import tensorflow as tf

        import keras_vit
        from keras_vit.data.pipeline import read_ahead

        _limit_tensorflow(options)
        ours = library == "keras_vit"
        model = keras_vit_model(options) if ours else keras_hub_model(options)
        adamw = keras_vit.AdamW if ours else keras.optimizers.AdamW
        side = options.image_size
        images = tf.random.normal((options.batch, side, side, 3))
        labels = tf.random.uniform((options.batch,), 0, CLASSES, tf.int32)
        if options.task == "inference" and mode == "user":
            batches = read_ahead(tf.data.Dataset.from_tensors(images).repeat())
            return lambda steps: model.predict(batches, steps=steps, verbose=0)
        if options.task == "inference":
            forward = tf.function(lambda x: model(x, training=False), jit_compile=mode == "xla")
            return lambda steps: [forward(images) for _ in range(steps)][-1].numpy()
        model.compile(
            adamw(RATE, weight_decay=DECAY),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile={"user": "auto", "graph": False, "xla": True}[mode],
        )
        batches = read_ahead(tf.data.Dataset.from_tensors((images, labels)).repeat())
        if mode == "user":
            return lambda steps: model.fit(batches, steps_per_epoch=steps, verbose=0)
        model.make_train_function()
        endless = iter(batches)
        return lambda steps: [model.train_function(endless) for _ in range(steps)][-1][
            "loss"
        ].numpy()

    return Contestant(prepare)


def optimized(options: Options) -> Run:
    import tensorflow as tf

    import keras_vit

    _limit_tensorflow(options)
    model = keras_vit.optimize_for_inference(keras_vit_model(options))
    side = options.image_size
    images = tf.random.normal((options.batch, side, side, 3))
    forward = tf.function(lambda x: model(x, training=False), autograph=False)
    return lambda steps: [forward(images) for _ in range(steps)][-1].numpy()


def optimized_by_openvino(options: Options) -> Run:
    import keras_vit

    model = keras_vit.optimize_for_inference(
        keras_vit_model(options, "float32"), "openvino", options.precision, options.threads
    )
    images = _pixels(options).astype("float32")
    return lambda steps: [model(images) for _ in range(steps)]


def openvino(options: Options) -> Run:
    import openvino

    from keras_vit.export import onnx_openvino
    from keras_vit.tasks.registry import trained_model

    with tempfile.TemporaryDirectory() as folder:
        path = onnx_openvino.write_openvino(
            trained_model(keras_vit_model(options, "float32")), Path(folder) / "model.xml"
        )
        hints = {
            "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[options.precision],
            "INFERENCE_NUM_THREADS": options.threads,
        }
        model = openvino.Core().compile_model(path, "CPU", hints)
    pixels = _pixels(options)
    return lambda steps: [model(pixels) for _ in range(steps)]


def onnx(options: Options) -> Run:
    import onnxruntime

    from keras_vit.export import onnx_openvino
    from keras_vit.tasks.registry import trained_model

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    with tempfile.TemporaryDirectory() as folder:
        exported = trained_model(keras_vit_model(options))
        path = onnx_openvino.write_onnx(exported, Path(folder) / "model.onnx")
        session = onnxruntime.InferenceSession(str(path), settings)
    pixels = {"pixels": _pixels(options)}
    return lambda steps: [session.run(None, pixels) for _ in range(steps)]


def timm_model(options: Options) -> Any:
    import timm

    name = f"vit_{SIZES[options.size][3]}_patch16_224"
    return timm.create_model(name, img_size=options.image_size, num_classes=CLASSES)


def transformers_model(options: Options) -> Any:
    import torch
    import transformers

    width, heads, blocks, _ = SIZES[options.size]
    config = transformers.ViTConfig(
        hidden_size=width,
        num_hidden_layers=blocks,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=options.image_size,
        num_labels=CLASSES,
        attn_implementation="sdpa",
    )

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.ViTForImageClassification(config)

        def forward(self, images: Any) -> Any:
            return self.model(images).logits

    return Logits()


def torch_in(mode: str, build: Callable[[Options], Any]) -> Contestant:
    """Returns a PyTorch model as a contestant; `mode` is `"eager"` or `"compile"`."""

    def prepare(options: Options) -> Run:
        import torch

        torch.set_num_threads(options.threads)
        device = _torch_device()
        network = build(options).to(device)
        model = torch.compile(network) if mode == "compile" else network
        shape = (options.batch, 3, options.image_size, options.image_size)
        images = torch.randn(shape, device=device)
        labels = torch.randint(0, CLASSES, (options.batch,), device=device)
        cast = (
            torch.autocast(device, torch.bfloat16)
            if options.precision == "bfloat16"
            else contextlib.nullcontext()
        )
        if options.task == "inference":
            network.eval()

            def infer(steps: int) -> None:
                with torch.inference_mode(), cast:
                    for _ in range(steps):
                        model(images)
                _wait(device)

            return infer
        optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY, fused=True)

        def train(steps: int) -> None:
            for _ in range(steps):
                with cast:
                    loss = torch.nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            _wait(device)

        return train

    return Contestant(prepare)


def tensorflow_product(options: Options) -> Run:
    import tensorflow as tf

    _limit_tensorflow(options)
    matrix = tf.cast(tf.random.normal((options.matrix, options.matrix)), options.precision)
    product = tf.function(lambda: tf.matmul(matrix, matrix))
    return lambda steps: [product() for _ in range(steps)][-1].numpy()


def torch_product(options: Options) -> Run:
    import torch

    torch.set_num_threads(options.threads)
    device = _torch_device()
    matrix = torch.randn(options.matrix, options.matrix, device=device)
    matrix = matrix.to(getattr(torch, options.precision))

    def run(steps: int) -> None:
        for _ in range(steps):
            torch.matmul(matrix, matrix)
        _wait(device)

    return run


KERAS_MODES, TORCH_MODES = ("user", "graph", "xla"), ("eager", "compile")
CONTESTANTS = {
    **{f"keras_vit-{mode}": keras_in(mode, "keras_vit") for mode in KERAS_MODES},
    "keras_vit-optimized": Contestant(optimized, ("inference",)),
    "keras_vit-optimized-openvino": Contestant(optimized_by_openvino, ("inference",)),
    "keras_vit-onnx": Contestant(onnx, ("inference",), ("float32",)),
    "keras_vit-openvino": Contestant(openvino, ("inference",)),
    **{f"keras_hub-{mode}": keras_in(mode, "keras_hub") for mode in KERAS_MODES},
    **{f"timm-{mode}": torch_in(mode, timm_model) for mode in TORCH_MODES},
    **{f"transformers-{mode}": torch_in(mode, transformers_model) for mode in TORCH_MODES},
}
#: One large product of matrices: what a library makes of this machine at best.
PRODUCTS = {
    "tensorflow-product": Contestant(tensorflow_product),
    "torch-product": Contestant(torch_product),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("contestant", choices=[*CONTESTANTS, *PRODUCTS])
    parser.add_argument("--task", choices=TASKS, default="inference")
    parser.add_argument("--size", choices=SIZES, default="Ti")
    parser.add_argument("--batch", type=int, default=8, help="images in a step")
    parser.add_argument("--image-size", type=int, default=224, help="height and width in pixels")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--matrix", type=int, default=MATRIX, help="rows of the product's matrices")
    options = parser.parse_args()
    contestant = {**CONTESTANTS, **PRODUCTS}[options.contestant]
    turns.answer(lambda: contestant.prepare(options), _peak_memory)


def _policy(options: Options) -> str:
    return "float32" if options.precision == "float32" else "mixed_bfloat16"


def _peak_memory() -> int | None:
    from keras_vit.reports import cost

    return cost.peak_memory()


def _torch_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _wait(device: str) -> None:
    """Waits for what PyTorch has queued, which goes on while Python does."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def _limit_tensorflow(options: Options) -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)


def _pixels(options: Options) -> Any:
    import numpy as np

    shape = (options.batch, options.image_size, options.image_size, 3)
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


if __name__ == "__main__":
    main()
