"""The images of a run: those it trains on, and those it holds out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from keras_vit import data
from keras_vit.data.inventory import Inventory
from keras_vit.runs.config import CommonConfig
from keras_vit.runs.run_folder import Run

Split = Callable[..., tuple[np.ndarray, np.ndarray]]


def find_parts(
    config: CommonConfig,
    examples: data.Examples,
    run: Run,
    *,
    resume: bool,
    writes: bool,
    split: Split = data.split,
) -> tuple[data.Examples, data.Examples, Inventory]:
    """Looks at every image of a run and divides those that can be used.

    Args:
        config: Its `data`, `on_bad_image`, `validation_fraction` and `split_seed`.
        examples: The images.
        run: Keeps the division.
        resume: Whether the division that `run` keeps counts.
        writes: Whether this process writes a new one there.
        split: Divides images, as `data.split` does.

    Returns:
        The images to train on, those to validate on, and the counts of all files.

    Raises:
        ValueError: If an image cannot be used, there are too few, or they are no longer those
            that `run` divides.

    Example:
        >>> import tempfile
        >>> digits, run = data.load("digits").subset(range(100)), Run(tempfile.mkdtemp())
        >>> config = CommonConfig("digits", "ViTMicro4", validation_fraction=0.3)
        >>> training, held_out, _ = find_parts(config, digits, run, resume=False, writes=True)
        Checking the images of digits ...
        >>> len(training), len(held_out)
        (70, 30)
    """
    examples, found = data.usable_images(examples, config.on_bad_image)
    if resume:
        training, validation = data.read_split(
            run.split, examples, digests=found.digests, on_missing=config.on_bad_image
        )
    else:
        training, validation = split(
            examples,
            found.digests,
            validation_fraction=config.validation_fraction,
            seed=config.split_seed,
        )
        if writes:
            data.write_split(run.split, examples, training, validation, found.digests)
    return examples.subset(training), examples.subset(validation), found.inventory
