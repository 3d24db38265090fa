"""Asking a TensorFlow Serving that has an exported model, over gRPC or REST."""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import quote

import numpy as np

from keras_vit import checks
from keras_vit.export.prediction import Prediction

ATTEMPTS = 5
_FIRST_WAIT = 0.2  # seconds before the second attempt; doubled before each further one
_UNAVAILABLE = 503  # of HTTP
_LARGEST_RETRIED = 1 << 30  # bytes of a request that gRPC keeps to send it again


class ServingError(RuntimeError):
    """A server did not answer, or not as an exported model does.

    Args:
        message: Which server, and what it said.

    Example:
        >>> str(ServingError("localhost:8500: UNAVAILABLE"))
        'localhost:8500: UNAVAILABLE'
    """


class Client:
    """A model on a server, asked as one that is loaded here.

    A request that finds the server unavailable is sent again, up to five times in all, after about
    0.2, 0.4, ... seconds, but not after the deadline; any other error is raised at once.

    Args:
        address: `HOST:PORT` for gRPC; `http://HOST:PORT` or `https://HOST:PORT` for REST.
        name: What the model is called there.
        version: A version number, or a label such as `"canary"`; by default the newest version.
        tls: Whether gRPC is encrypted.
        certificate: File with the certificates to trust, in PEM format; by default those that gRPC
            and requests bring.
        headers: Sent with every request, such as an authorization.
        timeout: Seconds for an answer, all attempts together.

    Raises:
        ImportError: For gRPC, if tensorflow-serving-api is not installed.
        ValueError: If the address is none, `tls` or `certificate` contradicts it or is no file, or
            `timeout` is not positive.

    Example:
        >>> client = Client("http://localhost:8501", "flowers", version="canary")
        >>> client.address
        'http://localhost:8501'
        >>> client.close()
    """

    def __init__(
        self,
        address: str,
        name: str = "vit",
        *,
        version: int | str | None = None,
        tls: bool = False,
        certificate: str | Path | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.address, self.name = address, name
        checks.positive("timeout", timeout)
        rest = address.startswith(("http://", "https://"))
        if not rest and ("//" in address or not address.rpartition(":")[2].isdecimal()):
            raise ValueError(
                "`address` must be HOST:PORT (gRPC), or start with http:// or https:// (REST). "
                f"Received: address={address!r}"
            )
        if (tls or certificate) and address.startswith("http://"):
            raise ValueError(
                "`tls` is for gRPC; over REST `address` must start with https://. "
                f"Received: tls={tls!r}, certificate={certificate!r}, address={address!r}"
            )
        trusted = Path(certificate) if certificate else None
        if trusted and not trusted.is_file():
            raise ValueError(
                "`certificate` must be a file with certificates in PEM format. "
                f"Received: certificate={str(trusted)!r}, no such file"
            )
        if rest:
            self._transport: _Transport = _Rest(address, name, version, trusted, headers, timeout)
        else:
            self._transport = _Grpc(address, name, version, tls, trusted, headers, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def predict(self, images: Sequence[bytes], *, batch_size: int = 32) -> list[Prediction]:
        """Classifies encoded images.

        Args:
            images: Encoded JPEG, PNG, GIF, BMP or WebP images; one or many.
            batch_size: Images in a request, not more than the server's largest batch.

        Returns:
            One answer per image; one that cannot be read has a `message`.

        Raises:
            ServingError: If the server does not answer as an exported model does.
            ValueError: If there is no image.
        """
        if not images:
            raise ValueError("`images` must hold at least one encoded image. Received: images=[]")
        checks.positive_int("batch_size", batch_size)
        found: list[Prediction] = []
        for start in range(0, len(images), batch_size):
            answer = self.call("serving_default", image_bytes=images[start : start + batch_size])
            found += _predictions(answer, self.address)
        return found

    def call(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Calls any signature, see docs/serving.md.

        Args:
            signature: Its name.
            **inputs: Its inputs: bytes in a list, or arrays.

        Returns:
            Its outputs; strings are an array of `str`.

        Raises:
            ServingError: If the server does not answer.
        """
        return self._transport.call(signature, inputs)


class _Transport(Protocol):
    def call(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]: ...

    def close(self) -> None: ...


class _Grpc:
    def __init__(
        self,
        address: str,
        name: str,
        version: int | str | None,
        tls: bool,
        certificate: Path | None,
        headers: Mapping[str, str] | None,
        timeout: float,
    ) -> None:
        try:
            import grpc
            from tensorflow_serving.apis import prediction_service_pb2_grpc
        except ImportError as error:
            raise ImportError(
                "gRPC needs tensorflow-serving-api: pip install 'keras-vit-toolkit[serving]', or "
                "take REST: http://HOST:PORT"
            ) from error
        retries = {
            "maxAttempts": ATTEMPTS,
            "initialBackoff": f"{_FIRST_WAIT}s",
            "maxBackoff": f"{_FIRST_WAIT * 2**ATTEMPTS}s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        }
        service = [{"service": "tensorflow.serving.PredictionService"}]
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.per_rpc_retry_buffer_size", _LARGEST_RETRIED),
            ("grpc.initial_reconnect_backoff_ms", int(_FIRST_WAIT * 1000)),
            (
                "grpc.service_config",
                json.dumps({"methodConfig": [{"name": service, "retryPolicy": retries}]}),
            ),
        ]
        if tls or certificate:
            trusted = certificate.read_bytes() if certificate else None
            credentials = grpc.ssl_channel_credentials(trusted)
            self._channel = grpc.secure_channel(address, credentials, options)
        else:
            self._channel = grpc.insecure_channel(address, options)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._address, self._name, self._version, self._timeout = address, name, version, timeout
        self._metadata = tuple((k.lower(), v) for k, v in (headers or {}).items())

    def call(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = self._name, signature
        if isinstance(self._version, int):
            request.model_spec.version.value = self._version
        elif self._version:
            request.model_spec.version_label = self._version
        for key, value in inputs.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        try:
            answer = self._stub.Predict(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise ServingError(
                f"{self._address}, model {self._name!r}: {error.code().name}: {error.details()}"
            ) from error
        return {key: _strings(tf.make_ndarray(value)) for key, value in answer.outputs.items()}

    def close(self) -> None:
        self._channel.close()


class _Rest:
    def __init__(
        self,
        address: str,
        name: str,
        version: int | str | None,
        certificate: Path | None,
        headers: Mapping[str, str] | None,
        timeout: float,
    ) -> None:
        import requests

        part = ""
        if version is not None:
            kind = "versions" if isinstance(version, int) else "labels"
            part = f"/{kind}/{quote(str(version), safe='')}"
        self._address = f"{address.rstrip('/')}/v1/models/{quote(name, safe='')}{part}:predict"
        self._timeout = timeout
        self._trusted = str(certificate) if certificate else None  # None: as requests is set up
        self._session = requests.Session()
        self._session.headers.update(headers or {})

    def call(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        import requests

        request: Any = {
            "signature_name": signature,
            "inputs": {key: _as_json(value) for key, value in inputs.items()},
        }
        try:
            answer = self._post(request)
        except requests.RequestException as error:
            raise ServingError(f"{self._address}: {error}") from error
        try:
            content = answer.json()
        except ValueError as error:
            raise ServingError(
                f"{self._address}: {answer.status_code}: no JSON but {answer.text[:200]!r}"
            ) from error
        if answer.status_code != 200 or "outputs" not in content:
            said = content.get("error", content) if isinstance(content, dict) else content
            raise ServingError(f"{self._address}: {answer.status_code}: {str(said)[:500]}")
        outputs = content["outputs"]
        if not isinstance(outputs, dict):  # the server names no output that is the only one
            outputs = {"outputs": outputs}
        return {key: np.asarray(value) for key, value in outputs.items()}

    def _post(self, request: Any) -> Any:
        """Sends a request until the server is there, or the time is up."""
        import requests

        # Not urllib3's `Retry`, which gives each attempt the whole time.
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count(1):
            answer, failure = None, None
            try:
                answer = self._session.post(
                    self._address,
                    json=request,
                    timeout=deadline - time.monotonic(),
                    verify=self._trusted,
                )
                if answer.status_code != _UNAVAILABLE:
                    return answer
            except (requests.Timeout, requests.exceptions.SSLError):
                raise
            except requests.ConnectionError as error:
                failure = error
            wait = _FIRST_WAIT * 2 ** (attempt - 1)
            if attempt == ATTEMPTS or time.monotonic() + wait >= deadline - _FIRST_WAIT / 10:
                if failure:
                    raise failure
                return answer
            time.sleep(wait)

    def close(self) -> None:
        self._session.close()


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [{"b64": base64.b64encode(item).decode()} for item in value]


def _strings(array: np.ndarray) -> np.ndarray:
    if array.dtype != object:
        return array
    return np.array([item.decode() for item in array.ravel()], dtype=str).reshape(array.shape)


def _predictions(answer: Mapping[str, np.ndarray], address: str) -> list[Prediction]:
    missing = {"probabilities", "top_labels", "top_scores", "ok", "message"} - answer.keys()
    if missing:
        raise ServingError(
            f"{address}: the model is none that keras_vit has exported: its answer has no "
            f"{', '.join(sorted(missing))}"
        )
    found = []
    for index, ok in enumerate(answer["ok"]):
        probabilities = np.asarray(answer["probabilities"][index], np.float32)
        labels, scores = answer["top_labels"][index], answer["top_scores"][index]
        present = None
        if "present" in answer:
            shown = zip(labels, answer["top_indices"][index], strict=True)
            present = tuple(str(label) for label, i in shown if answer["present"][index][i])
        found.append(
            Prediction(
                probabilities,
                tuple(map(str, labels)),
                tuple(map(float, scores)),
                present,
                "" if ok else str(answer["message"][index]),
            )
        )
    return found
