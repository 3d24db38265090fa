"""Photographs of 12 megapixels: rates of training and serving, and agreement, by DCT scaling.

JPEGs that are decoded at 1/2 or 1/4 of their size (`Preprocessing.dct_scaling`) are compared with
the same files decoded whole: images/s of one core in evaluation and in training, images/s of an
exported model in TensorFlow's C API, each bundle with the `batching.config` of its version, and on
enlarged photographs the pixels after resizing and the predicted classes. Variants take turns, and a
ratio is that of two turns of one round.

    python benchmarks/large_photographs.py --data photos/ --model model.keras [--base old/vit/1]
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import PIL.Image
import tensorflow as tf
from exif_orientation import datasets, photographs
from input_pipeline import take_turn
from serving_batches import Batching, Served
from train_step import hardware
from turns import spread

from keras_vit import data, models
from keras_vit.data.decode_and_resize import decode_as_stored, decode_resized, ratio_for_resizing
from keras_vit.export import load_predictor, saved_model
from keras_vit.preprocessing import Preprocessing
from keras_vit.tf_serving import batching
from keras_vit.tf_serving.batching import FILE

SIZE = (4032, 3024)
LARGER = 384  # of an input, at which photographs of 12 megapixels are decoded at 1/2
VARIANTS = {"whole": False, "scaled": True}
SERVED = {
    "whole": (False, "float32"),
    "scaled": (True, "float32"),
    "scaled, bfloat16": (True, "bfloat16"),
}


def input_rates(rounds: int, batches: int) -> list[str]:
    """Returns the table of the rates of one core."""
    examples = photographs(1, SIZE)
    found = {
        (purpose, name): dataset
        for name, scaling in VARIANTS.items()
        for purpose, dataset in datasets(
            examples, Preprocessing(size=224, dct_scaling=scaling)
        ).items()
    }
    turns: dict[tuple[str, str], list[float]] = {key: [] for key in found}
    for _ in range(rounds):
        for key, dataset in found.items():
            turns[key].append(4 * batches / take_turn(dataset, batches).processor)
    lines = [
        "| images for | decoded | images/s of a core, median (range) | relative to whole |",
        "|---|---|---|---|",
    ]
    for purpose, name in found:
        rates, base = turns[purpose, name], turns[purpose, "whole"]
        ratios = [rate / other for rate, other in zip(rates, base, strict=True)]
        lines.append(f"| {purpose} | {name} | {spread(rates, 1)} | {spread(ratios, 2)} |")
    return lines


def served_rates(
    bundles: dict[str, Path], clients: list[int], rounds: int, work: Path, threads: int
) -> list[str]:
    """Returns the table of the rates of bundles in the C API; `threads` is not for `earlier`."""
    for index, file in enumerate(photographs(1, SIZE, count=16).encoded or ()):
        (work / str(index)).write_bytes(file)
    served = {
        name: Served(path, work, 0 if name == "earlier" else threads)
        for name, path in bundles.items()
    }
    batchings = {name: Batching.of(path.parents[1] / FILE) for name, path in bundles.items()}
    lines = [
        "| bundle | clients | images/s, median (range) | relative to the first |",
        "|---|---|---|---|",
    ]
    for number in clients:
        turns: list[list[float]] = []
        for _ in range(rounds):
            turns.append(
                [each.load(batchings[name], number, 3)["rate"] for name, each in served.items()]
            )
        for index, name in enumerate(served):
            rates, ratios = [t[index] for t in turns], [t[index] / t[0] for t in turns]
            lines.append(f"| {name} | {number} | {spread(rates, 1)} | {spread(ratios, 2)} |")
    for each in served.values():
        each.end()
    return lines


def enlarged(photos: data.Examples, quality: int = 90) -> Iterator[bytes]:
    """Yields photographs enlarged to 12 megapixels, as JPEGs."""
    for index in range(len(photos)):
        photo = PIL.Image.open(io.BytesIO(photos.read(index))).convert("RGB")
        scale = (SIZE[0] * SIZE[1] / (photo.width * photo.height)) ** 0.5
        file = io.BytesIO()
        photo.resize((round(photo.width * scale), round(photo.height * scale))).save(
            file, "JPEG", quality=quality
        )
        yield file.getvalue()


def agreement(model: keras.Model, photos: data.Examples) -> list[str]:
    """Returns the differences of scaled decoding, and as a control of another quality of JPEG."""
    preprocessing = models.preprocessing_of(model)
    predictors = [load_predictor(with_scaling(model, scaling)) for scaling in VARIANTS.values()]
    reads = {
        size: [
            dataclasses.replace(preprocessing, size=size, dct_scaling=scaling)
            for scaling in VARIANTS.values()
        ]
        for size in (preprocessing.size, (LARGER, LARGER))
    }
    ratios: dict[tuple[int, int], set[int]] = {size: set() for size in reads}
    differences: dict[tuple[int, int], list[np.ndarray]] = {size: [] for size in reads}
    found: dict[str, list[tuple[bool, float]]] = {"decoded scaled": [], "of quality 92": []}
    for file, control in zip(enlarged(photos), enlarged(photos, quality=92), strict=True):
        for size, pair in reads.items():
            encoded = tf.constant(file)
            whole, scaled = (decode_resized(encoded, each).numpy() for each in pair)
            stored = decode_as_stored(encoded, pair[1], ratio_for_resizing(pair[1]))
            ratios[size].add(int(stored.ratio))
            differences[size].append(np.abs(whole.astype(np.int16) - scaled))
        (base, other), (scaled, _) = (each.probabilities([file, control]) for each in predictors)
        for name, row in (("decoded scaled", scaled), ("of quality 92", other)):
            found[name].append((base.argmax() == row.argmax(), np.abs(base - row).max()))
    lines = [
        "| JPEGs | same class as decoded whole, of quality 90 | largest difference |",
        "|---|---|---|",
    ]
    for name, pairs in found.items():
        same, largest = sum(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
        lines.append(f"| {name} | {same} of {len(photos)} | {largest:.3f} |")
    lines += [
        "",
        "| input size | decoded at | largest difference of a pixel, gray levels | mean |",
        "|---|---|---|---|",
    ]
    for size, values in differences.items():
        at = ", ".join(f"1/{ratio}" for ratio in sorted(ratios[size]))
        largest_pixel, mean = max(d.max() for d in values), np.mean([d.mean() for d in values])
        lines.append(f"| {size[0]} x {size[1]} | {at} | {largest_pixel} | {mean:.3f} |")
    return lines


def with_scaling(model: keras.Model, scaling: bool) -> keras.Model:
    """Returns a copy that decodes large JPEGs whole or scaled."""
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    layer = copy.get_layer("image_contract")
    layer.preprocessing = dataclasses.replace(layer.preprocessing, dct_scaling=scaling)
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="folder of photographs, to be enlarged")
    parser.add_argument("--model", required=True, type=Path, help=".keras file of a classifier")
    parser.add_argument("--base", type=Path, help="version folder of a bundle to compare with")
    parser.add_argument("--count", type=int, default=200, help="photographs that are enlarged")
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 16])
    parser.add_argument(
        "--threads-of-operators",
        type=int,
        default=0,
        help="--tensorflow_intra_op_parallelism, but for --base; 0: one per core",
    )
    parser.add_argument("--rounds", type=int, default=9, help="turns of each variant")
    parser.add_argument("--batches", type=int, default=4, help="batches of four in a turn")
    parser.add_argument("--out", type=Path, help="Markdown file to write the tables to")
    arguments = parser.parse_args()
    model = keras.saving.load_model(arguments.model, compile=False)
    photos = data.load(arguments.data)
    chosen = np.random.default_rng(0).permutation(len(photos))[: arguments.count]
    sections = {"Agreement": agreement(model, photos.subset(np.sort(chosen)))}
    with tempfile.TemporaryDirectory() as folder:
        bundles = {"earlier": arguments.base} if arguments.base else {}
        batching.write_config(folder, model.count_params())
        for name, (scaling, precision) in SERVED.items():
            path = Path(folder) / name / "1"
            path.parent.mkdir()
            bundles[name] = saved_model.write(
                with_scaling(model, scaling), path, precision=precision
            )
        work = Path(folder) / "work"
        work.mkdir()
        sections["Served"] = served_rates(
            bundles, arguments.clients, arguments.rounds, work, arguments.threads_of_operators
        )
    sections["Input"] = input_rates(arguments.rounds, arguments.batches)
    text = (
        f"# Photographs of {SIZE[0]} x {SIZE[1]} pixels\n\n{hardware()}; Python "
        f"{platform.python_version()}, TensorFlow {tf.__version__}; {arguments.rounds} rounds\n"
    )
    for title, lines in sections.items():
        text += f"\n## {title}\n\n" + "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
