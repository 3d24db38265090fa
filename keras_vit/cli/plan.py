"""Command `keras-vit plan`."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from keras_vit import choices
from keras_vit.cli import options as opt
from keras_vit.startup import start_keras

if TYPE_CHECKING:
    from keras_vit.training.memory_plan import Plan

# Printed names of the fields of `Memory`.
_ROWS = {
    "weights": "weights, float32",
    "half_weights": "their copies in half precision",
    "gradients": "gradients",
    "optimizer": "state of the optimizer",
    "averages": "averages of the weights",
    "images": "images of a step",
    "activations": "activations kept for the way back",
    "update": "steps of the optimizer",
    "passing": "held for a moment by an operation",
}

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_UNITS |= {"M": 2**20, "G": 2**30}  # as in Slurm and the JVM


def plan(
    context: typer.Context,
    model: Annotated[str, opt.option("Constructor; see `keras-vit models`.")],
    device: Annotated[
        str,
        opt.option(
            "Memory of the device, or what is free of it: 16GiB, the same as 16G, or 24GB.",
            metavar="SIZE",
        ),
    ],
    batch_size: Annotated[
        int | None,
        opt.option("Images in a step. By default the recipe's.", "--batch-size", "--batch"),
    ] = None,
    image_size: Annotated[
        str | None,
        opt.option("Pixels: 224, or HEIGHTxWIDTH. By default the recipe's or the model's."),
    ] = None,
    classes: Annotated[int, opt.option("Outputs of the classifier.", min=1)] = 1000,
    recipe: Annotated[str, opt.option("See `keras-vit recipes`.")] = "finetune",
    set_: opt.SetOption = None,
    precision: Annotated[
        choices.Precision | None, opt.option("Of the layers; auto counts as float32.")
    ] = None,
    optimizer: Annotated[choices.Optimizer | None, opt.option("SGD has momentum 0.9.")] = None,
    remat: Annotated[
        bool | None,
        opt.option("Compute blocks twice instead of keeping them.", "--remat/--no-remat"),
    ] = None,
    frozen: Annotated[
        bool, opt.option("Only the classifier learns, as in linear_probe.", "--frozen")
    ] = False,
    inference: Annotated[
        bool, opt.option("The model predicts and does not learn.", "--inference")
    ] = False,
    kind: Annotated[
        Literal["gpu", "cpu"],
        opt.option("On a CPU TensorFlow keeps less of a step: chains are compiled there."),
    ] = "gpu",
    report: Annotated[Path | None, opt.option("Also write it as JSON, in bytes.")] = None,
) -> None:
    """Predict what a run needs of a device's memory, and the largest batch that fits.

    Nothing is built or computed: the numbers follow from the model's sizes. Checked against
    training steps on a CPU (docs/planning.md); on GPUs and TPUs not run, so leave some room. If
    the batch does not fit, what would help is listed, each with the memory that it would need.

    keras-vit plan --model ViTL16 --batch 64 --device 16GiB

    keras-vit plan --model ViTB16 --recipe paper_finetune --set accumulation_steps=32 --device 24GB
    """
    numbers = opt.recipe_settings(context, remat=remat, trainable=("head/*",) if frozen else None)
    memory = parse_bytes(device)
    opt.check_out("--report", report, folder=False)
    start_keras()
    from keras_vit import files, training
    from keras_vit.training.memory_plan import plan as make_plan

    found = make_plan(
        model,
        training.recipe(recipe).replace(**numbers),
        memory,
        classes=classes,
        inference=inference,
        compiled=kind == "cpu",
    )
    print(_text(model, found))
    if report:
        files.write_json(report, found.to_json())
        print(f"Written: {report}")


def parse_bytes(text: str) -> int:
    """Returns the bytes of a `--device` size."""
    match = re.fullmatch(rf"(\d+(?:\.\d+)?) ?({'|'.join(_UNITS)})", text)
    if not match or not float(match[1]):
        raise ValueError(f"`--device` must read like 16GiB, 16G or 24GB. Received: --device {text}")
    return int(float(match[1]) * _UNITS[match[2]])


def _text(model: str, found: Plan) -> str:
    """Returns a plan as text of at most 100 columns."""
    from keras_vit.training.memory_plan import FRAMEWORK

    recipe, (height, width) = found.recipe, found.config.usual_size
    what = "inference" if found.inference else f"training with {recipe.optimizer}"
    if not found.inference and recipe.remat:
        what += ", blocks computed twice"
    parts = "" if recipe.accumulation_steps == 1 else f" in {recipe.accumulation_steps} parts"
    lines = [
        f"{model} at {height} x {width} pixels, {found.config.classes} classes: {what}, "
        f"{found.precision}, batch of {recipe.batch_size}{parts}",
        "",
        f"{'parameters':<36}{found.parameters:>14,}",
        f"{'GFLOP to predict an image':<36}{found.image_flops / 1e9:>14,.1f}",
        f"{'GFLOP in a step':<36}{found.step_flops / 1e9:>14,.1f}",
        "",
    ]
    memory = {_ROWS[name]: value for name, value in dataclasses.asdict(found.memory).items()}
    memory |= {"the framework, as measured on a CPU": FRAMEWORK, "together": found.total}
    lines += [f"{name:<36}{_mib(value):>14} MiB" for name, value in memory.items() if value]
    verdict = "fits" if found.fits else "does not fit"
    lines += [
        f"{'the device':<36}{_mib(found.device):>14} MiB: {verdict}",
        f"{'largest batch at once':<36}{found.largest_batch:>14,}",
    ]
    if found.fits:
        return "\n".join(lines)
    remedies = list(found.remedies())
    if remedies:
        width = max(len(name) for name, _ in remedies)
        lines += ["", f"{'What would help, by --set':<{width}}{'MiB':>9}  largest batch at once"]
    for name, other in remedies:
        mark = "fits" if other.fits else "too much"
        lines.append(f"{name:<{width}}{_mib(other.total):>9}  {other.largest_batch:>21,}  {mark}")
    if not any(other.fits for _, other in remedies):
        hint = "" if found.inference or found.recipe.trainable != ("*",) else ", or --frozen"
        why = "None of it is enough" if remedies else "Nothing saves enough memory here"
        lines.append(f"{why}: take a smaller model, image or batch{hint}.")
    return "\n".join(lines)


def _mib(value: int) -> str:
    return f"{value / 2**20:,.0f}"
