"""A stand-in for TensorFlow Serving: its gRPC service and its REST address on a SavedModel.

The requests and answers are those of the generated `PredictionService` and of the documented REST
address; what computes is `tf.saved_model.load`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


class Double:
    """A server of one SavedModel, called `vit`, version 1, with the label `stable`."""

    def __init__(self, path: Path) -> None:
        self._model = tf.saved_model.load(str(path))
        self.grpc_address = self.rest_address = ""
        self.unavailable = 0  # as many requests are refused, like a server that is starting
        self.delay: threading.Event | None = None  # requests wait for it
        self.thinks = 0.0  # seconds before it refuses
        self.requests: list[dict[str, Any]] = []

    def predict(self, signature: str, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        if self.delay is not None:
            self.delay.wait(20)
        function = self._model.signatures[signature or "serving_default"]
        specs = function.structured_input_signature[1]
        typed = {key: tf.constant(value, specs[key].dtype) for key, value in inputs.items()}
        return {key: value.numpy() for key, value in function(**typed).items()}

    def refuses(self, request: dict[str, Any]) -> bool:
        self.requests.append(request)
        self.unavailable -= 1
        if self.unavailable >= 0:
            time.sleep(self.thinks)
        return self.unavailable >= 0


@contextlib.contextmanager
def serving(path: Path, credentials: Any = None) -> Iterator[Double]:
    double = Double(path)
    with _grpc(double, credentials), _rest(double):
        yield double


@contextlib.contextmanager
def _grpc(double: Double, credentials: Any) -> Iterator[None]:
    import grpc
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802
            spec = request.model_spec
            asked = {
                "name": spec.name,
                "version": spec.version.value or spec.version_label,
                "metadata": dict(context.invocation_metadata()),
            }
            if double.refuses(asked):
                context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
            if spec.name != "vit":
                context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found: {spec.name}")
            inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
            answer = predict_pb2.PredictResponse()
            for key, value in double.predict(spec.signature_name, inputs).items():
                answer.outputs[key].CopyFrom(tf.make_tensor_proto(value))
            return answer

    unlimited = [("grpc.max_receive_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(8), options=unlimited)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    if credentials:
        port = server.add_secure_port("localhost:0", credentials)
    else:
        port = server.add_insecure_port("localhost:0")
    server.start()
    double.grpc_address = f"localhost:{port}"
    yield
    server.stop(0).wait()


@contextlib.contextmanager
def _rest(double: Double) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = {"path": self.path, "headers": dict(self.headers), **request}
            if double.refuses(asked):
                return self.answer(503, {"error": "starting"})
            if not self.path.startswith("/v1/models/vit"):
                return self.answer(404, {"error": f"Servable not found: {self.path}"})
            rows = "instances" in request
            inputs = request["instances" if rows else "inputs"]
            named = {"image_bytes": inputs} if not isinstance(inputs, dict) else inputs
            found = double.predict(
                request.get("signature_name", ""),
                {key: _decoded(value) for key, value in named.items()},
            )
            texts = {key: _plain(value) for key, value in found.items()}
            if not rows:  # an output that is the only one loses its name
                outputs = texts if len(texts) > 1 else next(iter(texts.values()))
                return self.answer(200, {"outputs": outputs})
            count = len(next(iter(texts.values())))
            predictions = [{key: texts[key][i] for key in texts} for i in range(count)]
            return self.answer(200, {"predictions": predictions})

        def answer(self, code: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    double.rest_address = f"http://localhost:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield
    server.shutdown()
    server.server_close()


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return [_decoded(item) for item in value] if isinstance(value, list) else value


def _plain(value: np.ndarray) -> Any:
    if value.dtype == object:
        flat = [text.decode() for text in value.ravel()]
        return np.array(flat, object).reshape(value.shape).tolist()
    return value.tolist()
