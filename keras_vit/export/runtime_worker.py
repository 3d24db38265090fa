"""Worker script that runs exported files in a process without Keras or keras_vit.

Started by `keras_vit.export.compare_artifacts` as `python -P runtime_worker.py FOLDER`. Reads
`task.json` and `images.tfrecord` in the folder; writes `pixels.npy`, the outputs of each artifact
as `ARTIFACT.npy`, and the times per image to `times.json`. Raises an exception on errors.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ABSENT = ("keras", "tf_keras", "keras_vit")
if __name__ == "__main__":  # the imports below must work without them
    sys.modules.update(dict.fromkeys(ABSENT))  # type: ignore[arg-type]

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

_BATCH = 32
EXTRA, CLASSES = "assets.extra", "classes.pb"  # a file in a folder of the SavedModel
# Outputs of classifiers besides the probabilities; `joined` appends the numbers as columns.
_COLUMNS = ("ood_score", "nearest_similarity", "nearest")
_FURTHER_OUTPUTS = (*_COLUMNS, "set", "set_size", "in_distribution")
_SECONDS = 2.0  # maximum duration of a measurement
_TIMES = 20  # maximum number of calls

# Function from pixels at the model's size, uint8 (B, h, w, C), to outputs (B, ...).
Runner = Callable[[np.ndarray], np.ndarray]


def tflite(path: str, threads: int) -> tuple[Runner, int]:
    """Loads a TFLite file; returns a function that runs it, and the file's batch size."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        Interpreter = tf.lite.Interpreter
    interpreter = Interpreter(model_path=path, num_threads=threads)
    interpreter.allocate_tensors()
    inputs, outputs = interpreter.get_input_details()[0], interpreter.get_output_details()
    details = {output["name"]: output for output in outputs}
    if len(outputs) > 1:  # the names are those of the signature, the order is the converter's
        details = interpreter.get_signature_runner().get_output_details()
    lock = threading.Lock()  # an interpreter has one set of tensors

    def run(pixels: np.ndarray) -> np.ndarray:
        full = np.resize(pixels, inputs["shape"])  # the last batch is padded
        with lock:
            interpreter.set_tensor(inputs["index"], full.astype(inputs["dtype"]))
            interpreter.invoke()
            values = {
                name: dequantized(interpreter.get_tensor(output["index"])[: len(pixels)], output)
                for name, output in details.items()
            }
        return joined(values)

    return run, int(inputs["shape"][0])


def dequantized(values: np.ndarray, details: dict[str, Any]) -> np.ndarray:
    """Returns the real numbers of a tensor of a TFLite file."""
    scale, zero = details["quantization"]
    return (values.astype(np.float32) - zero) * scale if scale else values


def joined(outputs: dict[str, np.ndarray], name: str | None = None) -> np.ndarray:
    """Returns one of the outputs, with the numbers of `_COLUMNS` as further columns.

    `name` is by default that of the only output that is not computed from the others.
    """
    main = outputs[name or next(key for key in outputs if key not in _FURTHER_OUTPUTS)]
    columns = [outputs[key].reshape(len(main), -1) for key in _COLUMNS if key in outputs]
    return np.concatenate([main, *columns], axis=1) if columns else main


