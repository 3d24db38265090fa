"""SavedModel signatures of a detector.

Letters: B images; M objects; A cells; K classes.
"""

from __future__ import annotations

import tensorflow as tf

from keras_vit.data.decode_and_resize import scale
from keras_vit.data.geometry import centered_geometry
from keras_vit.tasks.detection.prediction import MOST
from keras_vit.tasks.detection.report import SHOWN_SCORE
from keras_vit.tasks.serving_graph import Answer, ServedModel, Signature


class ServedDetection(ServedModel):
    """Serving functions of a detector (see `ServedModel`).

    `answer_bytes` returns, for each image, at most 300 objects, those with high scores first:
    `boxes`, float32 (B, M, 4), first row, first column, last row and last column in pixels of the
    upright image; `scores`, float32 (B, M); `class_names`, string (B, M); and `count`, int32 (B,),
    the number of objects with a score of at least 0.3. `cells` and `detect_pixels` return
    `objects`, float32 (B, A, 4 + K), the boxes in pixels of the model's input and the scores.
    """

    def signatures(self) -> dict[str, Signature]:
        return {
            **super().signatures(),
            "cells": (super().answer_bytes, self.strings),
            "detect_pixels": (self.answer_pixels, self.pixels),
        }

    def answer_bytes(self, image_bytes: tf.Tensor) -> Answer:
        """Returns the objects in encoded images in a string tensor of shape (B,)."""
        read = self._read(image_bytes)
        found = self.answer_images(scale(read.pixels, self.preprocessing))[self._output]
        most = min(MOST, found.shape[1])
        scores, best = tf.math.top_k(tf.reduce_max(found[..., 4:], axis=-1), most)
        rows = tf.gather(found, best, batch_dims=1)
        names = tf.constant(self.preprocessing.class_names)

        def boxes_of(given: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            boxes, sides = given
            begin, part, _ = centered_geometry(sides, self.preprocessing)
            factor = tf.cast(part, tf.float32) / self.preprocessing.size
            boxes = boxes * tf.tile(factor, [2]) + tf.tile(tf.cast(begin, tf.float32), [2])
            return tf.clip_by_value(boxes, 0.0, tf.tile(tf.cast(sides, tf.float32), [2]))

        given = (rows[..., :4], self.upright_sides(image_bytes, read))
        answer = {
            "boxes": tf.map_fn(boxes_of, given, fn_output_signature=tf.TensorSpec((most, 4))),
            "scores": scores,
            "class_names": tf.gather(names, tf.argmax(rows[..., 4:], axis=-1)),
            "count": tf.reduce_sum(tf.cast(scores >= SHOWN_SCORE, tf.int32), axis=-1),
        }
        return self.guarded(answer, read)
