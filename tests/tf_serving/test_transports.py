from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.export import ServingError
from keras_vit.tf_serving.transports import BatchError, Grpc, Rest, Transport, UnavailableError
from tests.tf_serving.fake_serving import CODES, FakeServing, serving

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow_serving", reason="needs the extra serving")


@pytest.fixture(scope="module")
def fake(exported: dict[str, Path]) -> Iterator[FakeServing]:
    with serving(exported["saved_model"]) as running:
        yield running


def transport(kind: str, fake: FakeServing, name: str = "vit") -> Transport:
    if kind == "grpc":
        return Grpc(fake.grpc_address, name)
    return Rest(fake.rest_address, name)


kinds = pytest.mark.parametrize("kind", ["grpc", "rest"])


@kinds
def test_signatures_are_those_of_the_model(kind: str, fake: FakeServing) -> None:
    found = transport(kind, fake).signatures(20)
    assert found["embed"] == {"image_bytes": tf.TensorSpec((None,), tf.string)}
    assert found["classify_pixels"] == {"pixels": tf.TensorSpec((None, 10, 14, 3), tf.uint8)}
    assert found["classify_float"] == {"images": tf.TensorSpec((None, 10, 14, 3), tf.float32)}


def test_signatures_of_any_shape(fake: FakeServing, monkeypatch: pytest.MonkeyPatch) -> None:
    signatures = fake.signatures()
    shape = signatures.signature_def["embed"].inputs["image_bytes"].tensor_shape
    shape.Clear()
    shape.unknown_rank = True
    monkeypatch.setattr(fake, "signatures", lambda: signatures)
    for kind in ("grpc", "rest"):
        found = transport(kind, fake).signatures(20)["embed"]["image_bytes"]
        assert found == tf.TensorSpec(None, tf.string)


@kinds
@pytest.mark.parametrize("code", CODES)
def test_errors_of_a_batch_are_told_apart(kind: str, fake: FakeServing, code: str) -> None:
    fake.errors = [code]
    with pytest.raises(BatchError, match=f"({code}|{CODES[code]}): shapes differ"):
        transport(kind, fake).predict("embed", {"image_bytes": np.array([b""], object)}, 20)


@kinds
def test_errors_of_metadata_are_no_neighbors(
    kind: str, fake: FakeServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ServingError, match="not found") as error:
        transport(kind, fake, "other").signatures(20)
    assert type(error.value) is ServingError
    monkeypatch.setattr(fake, "signatures", lambda: 1 / 0)  # an INTERNAL of the server's own
    with pytest.raises(ServingError) as error:
        transport(kind, fake).signatures(20)
    assert not isinstance(error.value, BatchError)


@kinds
def test_a_server_that_starts_is_told_apart(kind: str, fake: FakeServing) -> None:
    fake.unavailable = 1
    with pytest.raises(UnavailableError, match="starting"):
        transport(kind, fake).signatures(20)
