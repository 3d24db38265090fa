"""SavedModel signatures of a detector.

Letters: B images; M objects; A cells; K classes.
"""

from __future__ import annotations

import tensorflow as tf

from keras_vit.data.geometry import centered_geometry
from keras_vit.tasks.detection.assignment import overlaps
from keras_vit.tasks.detection.prediction import MAX_CANDIDATES, MAX_OBJECTS, MAX_OVERLAP
from keras_vit.tasks.detection.report import SHOWN_SCORE
from keras_vit.tasks.serving_graph import Answer, ServedModel, Signature


class ServedDetection(ServedModel):
    """Serving functions of a detector (see `ServedModel`).

    `answer_bytes` returns, for each image, 300 objects, those with high scores first; the scores of
    rows without an object are 0:
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
        images = self._read(image_bytes)
        cells = self.answer_pixels(images.pixels)[self._output]
        max_boxes = min(MAX_OBJECTS, cells.shape[1])
        highest = tf.reduce_max(cells[..., 4:], axis=-1)
        scores, best = tf.math.top_k(highest, min(MAX_CANDIDATES, cells.shape[1]))
        rows = tf.gather(cells, best, batch_dims=1)

        def objects(inputs: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
            boxes, scores, labels, sides = inputs
            same_class = tf.cast(labels[:, tf.newaxis] == labels, tf.float32)
            ious = overlaps(boxes[:, tf.newaxis], boxes[tf.newaxis])[0] * same_class  # (A, A)
            keep = tf.image.non_max_suppression_overlaps(ious, scores, max_boxes, MAX_OVERLAP)
            begin, crop, _ = centered_geometry(sides, self.preprocessing)
            factor = tf.cast(crop, tf.float32) / self.preprocessing.size
            boxes = boxes * tf.tile(factor, [2]) + tf.tile(tf.cast(begin, tf.float32), [2])
            boxes = tf.clip_by_value(boxes, 0.0, tf.tile(tf.cast(sides, tf.float32), [2]))
            padding = [[0, max_boxes - tf.size(keep)]]
            return (
                tf.ensure_shape(tf.pad(tf.gather(boxes, keep), [*padding, [0, 0]]), (max_boxes, 4)),
                tf.ensure_shape(tf.pad(tf.gather(scores, keep), padding), (max_boxes,)),
                tf.ensure_shape(tf.pad(tf.gather(labels, keep), padding), (max_boxes,)),
            )

        labels = tf.argmax(rows[..., 4:], axis=-1, output_type=tf.int32)
        inputs = (rows[..., :4], scores, labels, self.upright_sides(image_bytes, images))
        dtypes = (tf.float32, tf.float32, tf.int32)
        boxes, scores, labels = tf.map_fn(objects, inputs, fn_output_signature=dtypes)
        outputs = {
            "boxes": boxes,
            "scores": scores,
            "class_names": tf.gather(tf.constant(self.preprocessing.class_names), labels),
            "count": tf.reduce_sum(tf.cast(scores >= SHOWN_SCORE, tf.int32), axis=-1),
        }
        return self.guarded(outputs, images)
