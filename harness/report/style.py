"""Colours of verdicts, and counts as text."""

from __future__ import annotations

from harness.records import Exercised, Verdict

#: Colour of each verdict. The word is always shown too: colour is never the only sign.
STYLES = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "bold red",
    Verdict.SKIP: "cyan",
    Verdict.UNKNOWN: "bold magenta",
}


def exercised_text(exercised: Exercised) -> str:
    """Describe what a verdict rests on; counts of zero are left out."""
    counts = (
        (exercised.programs, "program", "programs"),
        (exercised.values, "value", "values"),
        (exercised.gradients, "gradient value", "gradient values"),
        (exercised.ops, "op", "ops"),
        (exercised.gradient_ops, "gradient op", "gradient ops"),
    )
    parts = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
    if not parts:
        return "nothing"
    devices = len(exercised.devices)
    on = f" on {devices} device{'' if devices == 1 else 's'}" if devices else ""
    return ", ".join(parts) + on
