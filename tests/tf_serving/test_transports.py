from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tensorflow as tf

from keras_vit.export import ServingError
from keras_vit.tf_serving.transports import Grpc, Rest, TemporaryError
from tests.bad_server import Loopback, Page
from tests.tf_serving.fake_serving import CODES, FakeServing, serving

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow_serving", reason="needs the extra serving")


@pytest.fixture(scope="module")
def fake(exported: dict[str, Path]) -> Iterator[FakeServing]:
    with serving(exported["saved_model"]) as running:
        yield running


def transport(kind: str, fake: FakeServing, name: str = "vit") -> Grpc | Rest:
    if kind == "grpc":
        return Grpc(fake.grpc_address, name)
    return Rest(fake.rest_address, name)


kinds = pytest.mark.parametrize("kind", ["grpc", "rest"])


def inputs(kind: str, fake: FakeServing, signature: str) -> dict[str, tf.TensorSpec]:
    found = transport(kind, fake).signatures(20)[signature].inputs
    return {key: tf.TensorSpec(info.tensor_shape, info.dtype) for key, info in found.items()}


@kinds
def test_signatures_are_those_of_the_model(kind: str, fake: FakeServing) -> None:
    assert inputs(kind, fake, "embed") == {"image_bytes": tf.TensorSpec((None,), tf.string)}
    pixels = {"pixels": tf.TensorSpec((None, 10, 14, 3), tf.uint8)}
    assert inputs(kind, fake, "classify_pixels") == pixels
    images = {"images": tf.TensorSpec((None, 10, 14, 3), tf.float32)}
    assert inputs(kind, fake, "classify_float") == images


def test_signatures_of_any_shape(fake: FakeServing, monkeypatch: pytest.MonkeyPatch) -> None:
    signatures = fake.signatures()
    shape = signatures.signature_def["embed"].inputs["image_bytes"].tensor_shape
    shape.Clear()
    shape.unknown_rank = True
    monkeypatch.setattr(fake, "signatures", lambda: signatures)
    for kind in ("grpc", "rest"):
        assert inputs(kind, fake, "embed") == {"image_bytes": tf.TensorSpec(None, tf.string)}


@kinds
@pytest.mark.parametrize("code", CODES)
def test_errors_of_a_batch_are_told_apart(kind: str, fake: FakeServing, code: str) -> None:
    fake.errors = [code]
    with pytest.raises(TemporaryError, match=f"({code}|{CODES[code]}): .*shapes differ"):
        transport(kind, fake).predict("embed", {"image_bytes": np.array([b""], object)}, 20)


@kinds
def test_a_model_that_is_not_there_is_no_temporary_error(kind: str, fake: FakeServing) -> None:
    with pytest.raises(ServingError, match="not found") as error:
        transport(kind, fake, "other").signatures(20)
    assert type(error.value) is ServingError


def test_errors_of_metadata_are_no_neighbors(
    fake: FakeServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "signatures", lambda: 1 / 0)
    with pytest.raises(ServingError, match="UNKNOWN") as error:
        transport("grpc", fake).signatures(20)
    assert type(error.value) is ServingError


@kinds
def test_a_server_that_starts_is_told_apart(kind: str, fake: FakeServing) -> None:
    fake.unavailable = 1
    with pytest.raises(TemporaryError, match="starting"):
        transport(kind, fake).signatures(20)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A server that is not TensorFlow Serving."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Loopback() as running:
        yield running


PATH = "/v1/models/vit/metadata"


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (Page(b"<html>"), r"model 'vit': JSONDecodeError: "),
        (Page(b"{}" * 99, cuts=[10]), r"ChunkedEncodingError: .*IncompleteRead"),
        (Page(b"{}"), r"'vit': 200: the server must be TensorFlow Serving. Received: {}$"),
        (Page(b'{"metadata": 1}'), r'200: .* Received: {"metadata": 1}$'),
        (Page(b'{"metadata": {"signature_def": {"signature_def": 1}}}'), r'200: .*{"metadata": {'),
        (Page(status=401), r"401: Unauthorized"),
        (Page(status=500), r"500: Internal Server Error"),
    ],
)
def test_responses_without_metadata_are_errors(page: Page, message: str, other: Loopback) -> None:
    other.pages[PATH] = page
    with pytest.raises(ServingError, match=message) as error:
        Rest(other.url(""), "vit").signatures(5)
    assert type(error.value) is ServingError


@pytest.mark.parametrize("content", [{}, [], "outputs"])
def test_responses_without_outputs_are_errors(
    content: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = requests.Response()
    response.status_code, response._content = 200, json.dumps(content).encode()
    monkeypatch.setattr(requests.Session, "request", lambda *_, **options: response)
    message = f"200: the server must be .* Received: {re.escape(json.dumps(content))}$"
    with pytest.raises(ServingError, match=message) as error:
        Rest("http://localhost:1", "vit").predict("embed", {}, 5)
    assert type(error.value) is ServingError


def test_redirects_do_not_receive_headers(other: Loopback) -> None:
    with Loopback() as target:
        other.pages[PATH] = Page(status=307, headers={"Location": target.url("/")})
        with pytest.raises(ServingError, match=f"307: {target.url('/')}"):
            Rest(other.url(""), "vit", headers={"X-Api-Key": "secret"}).signatures(5)
        assert target.asked == []
