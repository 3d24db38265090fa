"""Photographs, and a run on them."""

from __future__ import annotations

from tests.cli.conftest import nano as nano
from tests.cli.conftest import photos as photos
from tests.cli.conftest import run as run
from tests.cli.conftest import trained as trained
