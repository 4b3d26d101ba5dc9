"""What a hardware check cannot do without."""

from __future__ import annotations

from harness.checks.check import CheckOutcome
from harness.records import Verdict


def no_machine() -> CheckOutcome:
    """The outcome of a hardware check where nobody gave it a machine."""
    return CheckOutcome(
        Verdict.SKIP, "no machine was given to look at", "run it with harness validate, which looks at this machine"
    )


def no_cards() -> CheckOutcome:
    """The outcome of a hardware check on a machine without a card."""
    return CheckOutcome(Verdict.UNKNOWN, "the machine has no card", "ask for devices with --devices, such as cpu:2")
