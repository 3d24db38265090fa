"""Command `keras-vit drift`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from keras_vit.cli import options as opt
from keras_vit.escapes import say
from keras_vit.startup import start_keras


def drift(
    run: Annotated[Path, opt.argument("RUN", "Run folder.")],
    images: Annotated[list[Path], opt.argument("SOURCE...", "Image files or folders of images.")],
    out: Annotated[Path, opt.option("Output folder.")] = Path("drift"),
    batch_size: opt.BatchOption = 32,
) -> None:
    """Compare new images with the held-out images of a run.

    Compares out-of-distribution scores, confidence, predicted classes and properties of the images
    with those of the run's held-out images, with intervals, and shows the new images that differ
    most from the training images.

    keras-vit drift runs/photos new_photos/
    """
    opt.check_exists("RUN", run, "a run folder")
    opt.check_files("SOURCE", images, folders=True)
    opt.check_out("--out", out, ("index.html", "drift.json"))
    paths = opt.find_images(images)
    start_keras()
    from keras_vit.reports import write_drift

    report = write_drift(run, paths, out, batch_size=batch_size, verbose=int(sys.stdout.isatty()))
    say(report.text())
    unreadable = f", {len(report.unreadable)} of which cannot be read" if report.unreadable else ""
    print(f"\nWritten: {out / 'index.html'} ({len(paths)} images{unreadable})")
