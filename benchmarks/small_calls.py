"""Rates of few images a call in Python, relative to a signature of a SavedModel.

Pixels of the model's size go to the signature `classify_float` of the same weights, to what
`load_predictor` calls, and to what `optimize_for_inference` returns. They take turns; a ratio is
that of two turns of one round.

    python benchmarks/small_calls.py --model model.keras [--precision bfloat16]
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from train_step import hardware
from turns import spread

from keras_vit import optimize_for_inference
from keras_vit.export import saved_model
from keras_vit.models.inference_runtime import predictor_graph
from keras_vit.models.last_activation import with_probabilities

SIGNATURE = "signature"


def calls(model: keras.Model, precision: str) -> dict[str, Callable[[np.ndarray], Any]]:
    """Returns functions from pixels to probabilities, by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = saved_model.write(model, Path(folder) / "1", precision=precision)
        loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures["classify_float"]
    optimized = optimize_for_inference(model, precision=precision)
    found = {
        SIGNATURE: lambda x: signature(images=tf.constant(x))["probabilities"].numpy(),
        "optimize_for_inference, called": lambda x: np.asarray(optimized(x)),
        "optimize_for_inference, predict_on_batch": optimized.predict_on_batch,
    }
    if precision == "float32":
        network = predictor_graph(with_probabilities(model)[0])
        found["load_predictor"] = lambda x: np.asarray(network(x))
        found["model.predict_on_batch"] = model.predict_on_batch
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, type=Path, help=".keras file of a classifier")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16], help="images of a call")
    parser.add_argument("--rounds", type=int, default=11, help="turns of each")
    parser.add_argument("--seconds", type=float, default=1, help="length of a turn")
    parser.add_argument("--out", type=Path, help="Markdown file to write the table to")
    arguments = parser.parse_args()
    model = keras.saving.load_model(arguments.model, compile=False)
    found = calls(model, arguments.precision)
    lines = [
        "| images of a call | | images/s, median (range) | relative to the signature |",
        "|---|---|---|---|",
    ]
    for number in arguments.batches:
        shape = (number, *model.input_shape[1:])
        images = np.random.default_rng(0).normal(size=shape).astype("float32")
        for call in found.values():
            call(images)
        rounds: list[dict[str, float]] = []
        for _ in range(arguments.rounds):
            rounds.append({})
            for name, call in found.items():
                start, count = time.perf_counter(), 0
                while (spent := time.perf_counter() - start) < arguments.seconds:
                    call(images)
                    count += number
                rounds[-1][name] = count / spent
        for name in found:
            rates = [turn[name] for turn in rounds]
            ratios = [turn[name] / turn[SIGNATURE] for turn in rounds]
            lines.append(f"| {number} | {name} | {spread(rates, 1)} | {spread(ratios, 2)} |")
    text = (
        f"# Few images a call: {model.name}, {arguments.precision}\n\n{hardware()}; Python "
        f"{platform.python_version()}, TensorFlow {tf.__version__}; {arguments.rounds} rounds of "
        f"{arguments.seconds:g} s\n\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