def onnx(path: str, threads: int) -> tuple[Runner, int]:
    """Loads an ONNX file in ONNX Runtime; returns a function that runs it, and the batch size 1."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    names = [output.name for output in session.get_outputs()]

    def run(pixels: np.ndarray) -> np.ndarray:
        return joined(dict(zip(names, session.run(None, {name: pixels}), strict=True)))

    return run, 1


def openvino(path: str, threads: int) -> tuple[Runner, int]:
    """Loads an OpenVINO model in float32; returns a function that runs it, and the batch size 1."""
    import openvino as ov

    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    model = ov.Core().compile_model(path, "CPU", settings)
    lock = threading.Lock()  # calls share one inference request and its outputs

    def run(pixels: np.ndarray) -> np.ndarray:
        with lock:
            outputs = model(pixels, share_outputs=False)
        return joined({output.any_name: value for output, value in outputs.items()})

    return run, 1


def with_classes(signatures: Any, classes: bytes) -> Callable[[Any], dict[str, Any]]:
    """Returns a function that classifies encoded images by the content of a file `classes.pb`."""
    predict = signatures["classify_with_classes"]

    def run(image_bytes: Any) -> dict[str, Any]:
        return predict(image_bytes=image_bytes, classes=tf.fill(tf.shape(image_bytes), classes))

    return run


def saved_model(path: str, name: str, folder: Path, task: dict[str, Any]) -> dict[str, float]:
    """Runs a SavedModel on all images, saves pixels and outputs, and returns the time per image."""
    names, output = task["names"], task["output"]
    signatures = tf.saved_model.load(path).signatures
    predict, preprocess = signatures[task["signature"]], signatures["preprocess"]
    if name == CLASSES:
        predict = with_classes(signatures, Path(path, EXTRA, CLASSES).read_bytes())
    images = tf.data.TFRecordDataset(str(folder / "images.tfrecord"))
    count, outputs = len(names), []
    pixels: Any = None
    for done, batch in zip(range(0, count, _BATCH), images.batch(_BATCH), strict=True):
        results = predict(image_bytes=batch)
        if not results["ok"].numpy().all():
            bad = int(np.argmin(results["ok"].numpy()))
            message = results["message"][bad].numpy().decode()
            raise RuntimeError(f"{names[done + bad]} was refused: {message}")
        outputs.append(joined({key: value.numpy() for key, value in results.items()}, output))
        batch_pixels = preprocess(image_bytes=batch)["pixels"].numpy()
        if pixels is None:  # on disk: all images of a large dataset do not fit into memory
            shape = (count, *batch_pixels.shape[1:])
            pixels = np.lib.format.open_memmap(folder / "pixels.npy", "w+", np.uint8, shape)
        pixels[done : done + len(batch_pixels)] = batch_pixels
        _progress(done + len(batch_pixels), count)
    pixels.flush()
    np.save(folder / f"{name}.npy", np.concatenate(outputs))
    image = next(iter(images.batch(1)))
    return {"all": _milliseconds(lambda: predict(image_bytes=image)[output].numpy())}


def runtime(
    build: Callable[[str, int], tuple[Runner, int]],
    path: str,
    name: str,
    folder: Path,
    threads: list[int],
) -> dict[str, float]:
    """Runs a file on the saved pixels, saves the outputs, and returns times by thread count."""
    pixels = np.load(folder / "pixels.npy", mmap_mode="r")
    run, batch_size = build(path, max(threads))
    outputs = []
    for index in range(0, len(pixels), batch_size):
        outputs.append(run(pixels[index : index + batch_size]))
        _progress(index + len(outputs[-1]), len(pixels))
    np.save(folder / f"{name}.npy", np.concatenate(outputs))
    first = pixels[:batch_size]
    runners = {str(n): build(path, n)[0] for n in threads}
    return {n: _milliseconds(partial(run, first)) / batch_size for n, run in runners.items()}


def _milliseconds(run: Callable[[], Any]) -> float:
    """Returns the median duration of a call in milliseconds, after one untimed warm-up call."""
    run()
    times: list[float] = []
    while len(times) < _TIMES and sum(times) < _SECONDS:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def _progress(done: int, total: int) -> None:
    print(f"{done}/{total}", flush=True)


def main(folder: Path) -> None:
    """Runs all artifacts listed in `task.json`."""
    task = json.loads((folder / "task.json").read_text())
    times = {}
    for name, (kind, path) in task["artifacts"].items():
        print(f"= {name}", flush=True)
        if kind == "saved_model":
            times[name] = saved_model(path, name, folder, task)
        else:
            build = {"tflite": tflite, "onnx": onnx, "openvino": openvino}[kind]
            times[name] = runtime(build, path, name, folder, task["threads"])
    (folder / "times.json").write_text(json.dumps(times))


def _end_with_parent() -> None:
    """Ends this process as soon as the parent process ends and thereby closes the pipe."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        main(Path(sys.argv[1]))
    except Exception as error:
        print(f"! {' '.join(str(error).split())} ({type(error).__name__})", flush=True)
        sys.exit(1)
