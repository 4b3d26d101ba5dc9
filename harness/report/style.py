"""Colours of verdicts."""

from __future__ import annotations

from harness.records import Verdict

#: Colour of each verdict. The word is always shown too: colour is never the only sign.
STYLES = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "bold red",
    Verdict.SKIP: "cyan",
    Verdict.UNKNOWN: "bold magenta",
}
