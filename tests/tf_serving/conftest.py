"""The models and images of the tests of exports."""

from __future__ import annotations

from tests.export.conftest import exported as exported
from tests.export.conftest import exported_yes_or_no as exported_yes_or_no
from tests.export.conftest import images as images
from tests.export.conftest import loaded as loaded
from tests.export.conftest import model as model
from tests.export.conftest import yes_or_no as yes_or_no
