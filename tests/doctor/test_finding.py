from __future__ import annotations

import json

import pytest

from keras_vit.doctor.finding import Finding

pytestmark = pytest.mark.tensorflow


def test_finding_prints_evidence_and_fix_in_short_lines() -> None:
    finding = Finding("dead activations", "warning", "word " * 30, "Lower the learning rate.")
    lines = finding.text(40).splitlines()
    assert lines[0] == "WARNING  dead activations"
    assert max(map(len, lines)) <= 40
    assert lines[-1] == " " * 9 + "Fix: Lower the learning rate."
    assert sum(line.split().count("word") for line in lines) == 30


def test_finding_without_a_fix_names_none() -> None:
    assert Finding("pixels", "fine", "Well.").text() == "FINE     pixels\n         Well."


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
