"""Commands `keras-vit models`, `keras-vit weights` and `keras-vit convert`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from keras_vit import choices
from keras_vit.arguments import text_table
from keras_vit.cli.options import argument, check_out, check_weights, option, parse_size
from keras_vit.startup import start_keras

_SOURCE_HELP = (
    "A weight file or folder, the name of published weights (with --model), hf://ORG/REPOSITORY, "
    "timm/NAME or an https URL."
)
_TARGET_HELP = (
    "Output file or folder: .npz (official code), .weights.h5 or .keras, .safetensors (with "
    "--format timm or torchvision), or a new folder (Hugging Face)."
)


def models() -> None:
    """List all models with their sizes.

    keras-vit models
    """
    start_keras()
    from keras_vit.models import count_parameters
    from keras_vit.zoo import CONSTRUCTORS

    rows = [["model", "pixels", "patch", "hidden size", "blocks", "heads", "MLP", "parameters"]]
    for name, constructor in CONSTRUCTORS.items():
        c = constructor.config
        numbers = (c.image_size[0], c.patch[0], c.hidden_size, c.num_layers, c.num_heads, c.mlp_dim)
        rows.append([name, *map(str, numbers), f"{count_parameters(c):,}"])
    print("\n".join(text_table(rows, "<>>>>>>>")))
    print("\nParameters are counted for 1000 classes and images of this height and width.")


def convert(
    source: Annotated[str, argument("SOURCE", _SOURCE_HELP)],
    target: Annotated[Path, argument("TARGET", _TARGET_HELP)],
    format: Annotated[
        choices.Format | None, option("Output format (default: by the name of TARGET).")
    ] = None,
    model: Annotated[
        str | None,
        option(
            "Model constructor; required for published weights given by name, and for "
            ".weights.h5 files, which do not store the patch size."
        ),
    ] = None,
    heads: Annotated[
        int | None, option("Number of attention heads; required for non-standard sizes.", min=1)
    ] = None,
    image_size: Annotated[
        str | None, option("Image size: 224 or HEIGHTxWIDTH; required for non-square patch grids.")
    ] = None,
    overwrite: Annotated[bool, option("Replace TARGET if it exists.", "--overwrite")] = False,
) -> None:
    """Convert weights to the format of another library, bit for bit.

    Settings that TARGET cannot store, such as the variant of GELU, are printed.

    keras-vit convert ViT-B_16.npz vit_base.safetensors --format timm

    keras-vit convert augreg_in21k_ft_in1k vit_b16 --model ViTB16
    """
    check_weights("SOURCE", source)
    size = parse_size(image_size)
    model_settings: dict[str, Any] = {"image_size": size} if size else {}
    if target.exists() and not overwrite:
        raise ValueError(f"`TARGET` must not exist without --overwrite. Received: {target}")
    check_out("TARGET", target, folder=False)
    start_keras()
    from keras_vit import weights, zoo

    if model is not None:
        config = zoo.constructor(model).config
        model_settings["num_heads"] = config.num_heads
        if source.endswith(".h5"):
            model_settings["patch_size"] = config.patch_size
    if heads is not None:
        model_settings["num_heads"] = heads
    try:
        weights.convert(source, target, format, model=model, overwrite=overwrite, **model_settings)
    except ValueError as error:
        missing = re.search(r"does not contain .*(num_heads|patch_size|image_size)", str(error))
        hint = ". Options: --heads N, --model NAME, --image-size HEIGHTxWIDTH" if missing else ""
        raise ValueError(f"{error}{hint}") from error
    print(f"Written: {target}")


def weights(
    model: Annotated[
        str | None, argument("MODEL", "Model constructor, such as ViTB16 (default: all models).")
    ] = None,
) -> None:
    """List the published weights by the names accepted by `weights=`.

    keras-vit weights ViTB16
    """
    start_keras()
    from keras_vit import zoo
    from keras_vit.weights import list_weights

    for name in [model] if model else list(zoo.CONSTRUCTORS):
        zoo.constructor(name)  # raises `ValueError` with the nearest name
        print(_table(name, list_weights(name)))
    print("Pass a name as `weights=`. Details: keras_vit.list_weights(MODEL)")


def _table(model: str, rows: list[Any]) -> str:
    """Formats the published weights of a model as text with at most 80 columns."""
    if not rows:
        return f"{model}: no published weights\n"
    cells = [("name", "px", "classes", "top-1", "MiB", "license")]
    for row in rows:
        top1 = f"{row.top1:.2f}" if row.top1 else "-"
        numbers = (row.image_size, row.classes or "-", top1, row.mebibytes or "-")
        cells.append((row.name, *map(str, numbers), row.license))
    aliases = [f"{a}: {row.name}" for row in rows for a in row.aliases if a.startswith("imagenet")]
    terms = {f"{row.license}: {row.terms}": None for row in rows if row.terms}
    return "\n".join([model, *text_table(cells, "<>>>><"), *aliases, *terms, ""])
