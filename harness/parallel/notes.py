"""Adds a note to an exception: where in a pattern it was raised."""

from __future__ import annotations

from typing import Any


def add_note(error: Any, note: str) -> None:
    """Add a line to an exception."""
    # AutoGraph raises a new exception, without the notes, from what it has stored of this one.
    remembered = getattr(error, "ag_error_metadata", None)
    if remembered is not None and hasattr(remembered, "cause_message"):
        remembered.cause_message = f"{remembered.cause_message} ({note})"
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:  # Python 3.10
        error.__notes__ = [*getattr(error, "__notes__", []), note]
