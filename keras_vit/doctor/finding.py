"""Findings that the checks report."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from keras_vit import arguments

SEVERITIES = ("serious", "warning", "note", "fine")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding of a check, with the evidence and a recommended fix.

    Args:
        name: Short name of the problem, the same for every model.
        severity: `"serious"`: training or predictions are wrong; `"warning"`: they may be wrong;
            `"note"`: information, or a skipped check; `"fine"`: no problem found.
        evidence: Observations, with numbers.
        fix: Recommended fix; empty if nothing needs to be fixed.
        numbers: The numbers of the evidence, by name.

    Raises:
        ValueError: If `severity` is unknown.

    Examples:
        >>> Finding("softmax twice", "serious", "The rows sum to 1.", "Drop one.").severity
        'serious'
    """

    name: str
    severity: str
    evidence: str
    fix: str = ""
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        arguments.one_of("severity", self.severity, SEVERITIES)

    def to_json(self) -> dict[str, Any]:
        """Returns the finding as a dictionary that can be stored as JSON."""
        return dataclasses.asdict(self)


class Findings(list[Finding]):
    """List of one check's findings, with defaults for `evidence` and `numbers`."""

    def __init__(self, evidence: str = "", numbers: Mapping[str, Any] | None = None) -> None:
        self.evidence, self.numbers = evidence, {} if numbers is None else numbers

    def add(
        self, severity: str, name: str, fix: str = "", evidence: str = "", **numbers: Any
    ) -> Findings:
        """Appends a finding and returns the whole list."""
        evidence = evidence or self.evidence
        self.append(Finding(name, severity, evidence, fix, numbers or self.numbers))
        return self

    serious = functools.partialmethod(add, "serious")
    warning = functools.partialmethod(add, "warning")
    note = functools.partialmethod(add, "note")
    fine = functools.partialmethod(add, "fine")
