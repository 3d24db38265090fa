"""Command `keras-vit export`."""

from __future__ import annotations

import enum
import functools
from pathlib import Path
from typing import Annotated, Any, Literal

from keras_vit.cli.model_argument import check_model, load_given_model
from keras_vit.cli.options import DATA_HELP, argument, check_data, check_out, option, server_option
from keras_vit.constants import MAX_PIXELS
from keras_vit.escapes import say
from keras_vit.startup import start_keras

Precision = Literal["float32", "bfloat16", "auto"]
# Typer does not support lists of a `Literal`.
Quantization = enum.StrEnum(
    "Quantization", ["all", "none", "float32", "float16", "int16x8", "int8", "dynamic_range"]
)

files_option = functools.partial(option, panel="Files")
proof_option = functools.partial(option, panel="Proof")


def export(
    model: Annotated[Path, argument("RUN", "Run folder or .keras file.")],
    to: Annotated[Path, files_option("Folder to write the bundle to.", metavar="DIR")],
    name: Annotated[str, files_option("Model name on the server.")] = "vit",
    tflite: Annotated[
        list[Quantization] | None,
        files_option(
            "TFLite variant to write; may be repeated. A variant that does not match the model is "
            "left out by default and with all; if it is named here, the export fails.",
            show_default="float16 and dynamic_range",
        ),
    ] = None,
    tflite_batch_size: Annotated[int, files_option("Batch size of the TFLite files.", min=1)] = 1,
    onnx: Annotated[bool, files_option("Also write an ONNX file.", "--onnx")] = False,
    openvino: Annotated[bool, files_option("Also write OpenVINO files.", "--openvino")] = False,
    data: Annotated[
        str | None,
        proof_option(
            f"Labeled images to verify on; by default the run's validation images. {DATA_HELP}",
            callback=check_data,
        ),
    ] = None,
    full: Annotated[
        bool, proof_option("Verify on all images instead of a sample.", "--full")
    ] = False,
    coverage: Annotated[
        float | None,
        proof_option(
            "Add prediction sets (outputs set and set_size), which contain the true class with "
            "this probability, such as 0.99; chosen on all images to verify on.",
            min=0,
            max=1,
        ),
    ] = None,
    false_alarm_rate: Annotated[
        float | None,
        proof_option(
            "Add an out-of-distribution score (outputs ood_score and in_distribution), fitted on "
            "the training images; this fraction of images like the held-out ones, such as 0.01, "
            "is reported as out of distribution.",
            min=0,
            max=1,
        ),
    ] = None,
    nearest_images: Annotated[
        bool,
        proof_option("Also return the three most similar training images.", "--nearest-images"),
    ] = False,
    prototypes: Annotated[
        bool,
        server_option("Let `keras-vit classes add` add classes without training.", "--prototypes"),
    ] = False,
    sample: Annotated[
        int, proof_option("Number of images to verify on without --full.", min=1)
    ] = 200,
    min_agreement: Annotated[
        float,
        proof_option(
            "Minimum fraction of images with the same class for a quantized TFLite file.",
            min=0,
            max=1,
        ),
    ] = 0.99,
    max_bytes: Annotated[int, server_option("Maximum file size in bytes.", min=1)] = 20_000_000,
    max_pixels: Annotated[int, server_option("Maximum image size in pixels.", min=1)] = MAX_PIXELS,
    precision: Annotated[
        Precision,
        server_option(
            "Precision of matrix products. bfloat16 must predict the same class for 99.5% of the "
            "images; auto selects it if the processor supports it."
        ),
    ] = "float32",
    processor: Annotated[
        Literal["amx_bf16", "avx512_bf16", "other"] | None,
        server_option(
            "Processor type of the server, for --precision auto. Default: the processor of this "
            "machine.",
            show_default=False,
        ),
    ] = None,
    warm_up: Annotated[
        bool | None,
        server_option(
            "Add warm-up requests to the SavedModel.",
            show_default="if tensorflow-serving-api is installed",
        ),
    ] = None,
) -> None:
    """Export a model for servers and phones, and verify it against the trained model.

    DIR/NAME/VERSION/ is a SavedModel for TensorFlow Serving, which accepts image files;
    DIR/NAME-files/VERSION/ has TFLite files for phones. Each is run on labeled images in a
    process without Keras and compared with the model; only files that agree are put in place.

    keras-vit export runs/photos --to serving

    keras-vit export runs/photos --to serving --tflite dynamic_range --full
    """
    variants = tuple(dict.fromkeys(map(str, tflite or ())))
    if len(variants) > 1 and {"all", "none"} & set(variants):
        raise ValueError(
            f"`--tflite all` and `--tflite none` must stand alone. Received: {', '.join(variants)}"
        )
    check_model(model)
    for folder in (name, f"{name}-files"):
        check_out("--to", to / folder)
    start_keras()
    from keras_vit import export as exporting
    from keras_vit.tasks.registry import trained_model
    from keras_vit.tasks.run_data import Run, evaluation_images

    source: Any = model if model.is_dir() else load_given_model(model)
    examples: Any = data
    if data and coverage is not None and model.is_file() and Run(model.parent).config.is_file():
        examples = evaluation_images(Run(model.parent), data, trained_model(source).task).examples
    result = exporting.bundle(
        source,
        to,
        name=name,
        quantizations={(): None, ("all",): "all", ("none",): ()}.get(variants, variants),
        runtimes=[kind for kind, enabled in (("onnx", onnx), ("openvino", openvino)) if enabled],
        examples=examples,
        full=full,
        coverage=coverage,
        false_alarm_rate=false_alarm_rate,
        nearest_images=nearest_images,
        prototypes=prototypes,
        sample=sample,
        min_agreement=min_agreement,
        limits=exporting.Limits(max_bytes, max_pixels),
        precision=precision,
        processor=processor,
        warm_up=warm_up,
        tflite_batch_size=tflite_batch_size,
    )
    say(f"\nCompared with the Keras model on {result.images} labeled images:\n{result.text()}")
    print(f"\nWritten: {result.saved_model} (for TensorFlow Serving)")
    if result.files:
        print(f"Written: {result.files} (for phones and other runtimes)")
    if oldest_runtimes := [" ".join(pair) for pair in result.oldest_runtimes().items()]:
        print(f"Oldest TensorFlow Lite that runs each file: {', '.join(oldest_runtimes)}")
