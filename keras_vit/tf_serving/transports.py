"""gRPC and REST connections to TensorFlow Serving, without retries, and their exceptions."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import requests
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import meta_graph_pb2

from keras_vit import arguments
from keras_vit.escapes import terminal
from keras_vit.tf_serving.rest import request_json
from keras_vit.tf_serving.served_inputs import Signatures

# Codes with which TensorFlow Serving fails a whole batch if one of its requests is malformed. REST
# returns 400 for the first two (ToHTTPStatusCode in TensorFlow Serving's http_server.cc).
_BATCH_CODES = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "INTERNAL", "400", "500"}
_UNAVAILABLE_CODES = {"UNAVAILABLE", "503"}


class ServingError(RuntimeError):
    """Raised if a server does not respond, or its response is invalid.

    Args:
        message: Address of the server, and its message.

    Examples:
        >>> str(ServingError("localhost:8500: UNAVAILABLE"))
        'localhost:8500: UNAVAILABLE'
    """


class UnavailableError(ServingError):
    """Raised if the server is unreachable or still starting, or its request queue is full."""

    attempts = 5
    remark = ""


class BatchError(ServingError):
    """Raised if a request, or another request in the same batch, does not fit the model."""

    attempts = 4
    remark = "; this request fits the signature, another one in its batch may not"


@dataclasses.dataclass(repr=False)  # headers can contain a password
class _Connection:
    """Connection to one model of a server; its methods raise `ServingError`.

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
    certificate: Path | None = None
    headers: Mapping[str, str] | None = None


@dataclasses.dataclass(repr=False)
class Grpc(_Connection):
    """gRPC connection to the `PredictionService` of TensorFlow Serving."""

    def __post_init__(self) -> None:
        try:
            import grpc
            from tensorflow_serving.apis import prediction_service_pb2_grpc
        except ImportError as error:
            raise ImportError(
                "gRPC needs tensorflow-serving-api, but REST (http://HOST:PORT) does not; "
                + arguments.install_hint("serving")
            ) from error
        # No `retryPolicy`: it has one number of attempts for all codes, and after the deadline,
        # DEADLINE_EXCEEDED hides the server's message.
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 200),
        ]
        self._metadata = [(key.lower(), value) for key, value in (self.headers or {}).items()]
        binary = [key for key, _ in self._metadata if key.endswith("-bin")]
        if binary:
            raise ValueError(
                "`headers` must have no names that end in -bin, which are bytes in gRPC. "
                f"Received: {binary[0]}"
            )
        if self.tls or self.certificate:
            trusted = self.certificate.read_bytes() if self.certificate else None
            credentials = grpc.ssl_channel_credentials(trusted)
            self._channel = grpc.secure_channel(self.address, credentials, options)
        else:
            self._channel = grpc.insecure_channel(self.address, options)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def signatures(self, timeout: float) -> Signatures:
        """Returns the inputs of each signature."""
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        answer = self._ask("GetModelMetadata", request, timeout)
        found = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)
        return _inputs(found.signature_def)

    def predict(
        self, signature: str, inputs: Mapping[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature; strings as an array of `str`."""
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.signature_name = signature
        for key, value in inputs.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        answer = self._ask("Predict", request, timeout)
        return {key: _from_proto(value) for key, value in answer.outputs.items()}

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _ask(self, method: str, request: Any, timeout: float) -> Any:
        """Sends a request for the model and returns the response."""
        import grpc

        request.model_spec.name = self.name
        if isinstance(self.version, int):
            request.model_spec.version.value = self.version
        elif self.version:
            request.model_spec.version_label = self.version
        try:
            return getattr(self._stub, method)(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            code = error.code().name
            message = f"{self.address}, model {self.name!r}: {code}: {terminal(error.details())}"
            raise _error(message, code, batched=method == "Predict") from error


@dataclasses.dataclass(repr=False)
class Rest(_Connection):
    """Connection to the REST API of TensorFlow Serving."""

    def __post_init__(self) -> None:
        part = ""
        if self.version is not None:
            kind = "versions" if isinstance(self.version, int) else "labels"
            part = f"/{kind}/{quote(str(self.version), safe='')}"
        self._url = f"{self.address.rstrip('/')}/v1/models/{quote(self.name, safe='')}{part}"
        self._session = requests.Session()
        self._session.headers.update(self.headers or {})
        # None: the default of requests
        self._trusted = str(self.certificate) if self.certificate else None

    def signatures(self, timeout: float) -> Signatures:
        """Returns the inputs of each signature."""
        content = self.ask("GET", "/metadata", "metadata", timeout)
        graph = json_format.ParseDict(
            content["signature_def"], meta_graph_pb2.MetaGraphDef(), ignore_unknown_fields=True
        )
        return _inputs(graph.signature_def)

    def predict(
        self, signature: str, inputs: Mapping[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature; strings as an array of `str`."""
        request = {
            "signature_name": signature,
            "inputs": {key: _as_json(value) for key, value in inputs.items()},
        }
        outputs = self.ask("POST", ":predict", "outputs", timeout, request)
        if not isinstance(outputs, dict):  # the server returns a single output without its name
            outputs = {"outputs": outputs}
        return {key: np.asarray(value) for key, value in outputs.items()}

    def close(self) -> None:
        """Closes the connection."""
        self._session.close()

    def ask(self, method: str, path: str, key: str, timeout: float, request: Any = None) -> Any:
        """Sends an HTTP request and returns one field of the JSON response."""
        url = self._url + path
        try:
            # Without urllib3's `Retry`, which applies the whole timeout to each attempt.
            status, content = request_json(
                *(self._session, method, url, timeout), json=request, verify=self._trusted
            )
        except (requests.RequestException, ValueError) as error:
            lasting = isinstance(error, (requests.Timeout, requests.exceptions.SSLError))
            refused = isinstance(error, requests.ConnectionError) and not lasting
            raise (UnavailableError if refused else ServingError)(f"{url}: {error}") from error
        if status != 200 or not isinstance(content, dict) or key not in content:
            said = content.get("error", content) if isinstance(content, dict) else content
            message = f"{url}: {status}: {terminal(str(said)[:500])}"
            raise _error(message, str(status), batched=method == "POST")
        return content[key]


#: Interface of a connection: `signatures`, `predict` and `close`.
Transport = Grpc | Rest


def _error(message: str, code: str, batched: bool) -> ServingError:
    """Creates the exception for a code of gRPC or HTTP."""
    if code in _UNAVAILABLE_CODES:
        return UnavailableError(message)
    return BatchError(message) if batched and code in _BATCH_CODES else ServingError(message)


def _inputs(signatures: Mapping[str, meta_graph_pb2.SignatureDef]) -> Signatures:
    return {
        name: {
            key: tf.TensorSpec(tf.TensorShape(info.tensor_shape), info.dtype)
            for key, info in signature.inputs.items()
        }
        for name, signature in signatures.items()
    }


def _as_json(value: np.ndarray) -> Any:
    if value.dtype != object:
        return value.tolist()
    return [{"b64": base64.b64encode(item).decode()} for item in value]


def _from_proto(value: Any) -> np.ndarray:
    array = tf.make_ndarray(value)
    return np.vectorize(bytes.decode, otypes=[str])(array) if array.dtype == object else array
