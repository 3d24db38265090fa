from __future__ import annotations

import json

import pytest

from keras_vit.doctor.finding import Finding

pytestmark = pytest.mark.tensorflow


def test_finding_becomes_json() -> None:
    finding = Finding("pixels", "fine", "Well.", numbers={"std": 0.5})
    assert json.loads(json.dumps(finding.to_json())) == {
        "name": "pixels",
        "severity": "fine",
        "evidence": "Well.",
        "fix": "",
        "numbers": {"std": 0.5},
    }


def test_finding_refuses_an_unknown_severity() -> None:
    with pytest.raises(ValueError, match="`severity` must be one of 'serious', 'warning', 'note'"):
        Finding("pixels", "bad", "")
