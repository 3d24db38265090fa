"""Command `keras-vit export`."""

from __future__ import annotations

import enum
import functools
from pathlib import Path
from typing import Annotated, Literal

from keras_vit.cli.model_argument import check_model, load_model
from keras_vit.cli.options import DATA_HELP, argument, check_data, check_out, of_server, option
from keras_vit.constants import MAX_PIXELS
from keras_vit.startup import start_keras

Precision = Literal["float32", "bfloat16", "auto"]
# Typer does not support lists of a `Literal`.
Quantization = enum.StrEnum(
    "Quantization", ["all", "none", "float32", "float16", "int16x8", "int8", "dynamic_range"]
)

of_files = functools.partial(option, panel="Files")
of_proof = functools.partial(option, panel="Proof")


def export(
    model: Annotated[Path, argument("RUN_OR_FILE", "Run folder or .keras file.")],
    to: Annotated[Path, of_files("Where the bundle goes.", metavar="DIR")],
    name: Annotated[str, of_files("What the model is called on the server.")] = "vit",
    tflite: Annotated[
        list[Quantization] | None,
        of_files(
            "TFLite files; may be repeated. By default all that agree with the model; one that is "
            "named has to.",
            show_default="all",
        ),
    ] = None,
    tflite_batch_size: Annotated[int, of_files("Images in a call of them.", min=1)] = 1,
    onnx: Annotated[bool, of_files("Also write an ONNX file.", "--onnx")] = False,
    openvino: Annotated[bool, of_files("Also write for OpenVINO.", "--openvino")] = False,
    data: Annotated[
        str | None,
        of_proof(
            f"Labelled images to prove it on; by default those that the run held out. {DATA_HELP}"
        ),
    ] = None,
    full: Annotated[bool, of_proof("Prove it on all of them.", "--full")] = False,
    sample: Annotated[int, of_proof("On how many otherwise.", min=1)] = 200,
    min_agreement: Annotated[
        float,
        of_proof(
            "Share of them on which a smaller TFLite file has to name the same class.",
            min=0,
            max=1,
        ),
    ] = 0.99,
    max_bytes: Annotated[int, of_server("Largest image file it takes.", min=1)] = 20_000_000,
    max_pixels: Annotated[int, of_server("Largest image it decodes.", min=1)] = MAX_PIXELS,
    precision: Annotated[
        Precision,
        of_server(
            "Of its products of matrices. bfloat16 has to name the same class on 99.5% of the "
            "images; auto takes it where the processor multiplies it."
        ),
    ] = "float32",
    processor: Annotated[
        Literal["amx_bf16", "avx512_bf16", "other"] | None,
        of_server(
            "Instructions of the machine that will serve, for --precision auto. By default those "
            "of this machine.",
            show_default=False,
        ),
    ] = None,
    warm_up: Annotated[
        bool | None,
        of_server(
            "Write requests it warms up with.",
            show_default="where tensorflow-serving-api is installed",
        ),
    ] = None,
) -> None:
    """Write all that serving needs, and prove that it computes what was trained.

    DIR/NAME/VERSION/ is a SavedModel for TensorFlow Serving, which takes image files;
    DIR/NAME-files/VERSION/ has TFLite files for phones. Each is run on labelled images in a
    process without Keras and compared with the model; nothing appears that was not.

    keras-vit export runs/photos --to serving

    keras-vit export runs/photos --to serving --tflite dynamic_range --full
    """
    chosen = list(dict.fromkeys(map(str, tflite or [Quantization.all])))
    if len(chosen) > 1 and {"all", "none"} & set(chosen):
        raise ValueError(
            f"`--tflite all` and `--tflite none` stand alone. Received: {', '.join(chosen)}"
        )
    check_model(model)
    check_data(data)
    for folder in (name, f"{name}-files"):
        check_out("--to", to / folder)
    start_keras()
    from keras_vit import data as sources
    from keras_vit import export as exporting

    quantizations = {"all": None, "none": ()}.get(chosen[0], tuple(chosen))
    done = exporting.bundle(
        model if model.is_dir() else load_model(model),
        to,
        name=name,
        quantizations=quantizations,
        runtimes=[kind for kind, asked in (("onnx", onnx), ("openvino", openvino)) if asked],
        examples=sources.load(data) if data else None,
        full=full,
        sample=sample,
        min_agreement=min_agreement,
        limits=exporting.Limits(max_bytes, max_pixels),
        precision=exporting.chosen_precision(precision, processor),
        warm_up=warm_up,
        tflite_batch_size=tflite_batch_size,
    )
    print(f"\nCompared with the Keras model on {done.images} labelled images:\n{done.text()}")
    print(f"\nWritten: {done.saved_model}")
    if done.files:
        print(f"Written: {done.files}")
