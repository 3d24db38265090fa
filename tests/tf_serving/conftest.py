"""The models and images of the tests of exports."""

from __future__ import annotations

from tests.export.conftest import exported as exported
from tests.export.conftest import images as images
from tests.export.conftest import model as model
