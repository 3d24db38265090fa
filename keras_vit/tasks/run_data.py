"""Run folders with the images of the run, as its task loads them."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from keras_vit import data
from keras_vit.data import Examples, ImageAudit
from keras_vit.data.splits import short_digest, training_digests
from keras_vit.escapes import say
from keras_vit.runs.run_folder import RunFolder
from keras_vit.tasks.registry import get
from keras_vit.tasks.task import Task


class Run(RunFolder):
    """Access to the files in a run folder, and to the images of the run.

    Args:
        path: The run folder.

    Examples:
        >>> Run("runs/flowers").best.name
        'best.keras'
    """

    @functools.cached_property
    def all_examples(self) -> Examples:
        """All images of the dataset, whether or not they belong to a split."""
        config = self.read_config()
        return get(config.task).load(config.data)

    def indices(self, part: str = "validation") -> np.ndarray:
        """Returns the indices in `all_examples` of the images in a split.

        Raises:
            ValueError: If an image is missing or has another label, or if the content of an image
                that was not trained on has changed: it may be a training image now.
        """
        return self.audited_indices(part)[0]

    def examples(self, part: str = "validation") -> Examples:
        """Returns the images in a split (`"train"`, `"validation"` or `"test"`)."""
        return self.all_examples.subset(self.indices(part))

    def audited_indices(
        self, part: str, on_bad_image: str = "fail"
    ) -> tuple[np.ndarray, ImageAudit | None]:
        """Returns `indices`, and the audit of the images; training images are not audited.

        Images that cannot be used are left out if the run or `on_bad_image` skips them.
        """
        (indices,) = data.read_split(self.split, self.all_examples, (part,))
        if part == "train":
            return indices, None
        examples = self.all_examples.subset(indices)
        audit = data.audit(examples, progress=False)
        data.read_split(self.split, self.all_examples, (part,), audit.digests)
        if audit.bad:  # in a split without digests, as of many images
            skip = "skip" in (on_bad_image, self.read_config().on_bad_image)
            audit.accept(examples, "skip" if skip else "fail")
            say(audit.text())
            indices = indices[[name in audit.digests for name in examples.names]]
        return indices, audit

    def training_digests(self) -> frozenset[str]:
        """Returns the file digests of all training images, shortened to 32 digits."""
        if digests := training_digests(self.split):
            return digests
        # Run of an earlier version.
        computed = data.audit(self.examples("train")).digests.values()
        return frozenset(map(short_digest, computed))


class EvaluationImages(NamedTuple):
    """Images to evaluate a model on.

    Args:
        examples: The images.
        selection: How they were selected.
        inventory: Counts of all files of the source.
        audit: Audit of these or of more images; None if they were not audited.
    """

    examples: Examples
    selection: str
    inventory: dict[str, Any] | None
    audit: ImageAudit | None


def evaluation_images(
    run: Run,
    source: str | Examples | None,
    task: Task,
    *,
    on_bad_image: str = "fail",
    part: str | None = None,
    training_images: bool = False,
) -> EvaluationImages:
    """Returns the images of a run, or of another data source, to evaluate a model on.

    Args:
        run: The model's run; its folder need not exist if `source` is given.
        source: Data source, or its images; None for the images of the run.
        task: Task of the model, which loads the source.
        on_bad_image: `"fail"` or `"skip"`; images of a run that skips them are always skipped.
        part: Split; by default the validation images of a run, and the test or validation images
            of a source that has splits.
        training_images: Whether images of the source that the run was trained on are included.

    Raises:
        ValueError: If no images are left, or a split does not exist.
    """
    if source is None:
        name = part or "validation"
        indices, audit = run.audited_indices(name, on_bad_image)
        if not len(indices):
            raise ValueError(f"`--part` must be a split with images. Received: {name}")
        selection = "held out" if name == "validation" else f"the {name} split"
        examples = run.all_examples.subset(indices)
        return EvaluationImages(examples, selection, run.resolved().get("inventory"), audit)
    examples = source if isinstance(source, Examples) else task.load(source)
    splits = [name for name in reversed(data.SPLITS) if examples.of_split(name).any()]
    if part and part not in splits:
        raise ValueError(
            f"`--part` must be a split of {examples.source}. Received: {part}; available splits: "
            f"{', '.join(splits) or 'none'}"
        )
    examples, audit = data.usable_images(examples, on_bad_image)
    texts: list[str] = []
    if splits:
        split = part or splits[0]
        examples = examples.subset(np.flatnonzero(examples.of_split(split)))
        texts.append(f"the {split} split")
    if run.config.is_file() and part != "train":
        trained = run.training_digests()
        digests = [short_digest(audit.digests[name]) for name in examples.names]
        untrained = [i for i, digest in enumerate(digests) if digest not in trained]
        if count := len(examples) - len(untrained):
            text = f"{count} of {len(examples)} images are training images of the run"
            texts.append(f"{text} and are {'included' if training_images else 'left out'}")
        if not untrained and not training_images:
            raise ValueError(
                "`--data` must contain images that the run was not trained on; `keras-vit "
                "evaluate --with-training-images` evaluates on all. Received: "
                f"{examples.source}, with {len(examples)} images, all of them training images"
            )
        examples = examples if training_images else examples.subset(untrained)
    print("".join(f"{text[0].upper()}{text[1:]}.\n" for text in texts), end="")
    inventory = dataclasses.asdict(audit.inventory)
    return EvaluationImages(examples, ", ".join(texts) or "all", inventory, audit)
