"""TensorFlow Serving client for exported models, over gRPC or REST."""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from keras_vit import arguments
from keras_vit.tasks.classification.prediction import Prediction, served_predictions
from keras_vit.tf_serving import served_inputs
from keras_vit.tf_serving.batching import MAX_BATCH_SIZE
from keras_vit.tf_serving.transports import (
    BatchError,
    Grpc,
    Rest,
    ServingError,
    Transport,
    UnavailableError,
)

_OUTPUTS = {"probabilities", "top_labels", "top_scores", "ok", "message"}  # of a classifier
_FIRST_WAIT = 0.2  # seconds before the second attempt, on average; doubled before each further one

T = TypeVar("T")


class Client:
    """Client for one model on a TensorFlow Serving server.

    TensorFlow Serving merges requests of all its clients into batches, and a request of a wrong
    dtype or shape fails its whole batch. So inputs are checked before they are sent, against the
    signature in the server's model metadata (`GetModelMetadata`, over REST `/metadata`). The
    metadata are fetched with the first request, and again when inputs do not fit or the server
    refuses them, since another version may be served by then.

    A failed request is retried after about 0.2, 0.4, ... seconds (with a random jitter of up to
    half), but not after the deadline: up to five attempts if the server is unavailable, and up to
    four after INVALID_ARGUMENT, FAILED_PRECONDITION or INTERNAL (over REST 400 or 500), most
    likely caused by another request in the batch. Any other error is raised at once.

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
        ValueError: If the address is invalid, `tls` or `certificate` contradicts it, `certificate`
            is not a file, or `timeout` is not positive.

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
        rest = address.startswith(("http://", "https://"))
        grpc = "//" not in address and address.rpartition(":")[2].isdecimal()
        if not (rest or grpc) or "@" in address:
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
        trusted = Path(certificate) if certificate else None
        if trusted and not trusted.is_file():
            raise ValueError(
                "`certificate` must be a file with certificates in PEM format. Received: "
                f"certificate={str(trusted)!r}, which does not exist"
            )
        kind: type[Transport] = Rest if rest else Grpc
        self._transport = kind(address, name, version, tls, trusted, headers)
        self._timeout = min(timeout, 1e7)  # more overflows in gRPC and in the operating system
        self._signatures: served_inputs.Signatures | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection to the server."""
        self._transport.close()

    def predict(
        self, images: Sequence[bytes], *, batch_size: int = MAX_BATCH_SIZE
    ) -> list[Prediction]:
        """Classifies encoded images on the server.

        Args:
            images: Encoded JPEG, PNG, GIF, BMP or WebP images; one or many.
            batch_size: Images per request, not more than the server's largest batch.

        Returns:
            One prediction per image; unreadable images have a `message`.

        Raises:
            ServingError: If the server does not respond after the attempts described in `Client`,
                with the server's message; or if the model is not one exported by keras_vit.
            ValueError: If there is no image, or an image is not `bytes`.

        Examples:
            >>> client = Client("http://localhost:8501")
            >>> client.predict([Path("photo.jpg").read_bytes()])[0].label  # doctest: +SKIP
            'daisy'
        """
        kinds = {type(image).__name__ for image in images} - {"bytes"}
        if kinds:
            raise ValueError(
                "`images` must be a list of encoded images, each as bytes. "
                f"Received: images is {type(images).__name__} of {', '.join(sorted(kinds))}"
            )
        if not images:
            raise ValueError("`images` must contain at least one image. Received: images=[]")
        arguments.positive_int("batch_size", batch_size)
        found: list[Prediction] = []
        for answer in self._answers("serving_default", {"image_bytes": images}, batch_size):
            missing = _OUTPUTS - answer.keys()
            if missing:
                raise ServingError(
                    f"{self.address}: the model was not exported by keras_vit: its response has no "
                    f"{', '.join(sorted(missing))}"
                )
            found += served_predictions(answer)
        return found

    def call(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Calls any signature (docs/serving.md), splitting large inputs into several requests.

        Args:
            signature: Name of the signature.
            **inputs: Inputs of the signature, with the number of images as the first dimension: a
                list of bytes, or arrays of the signature's dtype and shape.

        Returns:
            Outputs of the signature; strings as an array of `str`.

        Raises:
            ServingError: If the server does not respond after the attempts described in `Client`;
                with the server's message.
            ValueError: If the model has no such signature, or the inputs differ from it in names,
                dtype or shape, or have no image; they are not sent.

        Examples:
            >>> client = Client("http://localhost:8501")
            >>> pixels = np.zeros((2, 224, 224, 3), np.uint8)
            >>> answer = client.call("classify_pixels", pixels=pixels)  # doctest: +SKIP
            >>> answer["probabilities"].shape  # doctest: +SKIP
            (2, 5)
        """
        parts = list(self._answers(signature, inputs, MAX_BATCH_SIZE))
        shapes = [{key: array.shape[1:] for key, array in part.items()} for part in parts]
        if any(found != shapes[0] for found in shapes):
            raise ServingError(f"{self.address}: the served version changed; call again")
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def _answers(
        self, signature: str, inputs: Mapping[str, Any], batch_size: int
    ) -> Iterator[dict[str, np.ndarray]]:
        deadline = time.monotonic() + self._timeout
        arrays = self._checked(signature, inputs, deadline)
        for start in range(0, len(next(iter(arrays.values()))), batch_size):
            part = {key: array[start : start + batch_size] for key, array in arrays.items()}
            yield self._repeat(functools.partial(self._send, signature, part), deadline)
            deadline = time.monotonic() + self._timeout

    def _send(
        self, signature: str, inputs: Mapping[str, np.ndarray], deadline: float
    ) -> dict[str, np.ndarray]:
        self._checked(signature, inputs, deadline)
        try:
            return self._transport.predict(signature, inputs, _seconds_to(deadline))
        except BatchError:
            self._signatures = None  # a new version may have other signatures
            raise

    def _checked(
        self, signature: str, inputs: Mapping[str, Any], deadline: float
    ) -> dict[str, np.ndarray]:
        """Converts inputs to arrays and checks them against the signature of the served version."""
        known = self._signatures  # another thread may forget them meanwhile
        if known is not None:
            with contextlib.suppress(ValueError):  # another version may be served by now
                return served_inputs.check(known, signature, inputs)
        known = self._repeat(lambda end: self._transport.signatures(_seconds_to(end)), deadline)
        self._signatures = known
        return served_inputs.check(known, signature, inputs)

    def _repeat(self, send: Callable[[float], T], deadline: float) -> T:
        """Sends a request, retrying after temporary errors until the deadline."""
        attempt = 1
        while True:
            try:
                return send(deadline)
            except (UnavailableError, BatchError) as error:
                wait = _FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
                if attempt >= error.attempts or _seconds_to(deadline) < wait + _FIRST_WAIT / 10:
                    sent = f"{attempt} attempts" if attempt > 1 else "1 attempt"
                    raise ServingError(f"{error} ({sent}{error.remark})") from error
            time.sleep(wait)
            attempt += 1


def _seconds_to(deadline: float) -> float:
    return max(deadline - time.monotonic(), 1e-3)  # requests rejects a timeout of 0
