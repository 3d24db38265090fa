"""Loading of the model that is given as a command-line argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras_vit.cli.options import check_exists, check_weights


def check_model(path: Path, constructor: str | None = None) -> None:
    """Raises `ValueError` if a model does not exist, without importing Keras."""
    if constructor is None:
        check_run(path)
        if path.is_dir() and not (path / "last.keras").is_file():
            raise ValueError(
                f"`RUN` must be a run folder or a model file. Received: {path}, a folder without "
                "last.keras (exported files are for `keras-vit predict`)"
            )
        check_exists("RUN", path, "a run folder or a model file")
    else:
        check_weights("RUN", str(path))


def check_run(path: Path) -> None:
    """Raises `ValueError` if a run has no model of a complete epoch."""
    if (path / "config.yaml").is_file() and not (path / "last.keras").is_file():
        best = path / "best.keras"
        hint = f"; its best epoch is {best}" if best.is_file() else ""
        raise ValueError(
            "`RUN` must be a run with a complete epoch. Received: "
            f"{path}, which has no last.keras{hint}"
        )


def load_given_model(
    path: Path,
    constructor: str | None = None,
    image_size: tuple[int, int] | None = None,
    *,
    classifier: bool = True,
) -> Any:
    """Loads a Keras model from a run folder, a `.keras` file or a weight file."""
    from keras_vit import weights, zoo
    from keras_vit.models.memory import require_memory
    from keras_vit.weights import whole_models

    check_model(path, constructor)
    if constructor is None:
        path = path / "last.keras" if path.is_dir() else path
        if path.suffix != ".keras":
            raise ValueError(
                "A weight file must be passed with the constructor of its model, as in `--model "
                f"ViTB16` (for `keras-vit evaluate`, `explain` and `probe`). Received: {path}"
            )
        if image_size is not None:
            raise ValueError(
                "`--image-size` must be used with `--model`, the constructor that builds the "
                f"model at this size. Received: --image-size with {path}"
            )
        return whole_models.load_model(path)
    constructor_function = zoo.constructor(constructor)
    if image_size:
        require_memory(constructor_function.config.replace(image_size=image_size))
    checkpoint = weights.read_checkpoint(path, constructor)
    classes = checkpoint.inferred["classes"]
    if not classes and classifier:
        raise ValueError(f"`RUN` must contain a classifier. Received: {path}")
    preprocessing = checkpoint.preprocessing
    activation = "sigmoid" if preprocessing and preprocessing.thresholds else "softmax"
    head_options = {"classes": classes, "classifier_activation": activation}
    if not classes:  # the pooling is as before a classifier
        head_options = {"include_top": False, "pooling": checkpoint.inferred.get("pooling")}
    if image_size is not None:
        head_options["input_shape"] = (*image_size, checkpoint.inferred.get("channels", 3))
    return constructor_function(weights=checkpoint, **head_options)
