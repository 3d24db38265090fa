"""gRPC and REST connections to TensorFlow Serving, without retries, and their exceptions."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol
from urllib.parse import quote

import numpy as np

from keras_vit import arguments
from keras_vit.escapes import terminal
from keras_vit.tf_serving.rest import MAX_RESPONSE, request_json
from keras_vit.tf_serving.served_inputs import Signatures

# Codes with which TensorFlow Serving fails a whole batch if one of its requests is malformed. REST
# returns 400 for the first two (ToHTTPStatusCode in TensorFlow Serving's http_server.cc).
_BATCH_CODES = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "INTERNAL"}
_BATCH_STATUSES = {400, 500}
_UNAVAILABLE = 503  # HTTP status
_MOST_NAMES = 1000


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


class Transport(Protocol):
    """Interface of a connection to a server; its methods raise `ServingError`."""

    def signatures(self, timeout: float) -> Signatures: ...

    def predict(
        self, signature: str, inputs: Mapping[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]: ...

    def close(self) -> None: ...


class Grpc:
    """gRPC connection to the `PredictionService` of TensorFlow Serving."""

    def __init__(
        self,
        address: str,
        name: str,
        version: int | str | None,
        tls: bool,
        certificate: Path | None,
        headers: Mapping[str, str] | None,
    ) -> None:
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
            ("grpc.max_receive_message_length", MAX_RESPONSE),
            # A small compressed message can be a large one; TensorFlow Serving compresses none.
            ("grpc.per_message_decompression", 0),
            ("grpc.initial_reconnect_backoff_ms", 200),
        ]
        if tls or certificate:
            trusted = certificate.read_bytes() if certificate else None
            credentials = grpc.ssl_channel_credentials(trusted)
            self._channel = grpc.secure_channel(address, credentials, options)
        else:
            self._channel = grpc.insecure_channel(address, options)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._address, self._name, self._version = address, name, version
        self._metadata = tuple((k.lower(), v) for k, v in (headers or {}).items())
        binary = [key for key, _ in self._metadata if key.endswith("-bin")]
        if binary:
            raise ValueError(
                "`headers` must have no names that end in -bin, which are bytes in gRPC. "
                f"Received: {binary[0]}"
            )

    def signatures(self, timeout: float) -> Signatures:
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._address_model(request.model_spec)
        try:
            answer = self._stub.GetModelMetadata(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            self._fail(error, batched=False)
        found = get_model_metadata_pb2.SignatureDefMap()
        with _invalid(self._address):
            answer.metadata["signature_def"].Unpack(found)
            _check_number(len(found.signature_def))
            _check_number(sum(len(signature.inputs) for signature in found.signature_def.values()))
            return {
                name: {
                    key: tf.TensorSpec(tf.TensorShape(info.tensor_shape), info.dtype)
                    for key, info in signature.inputs.items()
                }
                for name, signature in found.signature_def.items()
            }

    def predict(
        self, signature: str, inputs: Mapping[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]:
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        self._address_model(request.model_spec)
        request.model_spec.signature_name = signature
        for key, value in inputs.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        try:
            answer = self._stub.Predict(request, timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            self._fail(error, batched=True)
        with _invalid(self._address):
            _check_number(len(answer.outputs))
            # `make_ndarray` repeats the last value up to the declared shape.
            shapes = {key: tf.TensorShape(o.tensor_shape) for key, o in answer.outputs.items()}
            if sum(shape.num_elements() for shape in shapes.values()) > answer.ByteSize():
                raise ValueError(f"shapes larger than the content: {shapes}")
            return _strings({key: _from_proto(o) for key, o in answer.outputs.items()})

    def close(self) -> None:
        self._channel.close()

    def _address_model(self, spec: Any) -> None:
        spec.name = self._name
        if isinstance(self._version, int):
            spec.version.value = self._version
        elif self._version:
            spec.version_label = self._version

    def _fail(self, error: Any, batched: bool) -> NoReturn:
        code = error.code().name
        kind = ServingError
        if code == "UNAVAILABLE":
            kind = UnavailableError
        elif batched and code in _BATCH_CODES:
            kind = BatchError
        raise kind(
            f"{self._address}, model {self._name!r}: {code}: {terminal(error.details())}"
        ) from error


class Rest:
    """Connection to the REST API of TensorFlow Serving."""

    def __init__(
        self,
        address: str,
        name: str,
        version: int | str | None,
        certificate: Path | None,
        headers: Mapping[str, str] | None,
    ) -> None:
        import requests

        part = ""
        if version is not None:
            kind = "versions" if isinstance(version, int) else "labels"
            part = f"/{kind}/{quote(str(version), safe='')}"
        self._address = f"{address.rstrip('/')}/v1/models/{quote(name, safe='')}{part}"
        self._session = requests.Session()
        self._session.headers.update(headers or {})
        self._trusted = str(certificate) if certificate else None  # None: the default of requests

    def signatures(self, timeout: float) -> Signatures:
        import tensorflow as tf
        from tensorflow.core.framework import types_pb2

        def spec(info: Any) -> tf.TensorSpec:
            shape = info["tensor_shape"]
            sizes = [int(dimension["size"]) for dimension in shape.get("dim", [])]
            known = [None if size < 0 else size for size in sizes]
            dtype = types_pb2.DataType.Value(info["dtype"])
            return tf.TensorSpec(None if shape.get("unknown_rank") else known, dtype)

        content = self._ask("GET", "/metadata", "metadata", timeout)
        with _invalid(f"{self._address}/metadata"):
            _check_number(len(content["signature_def"]["signature_def"]))
            return {
                name: {key: spec(info) for key, info in signature["inputs"].items()}
                for name, signature in content["signature_def"]["signature_def"].items()
            }

    def predict(
        self, signature: str, inputs: Mapping[str, np.ndarray], timeout: float
    ) -> dict[str, np.ndarray]:
        request = {
            "signature_name": signature,
            "inputs": {key: _as_json(value) for key, value in inputs.items()},
        }
        outputs = self._ask("POST", ":predict", "outputs", timeout, request)
        if not isinstance(outputs, dict):  # the server returns a single output without its name
            outputs = {"outputs": outputs}
        with _invalid(self._address):
            return _strings({key: _from_json(value) for key, value in outputs.items()})

    def close(self) -> None:
        self._session.close()

    def _ask(self, method: str, path: str, key: str, timeout: float, request: Any = None) -> Any:
        """Sends an HTTP request and returns one field of the JSON response."""
        import requests

        address = self._address + path
        try:
            # Without urllib3's `Retry`, which applies the whole timeout to each attempt.
            code, content = request_json(
                *(self._session, method, address, timeout), json=request, verify=self._trusted
            )
        except (requests.Timeout, requests.exceptions.SSLError) as error:
            raise ServingError(f"{address}: {error}") from error
        except requests.ConnectionError as error:
            raise UnavailableError(f"{address}: {error}") from error
        except (requests.RequestException, ValueError) as error:
            raise ServingError(f"{address}: {error}") from error
        kind = ServingError
        if code == _UNAVAILABLE:
            kind = UnavailableError
        elif method == "POST" and code in _BATCH_STATUSES:
            kind = BatchError
        if code != 200 or not isinstance(content, dict) or key not in content:
            said = content.get("error", content) if isinstance(content, dict) else content
            raise kind(f"{address}: {code}: {terminal(str(said)[:500])}")
        return content[key]


@contextlib.contextmanager
def _invalid(address: str) -> Iterator[None]:
    """Raises `ServingError` for content that is not as expected."""
    from google.protobuf.message import DecodeError

    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        DecodeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise ServingError(f"{address}: invalid response: {error}") from error


def _check_number(number: int) -> None:
    """Raises `ValueError` for more signatures, inputs or outputs than a model has."""
    if number > _MOST_NAMES:
        raise ValueError(f"{number} signatures, inputs or outputs instead of at most {_MOST_NAMES}")


def _as_json(value: np.ndarray) -> Any:
    if value.dtype != object:
        return value.tolist()
    return [{"b64": base64.b64encode(item).decode()} for item in value]


def _from_json(value: Any) -> np.ndarray:
    array = np.asarray(value, object)
    kinds = set(map(type, array.flat))
    if kinds == {str}:
        return array
    for dtype, allowed in ((bool, {bool}), (np.int64, {int}), (np.float64, {int, float})):
        if kinds <= allowed:
            return array.astype(dtype)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueError(f"an output of {names} instead of numbers")


def _from_proto(value: Any) -> np.ndarray:
    import tensorflow as tf

    shape, strings = tf.TensorShape(value.tensor_shape), len(value.string_val)
    if strings not in (0, shape.num_elements()):
        raise ValueError(f"{strings} strings of shape {shape}")
    array = tf.make_ndarray(value)
    if array.dtype != object:
        return array
    return np.array([item.decode() for item in array.flat], object).reshape(array.shape)


def _strings(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Converts arrays of `str` objects to arrays of strings, each of the length of the longest."""
    texts = {key: array for key, array in arrays.items() if array.dtype == object}
    size = sum(array.size * max(map(len, array.flat), default=0) for array in texts.values())
    if size > MAX_RESPONSE:
        raise ValueError("strings of very different length")
    return arrays | {key: array.astype(str) for key, array in texts.items()}
