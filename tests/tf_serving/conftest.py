"""The models and images of the tests of exports, and a server of a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.export.conftest import exported as exported
from tests.export.conftest import exported_yes_or_no as exported_yes_or_no
from tests.export.conftest import images as images
from tests.export.conftest import loaded as loaded
from tests.export.conftest import model as model
from tests.export.conftest import yes_or_no as yes_or_no
from tests.tf_serving.fake_serving import FakeServing, serving

TRANSPORTS = ("grpc_address", "rest_address")


@pytest.fixture(scope="module")
def fake(exported: dict[str, Path]) -> Iterator[FakeServing]:
    with serving(exported["saved_model"]) as running:
        yield running


@pytest.fixture(params=TRANSPORTS)
def address(request: pytest.FixtureRequest, fake: FakeServing) -> str:
    fake.requests.clear()
    fake.lookups.clear()
    return getattr(fake, request.param)
