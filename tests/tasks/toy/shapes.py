"""A task of another package whose targets are masks: the pixels that belong to a shape."""

from __future__ import annotations

import types
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_vit.data import Examples
from keras_vit.data.geometry import centered_geometry, cut_mask, uncut_mask
from keras_vit.data.target_kinds import TargetKind
from keras_vit.models.dense import on_grid
from keras_vit.tasks import Objective, Task, build
from keras_vit.tasks.task import Evaluation, output_batches

IGNORED = 255


def read(path):
    return tf.io.decode_png(tf.io.read_file(path), channels=1)[..., 0]


class Masks(TargetKind):
    dense, column = True, "mask"

    def reader(self, examples):
        paths = tf.constant(examples.targets.tolist())
        return lambda index: read(tf.gather(paths, index))

    def follow(self, target, geometry, size):
        return cut_mask(target, geometry, size, IGNORED)

    def problem(self, examples, index, sides):
        shape = tuple(read(examples.targets[index]).shape)
        return None if shape == sides else f"the mask has {shape} pixels, the image {sides}"


class ShapeObjective(Objective):
    def __init__(self, network):
        super().__init__(network)
        self.accuracy = keras.metrics.Mean("pixel_accuracy")

    def example_losses(self, x, y, training):
        logits, seen = self.network(x, training=training), ops.cast(y != IGNORED, "float32")
        losses = ops.sparse_categorical_crossentropy(ops.minimum(y, 1), logits, from_logits=True)
        right = ops.cast(ops.argmax(logits, -1) == ops.cast(y, "int32"), "float32")
        total = ops.sum(seen, (1, 2))
        return ops.sum(losses * seen, (1, 2)) / total, ops.sum(right * seen, (1, 2)) / total

    def update_scores(self, y, outputs, weight):
        self.accuracy.update_state(outputs, weight)

    @property
    def scores(self):
        return [self.accuracy]


class Shapes(Task):
    name, monitor, output = "shapes", ("pixel_accuracy", "max"), "logits"

    @classmethod
    def load(cls, source):
        images = sorted(Path(source).glob("images/*"))
        masks = [str(path.parents[1] / "masks" / f"{path.stem}.png") for path in images]
        names, paths = (tuple(map(str, each)) for each in ([p.name for p in images], images))
        classes, kind = ("ground", "shape"), Masks()
        return Examples(names, np.array(masks), classes, str(source), paths, target_kind=kind)

    def build_network(self, examples, dtype, *, resume):
        encoder = build.build_encoder(self.config, dtype, examples.class_names, pooling="none")
        patches = on_grid(encoder, encoder.output, dtype)
        logits = keras.layers.Dense(2, dtype="float32", name="head")(patches)
        size = encoder.input_shape[1] // logits.shape[1]
        maps = keras.layers.UpSampling2D(size, interpolation="bilinear")(logits)
        return keras.Model(encoder.input, maps, name=encoder.name)

    def objective(self, network, training):
        return ShapeObjective(network)

    def evaluate(self, model, examples, **options):
        network, preprocessing = self.prediction_network(model)
        right = total = 0
        for indices, outputs in output_batches(network, preprocessing, examples, **options):
            for mask, logits in zip(examples.targets[indices], outputs, strict=True):
                mask = read(mask).numpy()  # in the image's own pixels
                geometry = centered_geometry(mask.shape, preprocessing)
                found = uncut_mask(logits.argmax(-1), geometry, mask.shape, IGNORED)
                right, total = right + (found == mask).sum(), total + (mask != IGNORED).sum()
        scores = {"pixel_accuracy": float(right / total), "images": len(examples)}
        text = f"pixel accuracy {right / total:.4f}"
        return Evaluation(types.SimpleNamespace(text=lambda: text, to_json=lambda: scores), None)

    def prediction(self, output, preprocessing, message="", top=5):
        text = message or f"{output.argmax(-1).mean():.0%} of the pixels show the shape"
        return types.SimpleNamespace(ok=not message, message=message, text=lambda top=3: text)
