"""Runs of a tiny model on some photographs."""

from __future__ import annotations

from tests.training.conftest import nano as nano
from tests.training.conftest import photos as photos
from tests.training.conftest import train as train
