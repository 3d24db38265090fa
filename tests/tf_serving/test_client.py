from __future__ import annotations

import dataclasses
import itertools
import re
import subprocess
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from keras_vit.export import Client, Predictor, ServingError, load_predictor, saved_model
from keras_vit.tf_serving import client as client_module
from keras_vit.tf_serving.transports import TemporaryError
from tests.export.conftest import PREPROCESSING, tiny
from tests.tf_serving.conftest import TRANSPORTS
from tests.tf_serving.fake_serving import CODES, FakeServing, serving

pytestmark = pytest.mark.tensorflow

pytest.importorskip("tensorflow_serving", reason="needs the extra serving")


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of images of another size."""
    model = tiny(dataclasses.replace(PREPROCESSING, size=(22, 26)))
    return saved_model.write(model, tmp_path_factory.mktemp("larger") / "1")


def test_predictions_are_those_of_the_model(
    address: str, loaded: Predictor, images: list[bytes], fake: FakeServing
) -> None:
    local = loaded.predict(images)
    with Client(address) as client:
        served = client.predict(images, batch_size=4)
    assert len(fake.requests) == 3  # ten images by four
    for mine, its in zip(local, served, strict=True):
        assert its.ok
        assert its.top_labels == mine.top_labels
        np.testing.assert_allclose(its.probabilities, mine.probabilities, atol=1e-6)
        np.testing.assert_allclose(its.top_scores, mine.top_scores, atol=1e-6)


def test_a_bad_image_has_a_message(address: str, images: list[bytes]) -> None:
    with Client(address) as client:
        good, bad = client.predict([images[0], b"text"])
    assert good.ok
    assert (bad.ok, bad.text()) == (False, "The image is not a JPEG, PNG, GIF, BMP or WebP")


@pytest.mark.slow
def test_labels_that_are_a_yes(
    yes_or_no: keras.Model, exported_yes_or_no: Path, images: list[bytes]
) -> None:
    local = load_predictor(yes_or_no).predict(images)
    with serving(exported_yes_or_no) as running:
        for transport in TRANSPORTS:
            with Client(getattr(running, transport)) as client:
                served = client.predict(images)
            assert [p.present for p in served] == [p.present for p in local]
    assert len({p.present for p in local}) > 2


@pytest.mark.slow
def test_any_signature_can_be_called(address: str, images: list[bytes]) -> None:
    with Client(address) as client:
        answer = client.call("explain", image_bytes=images[:2])
        pixels = client.call("preprocess", image_bytes=images[:2])["pixels"]
        again = client.call("classify_pixels", pixels=pixels.astype("uint8"))
    assert answer["map"].shape == (2, 5, 7)
    np.testing.assert_allclose(again["probabilities"], answer["probabilities"], atol=1e-6)


@pytest.mark.slow
def test_a_server_that_starts_is_asked_again(
    address: str, images: list[bytes], fake: FakeServing
) -> None:
    fake.unavailable = 2
    with Client(address) as client:
        assert client.predict(images[:1])[0].ok
    assert (len(fake.lookups), len(fake.requests)) == (3, 1)


@pytest.mark.slow
def test_a_server_that_stays_unavailable_is_an_error(
    address: str, images: list[bytes], fake: FakeServing
) -> None:
    fake.unavailable = 100
    with Client(address) as client, pytest.raises(ServingError) as error:
        client.predict(images[:1])
    fake.unavailable = 0
    assert re.search(r"(UNAVAILABLE|503): .*starting.* \(attempts: 5\)$", str(error.value))
    assert len(fake.lookups) == 5


def test_temporary_errors_end_after_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    errors = [TemporaryError("starting")] * 4 + [TemporaryError("shapes differ")] * 9

    def send(deadline: float) -> Any:
        raise errors.pop(0)

    failure = pytest.raises(ServingError, match=r"^shapes differ \(attempts: 5\)$")
    with Client("http://localhost:1") as client, failure:
        client._retry(time.monotonic() + 60, send)
    assert len(errors) == 8


def test_other_errors_are_raised_at_once(
    address: str, images: list[bytes], fake: FakeServing
) -> None:
    with (
        Client(address, "other") as client,
        pytest.raises(ServingError, match=r"not found: .*other"),
    ):
        client.predict(images[:1])
    assert (len(fake.lookups), len(fake.requests)) == (1, 0)


def test_nobody_waits_beyond_the_deadline(
    address: str, images: list[bytes], fake: FakeServing
) -> None:
    fake.delay = threading.Event()  # until it is set there is no answer
    with (
        Client(address, timeout=0.5) as client,
        pytest.raises(ServingError, match=r"DEADLINE_EXCEEDED|timed out"),
    ):
        client.predict(images[:1])
    fake.delay.set()
    fake.delay = None


def test_nobody_is_asked_again_beyond_the_deadline(
    address: str, images: list[bytes], fake: FakeServing
) -> None:
    fake.unavailable = 100
    with Client(address, timeout=0.5) as client, pytest.raises(ServingError):
        client.predict(images[:1])
    fake.unavailable = 0
    assert len(fake.lookups) < 5  # all five attempts would take about 3 seconds


def test_what_a_slow_server_said_last_is_told(fake: FakeServing, images: list[bytes]) -> None:
    fake.lookups.clear()
    fake.unavailable, fake.thinks = 100, 0.9
    with (
        Client(fake.rest_address, timeout=1) as client,
        pytest.raises(ServingError, match=r"503: .*starting.* \(attempts: 1\)"),
    ):
        client.predict(images[:1])
    fake.unavailable, fake.thinks = 0, 0
    assert len(fake.lookups) == 1


@pytest.mark.slow
def test_an_address_where_nobody_answers_is_an_error(images: list[bytes]) -> None:
    for address in ("localhost:1", "http://localhost:1"):
        with Client(address, timeout=5) as client, pytest.raises(ServingError, match="localhost:1"):
            client.predict(images[:1])


def test_version_label_and_headers_are_sent(fake: FakeServing, images: list[bytes]) -> None:
    fake.requests.clear()
    fake.lookups.clear()
    for address in (fake.grpc_address, fake.rest_address):
        for version in (1, "stable"):
            with Client(address, version=version, headers={"Authorization": "secret"}) as client:
                client.predict(images[:1])
    grpc_number, grpc_label, rest_number, rest_label = fake.requests
    assert (grpc_number["version"], grpc_label["version"]) == (1, "stable")
    assert grpc_number["metadata"]["authorization"] == "secret"
    assert rest_number["path"] == "/v1/models/vit/versions/1:predict"
    assert rest_label["path"] == "/v1/models/vit/labels/stable:predict"
    assert rest_number["headers"]["Authorization"] == "secret"
    assert [lookup.get("version") for lookup in fake.lookups[:2]] == [1, "stable"]
    assert fake.lookups[2]["path"] == "/v1/models/vit/versions/1/metadata"
    assert fake.lookups[3]["headers"]["Authorization"] == "secret"


@pytest.mark.slow
def test_tls_needs_the_certificate_that_is_trusted(
    exported: dict[str, Path], images: list[bytes], tmp_path: Path
) -> None:
    import grpc

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    try:
        subprocess.run(
            [*command, "-keyout", key, "-out", certificate], check=True, capture_output=True
        )
    except FileNotFoundError:
        pytest.skip("needs openssl")
    pair = [(key.read_bytes(), certificate.read_bytes())]
    with serving(exported["saved_model"], grpc.ssl_server_credentials(pair)) as running:
        with Client(running.grpc_address, certificate=certificate) as client:
            assert client.predict(images[:1])[0].ok
        with (
            Client(running.grpc_address, tls=True, timeout=5) as client,
            pytest.raises(ServingError, match=r"UNAVAILABLE|DEADLINE"),
        ):
            client.predict(images[:1])


def test_images_larger_than_grpc_expects(fake: FakeServing, images: list[bytes]) -> None:
    """More than the 4 MB that gRPC receives and the 256 kB that it keeps for another attempt."""
    fake.unavailable = 1
    with Client(fake.grpc_address) as client:
        assert client.predict([images[0] + bytes(6_000_000)])[0].ok


@pytest.mark.parametrize("address", ["localhost", "ftp://localhost:1", "localhost:http"])
def test_an_address_is_checked(address: str) -> None:
    with pytest.raises(ValueError, match=f"`address` must be HOST:PORT .*{address}"):
        Client(address)


@pytest.mark.parametrize("start", ["http://", "https://", "grpc://", ""])
def test_address_with_a_password_is_refused_without_printing_it(start: str) -> None:
    with pytest.raises(ValueError, match="without a password") as error:
        Client(f"{start}me:sec/ret@localhost:8501")
    assert str(error.value).endswith(f"Received: address='{start}...@localhost:8501'")


def test_tls_contradicts_http() -> None:
    for options in ({"tls": True}, {"certificate": "certificate.pem"}):
        with pytest.raises(ValueError, match="`tls` and `certificate` require gRPC or an"):
            Client("http://localhost:1", **options)


@pytest.mark.parametrize("address", ["localhost:1", "https://localhost:1"])
def test_a_certificate_has_to_be_there(address: str, tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match=r"none\.pem"),
        Client(address, certificate=tmp_path / "none.pem") as client,
    ):
        client.predict([b"image"])


def test_a_model_of_someone_else_is_told(
    address: str, fake: FakeServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "predict", lambda *_: {"scores": np.zeros((1, 3))})
    with (
        Client(address) as client,
        pytest.raises(ServingError, match="is not a classifier or a detector of keras_vit"),
    ):
        client.predict([b"image"])


@pytest.mark.parametrize(
    ("images", "received"),
    [
        ([], "bytes of shape (0,)"),
        ("photo.jpg", "str of shape ()"),
        (b"image", "bytes of shape ()"),
        ([b"", None], "NoneType, bytes of shape (2,)"),
    ],
)
def test_images_are_bytes(address: str, fake: FakeServing, images: Any, received: str) -> None:
    message = f"at least one image (B >= 1). Received: image_bytes is {received}"
    with Client(address) as client, pytest.raises(ValueError, match=re.escape(message)):
        client.predict(images)
    assert fake.requests == []


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        (
            "embed",
            {"image_bytes": []},
            "of shape (B,), for at least one image (B >= 1). Received: ",
        ),
        ("classify_pixels", {"pixels": np.zeros((2, 10, 14, 3))}, "pixels is float64 of shape "),
        ("classify_pixels", {"pixels": np.zeros((2, 14, 10, 3), "uint8")}, "(2, 14, 10, 3)"),
    ],
)
def test_inputs_that_do_not_fit_are_not_sent(
    address: str, fake: FakeServing, signature: str, inputs: dict[str, Any], message: str
) -> None:
    with Client(address) as client, pytest.raises(ValueError, match=re.escape(message)):
        client.call(signature, **inputs)
    assert (len(fake.lookups), len(fake.requests)) == (1, 0)


def test_inputs_are_checked_against_one_answer(address: str, fake: FakeServing) -> None:
    with Client(address) as client:
        for _ in range(3):
            client.call("classify_pixels", pixels=np.zeros((2, 10, 14, 3), "uint8"))
    assert (len(fake.lookups), len(fake.requests)) == (1, 3)


def test_more_images_than_a_batch_are_sent_in_parts(address: str, fake: FakeServing) -> None:
    pixels = np.random.default_rng(5).integers(0, 256, (35, 10, 14, 3), "uint8")
    with Client(address) as client:
        answer = client.call("classify_pixels", pixels=pixels)
    assert len(fake.requests) == 3  # 16, 16 and 3
    expected = fake.predict("classify_pixels", {"pixels": pixels})["probabilities"]
    # Measured: 2.4e-7.
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("code", CODES)
def test_errors_of_a_batch_are_asked_again(
    address: str, images: list[bytes], fake: FakeServing, code: str
) -> None:
    fake.errors = [code] * 2
    with Client(address) as client:
        assert client.predict(images[:1])[0].ok
    assert len(fake.requests) == 3


@pytest.mark.slow
def test_errors_of_a_batch_that_stay_are_told(
    address: str, images: list[bytes], fake: FakeServing
) -> None:
    fake.errors = ["INTERNAL"] * 9
    with Client(address) as client, pytest.raises(ServingError) as error:
        client.predict(images[:1])
    assert (len(fake.errors), len(fake.requests)) == (4, 5)
    fake.errors = []
    message = rf"^{address}, model 'vit': (INTERNAL|500): .*shapes differ.* \(attempts: 5\)$"
    assert re.search(message, str(error.value))


def test_errors_of_a_batch_are_told_at_the_deadline(
    address: str, images: list[bytes], fake: FakeServing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_FIRST_WAIT", 1.5)  # a third attempt after 2.25 or more
    fake.errors = ["INVALID_ARGUMENT"] * 9
    with Client(address, timeout=2) as client, pytest.raises(ServingError, match="shapes differ"):
        client.predict(images[:1])
    fake.errors = []
    assert len(fake.requests) < 3


@pytest.mark.slow
def test_a_new_version_is_noticed(
    address: str, fake: FakeServing, exported: dict[str, Path], larger: Path
) -> None:
    def pixels(*size: int) -> np.ndarray:
        return np.zeros((1, *size, 3), "uint8")

    with Client(address) as client:
        client.call("classify_pixels", pixels=pixels(10, 14))
        try:
            fake.load(larger)
            # What fitted the old version is sent once, and not again.
            with pytest.raises(ValueError, match=r"of shape \(B, 22, 26, 3\)"):
                client.call("classify_pixels", pixels=pixels(10, 14))
            assert (len(fake.lookups), len(fake.requests)) == (2, 2)
        finally:
            fake.load(exported["saved_model"])
        # What did not fit it is sent.
        client.call("classify_pixels", pixels=pixels(10, 14))
    assert (len(fake.lookups), len(fake.requests)) == (3, 3)


def test_the_comparison_of_two_versions_runs(
    fake: FakeServing, images: list[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    fake.requests.clear()
    (block,) = re.findall(r"```\n(.*?)```", Client.__doc__ or "", re.DOTALL)
    scope = {"Client": Client, "images": images, "itertools": itertools, "time": time, "np": np}
    exec(textwrap.dedent(block).replace("localhost:8500", fake.grpc_address), scope)
    assert [request["version"] for request in fake.requests] == ["stable", "canary"] * 5
    assert "'canary': array([" in capsys.readouterr().out
