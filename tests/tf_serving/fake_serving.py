"""A stand-in for TensorFlow Serving: its gRPC service and its REST address on a SavedModel.

The requests and answers are those of the generated `PredictionService` and of the documented REST
address; what computes is `tf.saved_model.load`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format

CODES = {"INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "INTERNAL": 500}  # of HTTP


class RefusedError(Exception):
    """What a request gets: a key of `CODES`, and a text."""


class FakeServing:
    """A server of one SavedModel, called `vit`, version 1, with the label `stable`."""

    def __init__(self, path: Path) -> None:
        self.load(path)
        self.grpc_address = self.rest_address = ""
        self.unavailable = 0  # as many requests are refused, like a server that is starting
        self.delay: threading.Event | None = None  # requests wait for it
        self.thinks = 0.0  # seconds before it refuses
        self.errors: list[str] = []  # keys of `CODES`, one for each request to come
        self.requests: list[dict[str, Any]] = []
        self.lookups: list[dict[str, Any]] = []  # of the model's metadata

    def load(self, path: Path) -> None:
        """Puts another version in place."""
        self._model = tf.saved_model.load(str(path))

    def signatures(self) -> Any:
        """What the server knows of its signatures, without the outputs."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        found = get_model_metadata_pb2.SignatureDefMap()
        found.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "NoOp"
        for name, function in self._model.signatures.items():
            for key, spec in function.structured_input_signature[1].items():
                info = found.signature_def[name].inputs[key]
                info.dtype = spec.dtype.as_datatype_enum
                info.tensor_shape.CopyFrom(spec.shape.as_proto())
        return found

    def predict(self, signature: str, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        if self.delay is not None:
            self.delay.wait(20)
        if self.errors:
            raise RefusedError(self.errors.pop(0), "shapes differ")
        function = self._model.signatures[signature or "serving_default"]
        specs = function.structured_input_signature[1]
        try:
            typed = {key: tf.constant(value, specs[key].dtype) for key, value in inputs.items()}
            return {key: value.numpy() for key, value in function(**typed).items()}
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise RefusedError("INVALID_ARGUMENT", str(error)) from error

    def refuses(self, request: dict[str, Any]) -> bool:
        lookup = request.get("method") == "GetModelMetadata"
        (self.lookups if lookup else self.requests).append(request)
        self.unavailable -= 1
        if self.unavailable >= 0:
            time.sleep(self.thinks)
        return self.unavailable >= 0


@contextlib.contextmanager
def serving(path: Path, credentials: Any = None) -> Iterator[FakeServing]:
    with serve(FakeServing(path), credentials) as fake:
        yield fake


@contextlib.contextmanager
def serve(fake: FakeServing, credentials: Any = None) -> Iterator[FakeServing]:
    with _grpc(fake, credentials), _rest(fake):
        yield fake


@contextlib.contextmanager
def _grpc(fake: FakeServing, credentials: Any) -> Iterator[None]:
    import grpc
    from tensorflow_serving.apis import (
        get_model_metadata_pb2,
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def GetModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
            self.check(request, context, "GetModelMetadata")
            answer = get_model_metadata_pb2.GetModelMetadataResponse()
            answer.metadata["signature_def"].Pack(fake.signatures())
            return answer

        def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802
            self.check(request, context, "Predict")
            inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
            answer = predict_pb2.PredictResponse()
            try:
                found = fake.predict(request.model_spec.signature_name, inputs)
            except RefusedError as error:
                context.abort(grpc.StatusCode[error.args[0]], error.args[1])
            for key, value in found.items():
                answer.outputs[key].CopyFrom(tf.make_tensor_proto(value))
            return answer

        def check(self, request: Any, context: Any, method: str) -> None:
            spec = request.model_spec
            asked = {
                "method": method,
                "name": spec.name,
                "version": spec.version.value or spec.version_label,
                "metadata": dict(context.invocation_metadata()),
            }
            if fake.refuses(asked):
                context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
            if spec.name != "vit":
                context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found: {spec.name}")

    unlimited = [("grpc.max_receive_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(48), options=unlimited)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    if credentials:
        port = server.add_secure_port("localhost:0", credentials)
    else:
        port = server.add_insecure_port("localhost:0")
    server.start()
    fake.grpc_address = f"localhost:{port}"
    yield
    server.stop(0).wait()


@contextlib.contextmanager
def _rest(fake: FakeServing) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.knows({"method": "GetModelMetadata"}):
                found = json_format.MessageToDict(
                    fake.signatures(),
                    preserving_proto_field_name=True,
                    always_print_fields_with_no_presence=True,
                )
                self.answer(200, {"metadata": {"signature_def": found}})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.knows(request):
                self.predict(request)

        def knows(self, request: Any) -> bool:
            if fake.refuses({"path": self.path, "headers": dict(self.headers), **request}):
                self.answer(503, {"error": "starting"})
            elif not re.match("/v1/models/vit[:/]", self.path):
                self.answer(404, {"error": f"Servable not found: {self.path}"})
            else:
                return True
            return False

        def predict(self, request: Any) -> None:
            rows = "instances" in request
            inputs = request["instances" if rows else "inputs"]
            named = {"image_bytes": inputs} if not isinstance(inputs, dict) else inputs
            try:
                found = fake.predict(
                    request.get("signature_name", ""),
                    {key: _decoded(value) for key, value in named.items()},
                )
            except RefusedError as error:
                return self.answer(CODES[error.args[0]], {"error": error.args[1]})
            texts = {key: _plain(key, value) for key, value in found.items()}
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
    fake.rest_address = f"http://localhost:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield
    server.shutdown()
    server.server_close()


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return [_decoded(item) for item in value] if isinstance(value, list) else value


def _plain(name: str, value: np.ndarray) -> Any:
    if value.dtype == object and name.endswith("_bytes"):
        return [{"b64": base64.b64encode(item).decode()} for item in value]
    if value.dtype == object:
        flat = [text.decode() for text in value.ravel()]
        return np.array(flat, object).reshape(value.shape).tolist()
    return value.tolist()
