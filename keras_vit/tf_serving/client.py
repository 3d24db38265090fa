"""TensorFlow Serving client for exported models, over gRPC or REST."""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from keras_vit import arguments
from keras_vit.tasks import class_rows
from keras_vit.tasks.classification.prediction import served_predictions
from keras_vit.tasks.detection.prediction import served_objects
from keras_vit.tf_serving import served_inputs
from keras_vit.tf_serving.batching import MAX_BATCH_SIZE
from keras_vit.tf_serving.transports import Grpc, Rest, ServingError, TemporaryError

_OUTPUTS = {"probabilities", "top_labels", "top_scores", "ok", "message"}  # of a classifier
_ATTEMPTS = 5
_FIRST_WAIT = 0.2  # seconds before the second attempt, on average; doubled before each further one
# Padding of outputs, as in the graphs; that of other outputs is 0, False or "".
_PADDING: dict[str, Any] = {"class_map": 255, "confidence": 255, "logits": -np.inf}

_Arrays = dict[str, np.ndarray]


class Client:
    """Client for one model on a TensorFlow Serving server.

    TensorFlow Serving merges requests of all its clients into batches, and a request of a wrong
    dtype or shape fails its whole batch. So inputs are checked before they are sent, against the
    signature in the server's model metadata (`GetModelMetadata`, over REST `/metadata`). The
    metadata are fetched with the first request, and again when inputs do not fit or the server
    refuses them, since another version may be served by then.

    There are up to five attempts, about 0.2, 0.4, 0.8 and 1.6 seconds apart (with a random jitter
    of up to half) and none after the deadline, if the server is unavailable, or returns
    INVALID_ARGUMENT, FAILED_PRECONDITION or INTERNAL (over REST 400 or 500), most likely because of
    another request in the batch. Any other error is raised at once.

    Args:
        address: `HOST:PORT` for gRPC; `http://HOST:PORT` or `https://HOST:PORT` for REST.
        name: Name of the model on the server.
        version: A version number, or a label such as `"canary"`; by default the newest version.
        tls: Whether gRPC is encrypted.
        certificate: File with the certificates to trust, in PEM format; by default those of gRPC
            and requests.
        headers: Headers of every request, such as an authorization.
        timeout: Seconds for a response, including all attempts.

    Raises:
        ImportError: For gRPC, if tensorflow-serving-api is not installed.
        OSError: For gRPC, if `certificate` is not a file; over REST the first request raises it.
        ValueError: If the address is invalid, `tls` or `certificate` contradicts it, or `timeout`
            is not positive.

    Examples:
        >>> client = Client("http://localhost:8501", "flowers", version="canary")
        >>> client.address
        'http://localhost:8501'
        >>> client.close()

        The server has no metrics per version. To compare two versions, divide the images among
        them, and time the responses:

        ```
        seconds = {"stable": [], "canary": []}
        clients = {label: Client("localhost:8500", version=label) for label in seconds}
        for image, label in zip(images, itertools.cycle(seconds)):
            start = time.perf_counter()
            clients[label].predict([image])
            seconds[label].append(time.perf_counter() - start)
        print({label: np.percentile(times, [50, 99]) for label, times in seconds.items()})
        ```
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
        arguments.positive("timeout", timeout)
        if not re.fullmatch(r"https?://[^@]+|[^@/]+:\d+", address):
            raise ValueError(
                "`address` must be HOST:PORT (gRPC), or start with http:// or https:// (REST), "
                "without a password (see `headers`). "
                f"Received: address={arguments.without_password(address)!r}"
            )
        if (tls or certificate) and address.startswith("http://"):
            raise ValueError(
                "`tls` and `certificate` require gRPC or an https:// `address`. Received: "
                f"tls={tls!r}, certificate={certificate!r}, address={address!r}"
            )
        kind: type[Grpc | Rest] = Rest if "://" in address else Grpc
        self._transport = kind(address, name, version, tls, certificate, headers or {})
        self._timeout = min(timeout, 1e7)  # larger values overflow in gRPC and the operating system
        self._signatures: served_inputs.Signatures = {}  # empty if unknown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection to the server."""
        self._transport.close()

    def predict(
        self,
        images: Sequence[bytes],
        *,
        batch_size: int = MAX_BATCH_SIZE,
        classes: bytes | None = None,
    ) -> list[Any]:
        """Classifies encoded images on the server, or finds the objects in them.

        Args:
            images: Encoded JPEG, PNG, GIF, BMP or WebP images; one or many.
            batch_size: Images per request, not more than the server's largest batch.
            classes: Content of the file `classes.pb` of a model exported with `prototypes`, to
                classify by its classes; None for the classes that the model was trained on.

        Returns:
            One prediction per image, a `Prediction` or, of a detector, a `DetectionPrediction`;
            unreadable images have a `message`.

        Raises:
            ServingError: If the server does not respond after the attempts described in `Client`,
                with the server's message; or if the model is not one exported by keras_vit.
            ValueError: If there is no image, or an image is not `bytes`.

        Examples:
            >>> client = Client("http://localhost:8501")
            >>> client.predict([Path("photo.jpg").read_bytes()])[0].label  # doctest: +SKIP
            'daisy'
        """
        arguments.positive_int("batch_size", batch_size)
        predictions: list[Any] = []
        signature, inputs = "serving_default", {"image_bytes": images}
        if classes is not None:
            signature, inputs["classes"] = class_rows.SIGNATURE, [classes] * len(images)
        for outputs in self._outputs(signature, inputs, batch_size):
            if "boxes" in outputs:
                predictions += served_objects(outputs)
                continue
            if missing_outputs := _OUTPUTS - outputs.keys():
                raise ServingError(
                    f"{self.address}: the model is not a classifier or a detector of keras_vit: it "
                    f"has no {', '.join(sorted(missing_outputs))}. Use `call` for other models"
                )
            predictions += served_predictions(outputs)
        return predictions

    def call(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Calls any signature (docs/serving.md), splitting large inputs into several requests.

        Args:
            signature: Name of the signature.
            **inputs: Inputs of the signature, with the number of images as the first dimension: a
                list of bytes, or arrays of the signature's dtype and shape.

        Returns:
            Outputs of the signature; text as an array of `str`, and `bytes` in outputs whose name
            ends in `_bytes`. Class maps are padded with 255 to the largest image, other outputs to
            the largest number of classes with 0, False or empty text, and `logits` with -inf.

        Raises:
            ServingError: If the server does not respond after the attempts described in `Client`;
                with the server's message.
            ValueError: If the model has no such signature, or the inputs differ from it in names,
                dtype or shape, or have no image; they are not sent.

        Examples:
            >>> client = Client("http://localhost:8501")
            >>> pixels = np.zeros((2, 224, 224, 3), np.uint8)
            >>> outputs = client.call("classify_pixels", pixels=pixels)  # doctest: +SKIP
            >>> outputs["probabilities"].shape  # doctest: +SKIP
            (2, 5)
        """
        batches = list(self._outputs(signature, inputs, MAX_BATCH_SIZE))
        return {key: _concatenate(key, [batch[key] for batch in batches]) for key in batches[0]}

    def _outputs(
        self, signature: str, inputs: Mapping[str, Any], batch_size: int
    ) -> Iterator[_Arrays]:
        """Yields the outputs of each batch of the inputs."""
        deadline = time.monotonic() + self._timeout
        arrays = self._retry(deadline, self._check, signature, inputs)
        for start in range(0, len(next(iter(arrays.values()))), batch_size):
            batch = {key: array[start : start + batch_size] for key, array in arrays.items()}
            yield self._retry(deadline, self._send, signature, batch)
            deadline = time.monotonic() + self._timeout

    def _check(self, deadline: float, signature: str, inputs: Mapping[str, Any]) -> _Arrays:
        """Converts inputs to arrays and checks them against the signature of the served version."""
        with contextlib.suppress(ValueError):  # unknown, or another version is served by now
            return served_inputs.check(self._signatures, signature, inputs)
        # In a variable: another thread may replace `_signatures` meanwhile.
        signatures = self._signatures = self._transport.signatures(deadline - time.monotonic())
        return served_inputs.check(signatures, signature, inputs)

    def _send(self, deadline: float, signature: str, inputs: Mapping[str, Any]) -> _Arrays:
        """Validates and sends a request; retries validate again, in case the version changed."""
        arrays = self._check(deadline, signature, inputs)
        outputs = self._transport.predict(signature, arrays, deadline - time.monotonic())
        sent = len(next(iter(arrays.values())))
        if wrong := {key: v.shape for key, v in outputs.items() if v.shape[:1] != (sent,)}:
            raise ServingError(
                f"{self.address}: outputs must have one row per image ({sent}). Received: {wrong}"
            )
        return outputs

    def _retry(self, deadline: float, send: Callable[..., _Arrays], *args: Any) -> _Arrays:
        """Calls `send`, again after temporary errors until the deadline."""
        attempt = 1
        while True:
            try:
                return send(deadline, *args)
            except TemporaryError as error:
                self._signatures = {}  # a new version may have other signatures
                wait = _FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
                if attempt == _ATTEMPTS or time.monotonic() + wait > deadline:
                    raise ServingError(f"{error} (attempts: {attempt})") from error
            time.sleep(wait)
            attempt += 1


def _concatenate(name: str, outputs: list[np.ndarray]) -> np.ndarray:
    """Joins an output of several requests, whose image sizes or numbers of classes may differ."""
    padding_value = _PADDING.get(name, np.zeros((), outputs[0].dtype))
    sides = [max(sizes) for sizes in zip(*(array.shape[1:] for array in outputs), strict=True)]
    arrays = []
    for array in outputs:
        padding = [(0, side - size) for side, size in zip(sides, array.shape[1:], strict=True)]
        arrays.append(np.pad(array, [(0, 0), *padding], constant_values=padding_value))
    return np.concatenate(arrays)
