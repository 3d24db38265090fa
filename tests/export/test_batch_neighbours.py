"""Good requests that the server merges with malformed ones."""

from __future__ import annotations

import itertools
from concurrent import futures
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tensorflow as tf

from keras_vit.export import Client, ServingError
from tests.export.fake_batching_server import MergingDouble
from tests.tf_serving.fake_serving import serve

pytestmark = pytest.mark.tensorflow

grpc = pytest.importorskip("grpc", reason="needs the extra serving")
pytest.importorskip("tensorflow_serving", reason="needs the extra serving")

# Each malformed request fails one batch, so three of them cannot fail all five attempts of another.
REQUESTS, EACH, THREADS = 800, 250, 32
MALFORMED = [np.zeros((1, 11, 13, 3), np.uint8), np.zeros((1, 10, 14, 3), np.float32)]


def send_malformed(fake: MergingDouble, transport: str, number: int) -> None:
    """What a client that checks nothing sends."""
    if transport == "rest_address":  # where the server reads numbers as the signature's dtype
        address = f"{fake.rest_address}/v1/models/vit:predict"
        inputs = {"pixels": MALFORMED[0].tolist()}
        body = {"signature_name": "classify_pixels", "inputs": inputs}
        assert requests.post(address, json=body, timeout=20).status_code == 400
        return
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "vit", "classify_pixels"
    request.inputs["pixels"].CopyFrom(tf.make_tensor_proto(MALFORMED[number % 2]))
    with grpc.insecure_channel(fake.grpc_address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError):
            stub.Predict(request, timeout=20)


@pytest.mark.parametrize(
    "transport", ["grpc_address", pytest.param("rest_address", marks=pytest.mark.slow)]
)
def test_no_good_request_is_lost_beside_malformed_ones(
    exported: dict[str, Path], transport: str
) -> None:
    images = np.random.default_rng(3).integers(0, 256, (REQUESTS, 1, 10, 14, 3), "uint8")
    numbers, sent = itertools.count(1), []
    with (
        serve(MergingDouble(exported["saved_model"])) as fake,
        Client(getattr(fake, transport)) as client,
        futures.ThreadPoolExecutor() as others,
        futures.ThreadPoolExecutor(THREADS) as pool,
    ):

        def ask(pixels: np.ndarray) -> np.ndarray | ServingError:
            if next(numbers) % EACH == 0:
                sent.append(others.submit(send_malformed, fake, transport, len(sent)))
            try:
                return client.call("classify_pixels", pixels=pixels)["probabilities"]
            except ServingError as error:
                return error

        answers = list(pool.map(ask, images))
        assert [each.result() for each in sent] == [None] * (REQUESTS // EACH)
    assert [answer for answer in answers if isinstance(answer, ServingError)] == []
    assert fake.failures > len(sent)  # good ones among them
    assert fake.largest > 8  # measured on two cores: 21 to 30
    assert len({answer.tobytes() for answer in answers}) == REQUESTS


def test_signatures_that_another_thread_forgets_are_asked_for_again(
    exported: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the other thread forgot them after every look."""
    held: list[Any] = [{}]

    def look(client: Client) -> Any:
        found, held[0] = held[0], {}
        return found

    def keep(client: Client, found: Any) -> None:
        held[0] = found

    monkeypatch.setattr(Client, "_signatures", property(look, keep), raising=False)
    pixels = np.zeros((1, 10, 14, 3), "uint8")
    with (
        serve(MergingDouble(exported["saved_model"])) as fake,
        Client(fake.rest_address) as client,
    ):
        assert len(client.call("classify_pixels", pixels=pixels)["probabilities"]) == 1
