"""SavedModel signatures of a segmentation.

Letters: B images; H, W height and width of the largest image of a batch; h, w of the network's
output; K classes.
"""

from __future__ import annotations

import tensorflow as tf

from keras_vit.data.class_maps import class_map
from keras_vit.data.masks import IGNORED
from keras_vit.tasks.serving_graph import Answer, ServedModel, Signature
from keras_vit.visualization.drawing import palette


class ServedSegmentation(ServedModel):
    """Serving functions of a segmentation (see `ServedModel`).

    `answer_bytes` returns, for each image at its original size, `class_map`, uint8 (B, H, W),
    padded at the right and at the bottom with 255; `height` and `width`, int32 (B,); and
    `png_bytes`, string (B,), the classes as an image in the colors of the figures. `logits` returns
    `logits`, float32 (B, h, w, K), and `confidence` the probability of the class of each pixel,
    uint8 (B, H, W), in units of 1/255.
    """

    def signatures(self) -> dict[str, Signature]:
        return {
            **super().signatures(),
            "confidence": (self.confidence, self.strings),
            "logits": (super().answer_bytes, self.strings),
            "segment_pixels": (self.answer_pixels, self.pixels),
        }

    def answer_bytes(self, image_bytes: tf.Tensor) -> Answer:
        """Returns the class maps of encoded images in a string tensor of shape (B,)."""
        return self._maps(image_bytes, confident=False)

    def confidence(self, image_bytes: tf.Tensor) -> Answer:
        """Returns class maps and confidences of encoded images in a string tensor (B,)."""
        return self._maps(image_bytes, confident=True)

    def _maps(self, image_bytes: tf.Tensor, confident: bool) -> Answer:
        images = self._read(image_bytes)
        logits = self.answer_pixels(images.pixels)[self._output]
        classes = logits.shape[-1]
        colors = tf.constant([*palette(classes).tolist(), *[[0, 0, 0]] * (256 - classes)], tf.uint8)

        sides = self.upright_sides(image_bytes, images)
        largest = tf.reduce_max(sides, axis=0)

        def maps_of_image(logits_and_sides: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, ...]:
            image_maps = class_map(*logits_and_sides, self.preprocessing, confident)
            padding = [[0, side] for side in tf.unstack(largest - logits_and_sides[1])]
            png = tf.io.encode_png(tf.gather(colors, tf.cast(image_maps[0], tf.int32)))
            return png, *(tf.pad(each, padding, constant_values=IGNORED) for each in image_maps)

        map_spec = tf.TensorSpec((None, None), tf.uint8)
        specs = (tf.TensorSpec((), tf.string), *[map_spec] * (2 if confident else 1))
        png, *maps = tf.map_fn(maps_of_image, (logits, sides), fn_output_signature=specs)
        outputs = {"png_bytes": png, "height": sides[:, 0], "width": sides[:, 1]}
        named = zip(("class_map", "confidence"), maps, strict=False)
        return {**dict(named), **self.guarded(outputs, images)}
