"""Command `keras-vit plan`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from keras_vit.cli import options as opt
from keras_vit.startup import start_keras

if TYPE_CHECKING:
    from keras_vit.training.device_plan import Plan

# Printed names of the parts of the memory.
_ROWS = {
    "weights": "weights, float32",
    "half_weights": "half-precision copies of the weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "averages": "averaged weights",
    "images": "one batch of images",
    "activations": "activations for the backward pass",
    "update": "temporary buffers of the optimizer",
    "passing": "temporary buffers of operations",
    "framework": "framework (measured on a CPU)",
}

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_UNITS |= {"M": 2**20, "G": 2**30}  # as in Slurm and the JVM


def plan(
    context: typer.Context,
    model: opt.ModelOption,
    memory: opt.MemoryOption,
    batch_size: opt.BatchSizeOption = None,
    image_size: opt.SizeOption = None,
    classes: Annotated[int, opt.option("Number of classes.", min=1, max=10**9)] = 1000,
    recipe: Annotated[str, opt.recipe_option("Recipe; see `keras-vit recipes`.")] = "finetune",
    set_: opt.SetOption = None,
    precision: opt.PrecisionOption = None,
    optimizer: opt.OptimizerOption = None,
    remat: Annotated[bool | None, opt.option("Gradient checkpointing of the blocks.")] = None,
    frozen: Annotated[bool, opt.option("Train only the classifier.", "--frozen")] = False,
    inference: Annotated[bool, opt.option("Inference only.", "--inference")] = False,
    kind: Annotated[
        Literal["gpu", "cpu"],
        opt.option("Device type; a training step needs less memory on a CPU (XLA)."),
    ] = "gpu",
    json: opt.JsonOption = None,
) -> None:
    """Estimate the device memory of a run and the largest batch size that fits.

    Nothing is built or computed: the numbers follow from the model's sizes; precision auto counts
    as float32. Checked against training steps on a CPU (docs/planning.md); on GPUs and TPUs not
    run, so leave some room. If the batch does not fit, settings that need less memory are listed.

    keras-vit plan --model ViTL16 --batch 64 --memory 16GiB

    keras-vit plan --model ViTB16 --recipe paper_finetune --set accumulation_steps=32 --memory 24GB
    """
    settings = opt.recipe_settings(context, remat=remat, trainable=("head/*",) if frozen else None)
    device = parse_bytes(memory)
    start_keras()
    from keras_vit import training
    from keras_vit.training.device_plan import plan as make_plan

    device_plan = make_plan(
        model,
        training.recipe(recipe).replace(**settings),
        device,
        classes=classes,
        inference=inference,
        compiled=kind == "cpu",
    )
    print(_text(model, device_plan))
    opt.write_json(json, device_plan.to_json())


def parse_bytes(text: str) -> int:
    """Parses the memory size given as `--memory`; returns it in bytes."""
    match = re.fullmatch(rf"(\d{{1,12}}(?:\.\d+)?) ?({'|'.join(_UNITS)})", text)
    if not match or not float(match[1]):
        raise ValueError(f"`--memory` must be a size such as 16GiB. Received: --memory {text}")
    return int(float(match[1]) * _UNITS[match[2]])


def _text(model: str, plan: Plan) -> str:
    """Formats a plan as text with at most 100 columns."""
    recipe, numbers = plan.recipe, plan.to_json()
    height, width = plan.config.default_image_size
    purpose = "inference" if plan.inference else f"training with {recipe.optimizer}"
    if not plan.inference and recipe.remat:
        purpose += ", gradient checkpointing"
    parts = "" if recipe.accumulation_steps == 1 else f" in {recipe.accumulation_steps} parts"
    verdict = "fits" if plan.fits else "does not fit"
    memory = {_ROWS[name]: value for name, value in numbers["memory"].items() if value}
    lines = [
        f"{model} at {height} x {width} pixels, {plan.config.classes} classes: {purpose}, "
        f"{plan.precision}, batch of {recipe.batch_size}{parts}",
        "",
        f"{'parameters':<36}{numbers['parameters']:>14,}",
        f"{'GFLOP to predict an image':<36}{numbers['image_flops'] / 1e9:>14,.1f}",
        f"{'GFLOP in a step':<36}{numbers['step_flops'] / 1e9:>14,.1f}",
        "",
        *(f"{name:<36}{_mib(value):>14} MiB" for name, value in memory.items()),
        f"{'together':<36}{_mib(plan.total):>14} MiB",
        f"{'the device':<36}{_mib(plan.device):>14} MiB: {verdict}",
        f"{'largest batch size':<36}{plan.largest_batch:>14,}",
    ]
    remedies = {} if plan.fits else plan.remedies()
    if remedies:
        width = max(map(len, remedies))
        lines += ["", f"{'Settings to try (--set)':<{width}}{'MiB':>9}  largest batch size"]
    for name, remedy in remedies.items():
        mark = "fits" if remedy.fits else "too much"
        lines.append(f"{name:<{width}}{_mib(remedy.total):>9}  {remedy.largest_batch:>21,}  {mark}")
    if not any(plan.fits for plan in (plan, *remedies.values())):
        hint = "" if plan.inference or recipe.trainable != ("*",) else ", or --frozen"
        reason = "None of these saves enough" if remedies else "No setting saves enough memory"
        lines.append(f"{reason}: use a smaller model, image size or batch size{hint}.")
    return "\n".join(lines)


def _mib(value: int) -> str:
    return f"{value / 2**20:,.0f}"
