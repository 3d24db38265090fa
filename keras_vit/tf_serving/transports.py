"""gRPC and REST connections to TensorFlow Serving, without retries, and their exceptions."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import requests
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import meta_graph_pb2

from keras_vit import arguments
from keras_vit.tf_serving.served_inputs import Signatures

# Temporary errors: codes of gRPC and HTTP, and exceptions of requests.
_UNAVAILABLE = {"UNAVAILABLE", "503", "ConnectionError"}
# TensorFlow Serving fails a whole batch with one of these if one of its requests is malformed. REST
# returns 400 for the first two (ToHTTPStatusCode in TensorFlow Serving's http_server.cc).
_BATCH = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "INTERNAL", "400", "500"} | _UNAVAILABLE
# Ending of the names of outputs that are not text; TensorFlow Serving encodes them for REST.
_BYTES = "_bytes"


class ServingError(RuntimeError):
    """Raised if a server does not respond, or its response is invalid.

    Args:
        message: Address of the server, and its message.

    Examples:
        >>> str(ServingError("localhost:8500: UNAVAILABLE"))
        'localhost:8500: UNAVAILABLE'
    """


class TemporaryError(ServingError):
    """Raised if the server is unavailable, or a request in the batch does not fit the model."""


@dataclasses.dataclass(repr=False)  # headers can contain a password
class Transport:
    """Connection to one model of a server.

    Args:
        address: `HOST:PORT` for gRPC; `http://HOST:PORT` or `https://HOST:PORT` for REST.
        name: Name of the model on the server.
        version: A version number or label; by default the newest version.
        tls: Whether gRPC is encrypted.
        certificate: File with the certificates to trust.
        headers: Headers of every request.
    """

    address: str
    name: str
    version: int | str | None = None
    tls: bool = False
    certificate: str | Path | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def fail(self, code: str, message: object, temporary: Set[str]) -> ServingError:
        """Returns the exception for a code of gRPC or HTTP; `temporary` codes can be retried."""
        kind = TemporaryError if code in temporary else ServingError
        return kind(f"{self.address}, model {self.name!r}: {code}: {message}")


@dataclasses.dataclass(repr=False)
class Grpc(Transport):
    """gRPC connection to the `PredictionService` of TensorFlow Serving."""

    def __post_init__(self) -> None:
        reason = "gRPC needs tensorflow-serving-api, but REST (http://HOST:PORT) does not"
        arguments.require_package("tensorflow_serving", "serving", reason)
        import grpc
        from tensorflow_serving.apis import model_pb2, prediction_service_pb2_grpc

        # No `retryPolicy`: after the deadline, DEADLINE_EXCEEDED hides the server's message.
        options = [("grpc.max_receive_message_length", -1)]
        if self.tls or self.certificate:
            certificates = Path(self.certificate).read_bytes() if self.certificate else None
            credentials = grpc.ssl_channel_credentials(certificates)
            self._channel = grpc.secure_channel(self.address, credentials, options)
        else:
            self._channel = grpc.insecure_channel(self.address, options)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._metadata = [(key.lower(), value) for key, value in self.headers.items()]
        self._model = model_pb2.ModelSpec(name=self.name)
        if isinstance(self.version, int):
            self._model.version.value = self.version
        elif self.version:
            self._model.version_label = self.version

    def signatures(self, timeout: float) -> Signatures:
        """Returns the inputs of each signature."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        response = self._call(self._stub.GetModelMetadata, request, timeout, _UNAVAILABLE)
        definitions = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(definitions)
        return definitions.signature_def

    def predict(
        self, signature: str, inputs: Mapping[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature: text as `str`, and `bytes` if the name ends so."""
        from tensorflow_serving.apis import predict_pb2

        tensors = {key: tf.make_tensor_proto(value) for key, value in inputs.items()}
        request = predict_pb2.PredictRequest(inputs=tensors)
        request.model_spec.signature_name = signature
        response = self._call(self._stub.Predict, request, timeout, _BATCH)
        return {key: _from_proto(key, value) for key, value in response.outputs.items()}

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _call(self, method: Any, request: Any, timeout: float, temporary: Set[str]) -> Any:
        """Sends a request for the model and returns the response."""
        import grpc

        request.model_spec.MergeFrom(self._model)
        try:
            return method(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self.fail(error.code().name, error.details(), temporary) from error


@dataclasses.dataclass(repr=False)
class Rest(Transport):
    """Connection to the REST API of TensorFlow Serving."""

    def __post_init__(self) -> None:
        self._url = f"{self.address.rstrip('/')}/v1/models/{quote(self.name, safe='')}"
        if self.version is not None:
            kind = "versions" if isinstance(self.version, int) else "labels"
            self._url += f"/{kind}/{quote(str(self.version), safe='')}"
        self._session = requests.Session()
        self._session.headers.update(self.headers)
        self._session.auth = lambda request: request  # .netrc would replace a header
        self._graph = meta_graph_pb2.MetaGraphDef()  # without signatures until they are requested

    def signatures(self, timeout: float) -> Signatures:
        """Returns the inputs of each signature."""
        self._graph = self.request("/metadata", timeout, _graph_from_json)
        return self._graph.signature_def

    def predict(
        self, signature: str, inputs: Mapping[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature: text as `str`, and `bytes` if the name ends so."""
        tensors = {key: _as_json(value) for key, value in inputs.items()}
        body = {"signature_name": signature, "inputs": tensors}
        names = self._graph.signature_def[signature].outputs
        outputs = self.request(":predict", timeout, lambda content: content["outputs"], body)
        if not isinstance(outputs, dict):  # the server returns a single output without its name
            outputs = {next(iter(names), "outputs"): outputs}
        return {key: _from_json(key, value) for key, value in outputs.items()}

    def close(self) -> None:
        """Closes the connection."""
        self._session.close()

    def request(self, path: str, timeout: float, read: Callable[..., Any], body: Any = None) -> Any:
        """Sends an HTTP request, a POST if it has a body; returns what `read` finds in the JSON."""
        try:
            response = self._session.request(
                "POST" if body else "GET",
                self._url + path,
                json=body,
                timeout=max(timeout, 1e-3),  # 0 is rejected
                allow_redirects=False,  # headers can contain a password
                verify=str(self.certificate) if self.certificate else None,
            )
            if response.status_code == 200:
                return read(response.json())
        except requests.RequestException as error:
            raise self.fail(type(error).__name__, error, _UNAVAILABLE) from error
        except (KeyError, TypeError, json_format.ParseError) as error:
            message = f"the server must be TensorFlow Serving. Received: {response.text[:500]}"
            raise self.fail("200", message, set()) from error
        message = response.headers.get("Location") or response.text[:500] or response.reason
        raise self.fail(str(response.status_code), message, _BATCH if body else _UNAVAILABLE)


def _graph_from_json(content: Any) -> Any:
    definitions, graph = content["metadata"]["signature_def"], meta_graph_pb2.MetaGraphDef()
    return json_format.ParseDict(definitions, graph, ignore_unknown_fields=True)


def _as_json(value: np.ndarray) -> Any:
    if value.dtype != object:
        return value.tolist()
    return [{"b64": base64.b64encode(item).decode()} for item in value]


def _from_json(name: str, value: Any) -> np.ndarray:
    if name.endswith(_BYTES):
        return np.array([base64.b64decode(item["b64"]) for item in value], object)
    return np.asarray(value)


def _from_proto(name: str, value: Any) -> np.ndarray:
    array = tf.make_ndarray(value)
    if array.dtype != object or name.endswith(_BYTES):
        return array
    return np.vectorize(bytes.decode, otypes=[str])(array)
