"""What one check found."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping
from typing import Any

from keras_vit import arguments

SEVERITIES = ("serious", "warning", "note", "fine")


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one check found, what it was seen by, and what to do about it.

    Args:
        name: What it is, in a few words that are the same for every model.
        severity: `"serious"`: training or answers are wrong; `"warning"`: they may be; `"note"`:
            worth knowing, or a check that could not be made; `"fine"`: looked at and well.
        evidence: What was seen, with the numbers.
        fix: What to do; empty where there is nothing to do.
        numbers: The numbers of the evidence, by name.

    Raises:
        ValueError: If `severity` is none of these.

    Example:
        >>> print(Finding("softmax twice", "serious", "The rows sum to 1.", "Drop one.").text(60))
        SERIOUS  softmax twice
                 The rows sum to 1.
                 Fix: Drop one.
    """

    name: str
    severity: str
    evidence: str
    fix: str = ""
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        arguments.one_of("severity", self.severity, SEVERITIES)

    def text(self, width: int = 100) -> str:
        """Returns the finding to print, in lines of at most `width` characters."""
        paragraphs = [self.evidence, f"Fix: {self.fix}" if self.fix else ""]
        lines = [f"{self.severity.upper():<9}{self.name}"]
        for paragraph in paragraphs:
            lines += textwrap.wrap(
                paragraph, width, initial_indent=" " * 9, subsequent_indent=" " * 9
            )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Returns the finding as a dictionary that JSON can hold."""
        return dataclasses.asdict(self)


class Findings(list[Finding]):
    """Findings of one check; `numbers` are those of every finding without its own."""

    def __init__(self, numbers: Mapping[str, Any] | None = None) -> None:
        self.numbers = {} if numbers is None else numbers

    def add(
        self,
        name: str,
        severity: str,
        evidence: str,
        fix: str,
        numbers: Mapping[str, Any] | None = None,
    ) -> None:
        """Appends a finding."""
        self.append(Finding(name, severity, evidence, fix, numbers or self.numbers))
