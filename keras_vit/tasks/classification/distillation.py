"""Knowledge distillation, that is, training on labels and on the predictions of a teacher.

Letters: B batch; K classes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
from keras import ops

from keras_vit import arguments, models
from keras_vit.models import last_activation
from keras_vit.preprocessing import Preprocessing
from keras_vit.tasks.classification.objective import ClassificationObjective
from keras_vit.weights.whole_models import load_model

_MIN_PROBABILITY = 1e-7  # lower bound of a probability before its logarithm


class DistillationObjective(ClassificationObjective):
    """Objective that combines the loss on the labels with a loss on a teacher's outputs.

    With w = `weight`, Z_s and Z_t the logits of student and teacher, tau the temperature:

    - hard: (1 - w) CE(y, softmax(Z_s)) + w CE(argmax Z_t, softmax(Z_s))
    - soft: (1 - w) CE(y, softmax(Z_s)) + w tau^2 KL(softmax(Z_t / tau), softmax(Z_s / tau))

    In a network with a distillation token, the class token's head is trained on the labels and
    the distillation head on the teacher's predictions; the output is the mean of both. In any
    other network one head is trained on both.

    Reference: section 4 of https://arxiv.org/abs/2012.12877, equations 2 and 3
    """

    def __init__(
        self,
        network: keras.Model,
        teacher: Teacher,
        *,
        kind: str = "hard",
        weight: float = 0.5,
        temperature: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(network, **kwargs)
        arguments.one_of("kind", kind, ("soft", "hard"))
        self.kind = kind
        self.weight = arguments.fraction("weight", weight)
        self.temperature = arguments.positive("temperature", temperature)
        self.teacher = teacher
        names = [layer.name for layer in network.layers]
        heads = ["head", "distillation_head"] if "distillation_head" in names else ["head"]
        self.heads = keras.Model(network.inputs[0], [network.get_layer(n).output for n in heads])

    @property
    def state(self) -> list[keras.Variable]:
        fixed = {id(v) for v in self.teacher.variables}
        return [v for v in super().state if id(v) not in fixed]

    def example_losses(self, x: Any, y: Any, training: bool) -> tuple[Any, Any]:
        if not training:
            return super().example_losses(x, y, training)
        head_logits = keras.tree.flatten(self.heads(x, training=True))  # one or two
        logits, student_logits = head_logits[0], head_logits[-1]  # (B, K)
        probabilities = ops.stop_gradient(self.teacher(x))  # (B, K)
        if self.kind == "hard":
            teacher_classes = ops.argmax(probabilities, axis=-1)
            targets = ops.one_hot(teacher_classes, logits.shape[-1], dtype="float32")
            loss = ops.categorical_crossentropy(targets, student_logits, from_logits=True)
        else:
            tau = self.temperature
            teacher_logits = ops.log(ops.maximum(probabilities, _MIN_PROBABILITY)) / tau
            difference = ops.log_softmax(teacher_logits) - ops.log_softmax(student_logits / tau)
            loss = tau**2 * ops.sum(ops.softmax(teacher_logits) * difference, axis=-1)
        losses = (1 - self.weight) * self.losses_of(logits, y, training) + self.weight * loss
        return losses, sum(head_logits) / len(head_logits)


class Teacher(keras.layers.Layer):
    """Trained teacher model, which takes images that are scaled for the student."""

    def __init__(self, model: keras.Model, student: Preprocessing) -> None:
        super().__init__(name="teacher", trainable=False)
        self.student = student
        try:
            self.preprocessing: Preprocessing | None = models.preprocessing_of(model)
        except ValueError:
            self.preprocessing = None
        if self.preprocessing is not None:
            model, complete = last_activation.with_probabilities(model)
            if complete.thresholds is not None:
                raise ValueError(
                    "`teacher` must have mutually exclusive classes. Received: "
                    f"teacher={model.name!r}, which ends in a sigmoid"
                )
        self.model = model
        self.model.trainable = False
        self.built = True
        labels = student.class_names or ()
        shape = model.output_shape
        if len(shape) != 2 or shape[-1] != len(labels):
            raise ValueError(
                "`teacher` must return one probability for each class of the student. Received: "
                f"outputs of the shape {shape} for {len(labels)} classes"
            )
        if self.preprocessing is not None and self.preprocessing.class_names not in (None, labels):
            raise ValueError(
                "`teacher` must have the classes of the student, in the same order. Received: "
                f"{self.preprocessing.class_names[:20]} for the student's {labels[:20]}"
            )
        if self.preprocessing is not None and self.preprocessing.channels != student.channels:
            raise ValueError(
                "`teacher` must have the same color channels as the student. Received: teacher "
                f"{self.preprocessing.channels!r}, student {student.channels!r}"
            )

    def call(self, images: Any) -> Any:
        if self.preprocessing is not None:
            pixels = self.student.unscale(images)
            if self.preprocessing.size != self.student.size:
                pixels = ops.image.resize(pixels, self.preprocessing.size, antialias=True)
            images = self.preprocessing.scale(pixels)
        return ops.cast(self.model(images, training=False), "float32")


def load_teacher(path: str | os.PathLike[str], student: Preprocessing) -> Teacher:
    """Loads a teacher model from a run folder or a `.keras` file."""
    file = Path(path) / "last.keras" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ValueError(
            f"`teacher` must be a run folder or a .keras file. Received: teacher={str(path)!r}"
        )
    return Teacher(load_model(file), student)
