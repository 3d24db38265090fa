from __future__ import annotations

from typing import Any

import pytest

from keras_vit import accelerators
from keras_vit.doctor import onednn

CONTEXT: Any = None  # the check reads nothing of it


@pytest.mark.parametrize(
    ("state", "severity", "fix"),
    [
        ("on", "fine", ""),
        ("off", "note", ""),
        ("off; 1.3 times", "warning", "Import keras_vit before keras, or set"),
    ],
)
def test_onednn_is_a_finding_where_it_would_help(
    monkeypatch: pytest.MonkeyPatch, state: str, severity: str, fix: str
) -> None:
    monkeypatch.setattr(onednn, "is_enabled", lambda: True)
    monkeypatch.setattr(accelerators, "onednn", lambda: state)
    (finding,) = onednn.check_onednn(CONTEXT)
    assert finding.severity == severity
    assert finding.fix.startswith(fix)
    assert bool(finding.fix) == bool(fix)


def test_other_devices_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "is_enabled", lambda: False)
    (finding,) = onednn.check_onednn(CONTEXT)
    assert finding.severity == "note"
