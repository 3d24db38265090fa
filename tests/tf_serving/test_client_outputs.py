"""Outputs of a server that the client checks, names and joins."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from keras_vit.export import Client, ServingError
from tests.tf_serving.fake_serving import FakeServing

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("scores", [np.zeros((1, 3)), np.zeros(())])
def test_rows_of_a_response_are_counted(
    address: str, fake: FakeServing, monkeypatch: pytest.MonkeyPatch, scores: np.ndarray
) -> None:
    monkeypatch.setattr(fake, "predict", lambda *_: {"ok": np.ones(2, bool), "scores": scores})
    message = r"outputs must have one row per image \(2\)\. Received: {'scores': "
    with (
        Client(address) as client,
        pytest.raises(ServingError, match=message + re.escape(str(scores.shape))),
    ):
        client.predict([b"image"] * 2)
    assert len(fake.requests) == 1


def test_only_output_keeps_its_name(
    address: str, fake: FakeServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    signatures = fake.signatures()
    signatures.signature_def["embed"].outputs["rows"].name = "rows:0"
    monkeypatch.setattr(fake, "signatures", lambda: signatures)
    monkeypatch.setattr(fake, "predict", lambda *_: {"rows": np.ones((1, 3))})
    with Client(address) as client:
        answer = client.call("embed", image_bytes=[b"image"])
    assert {key: value.tolist() for key, value in answer.items()} == {"rows": [[1, 1, 1]]}


def test_requests_of_different_numbers_of_classes_are_joined(
    address: str, fake: FakeServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predict(signature: str, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        images = len(inputs["image_bytes"])
        rows = (images, 2 if images == 16 else 3)
        return {
            "probabilities": np.full(rows, 0.5, "float32"),
            "logits": np.ones(rows, "float32"),
            "set": np.ones(rows, bool),
            "top_labels": np.full(rows, b"rose", object),
            "class_map": np.ones((*rows, 1), "uint8"),
        }

    monkeypatch.setattr(fake, "predict", predict)
    with Client(address) as client:
        answer = client.call("embed", image_bytes=[b"image"] * 17)
    assert answer["probabilities"][0].tolist() == [0.5, 0.5, 0]
    assert answer["logits"][0].tolist() == [1, 1, -np.inf]
    assert answer["set"][0].tolist() == [True, True, False]
    assert answer["top_labels"][0].tolist() == ["rose", "rose", ""]
    assert answer["class_map"][0].tolist() == [[1], [1], [255]]
