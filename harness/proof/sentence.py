"""Says what a proof claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.plural import plural

_THESE_SHAPES = "these shapes"
#: So many results that are not proved are listed.
_SHOWN = 5


def claim(proof: Any) -> str:
    """What is proved, in one clause: ``proved for every input of these shapes (18 of 18 results)``."""
    proved = [each for each in proof.results if each.proved]
    count = f"{len(proved)} of {plural(len(proof.results), 'result')}"
    if proof.proved:
        return f"proved for {reach(proof)} ({count})"
    left = len(proof.results) - len(proved)
    if not proof.results:
        return f"not proved: {proof.error or 'there is no result'}"
    return f"{count} proved; {left} tested: {why(next(each for each in proof.results if not each.proved))}"


def reach(proof: Any) -> str:
    """What the proof is about: ``every input of these shapes``, ``every batch size``."""
    return f"every input of {_THESE_SHAPES}" if proof.scope == _THESE_SHAPES else str(proof.scope)


def why(result: Any) -> str:
    """What blocks the proof of a result, and where."""
    return f"{result.why} ({result.place})" if result.place else result.why


def lines(proof: Any) -> list[str]:
    """The claim, what it assumes, and each result that is not proved."""
    open_results: Sequence[Any] = [each for each in proof.results if not each.proved]
    found = [claim(proof)]
    if proof.assumed:
        found.append(f"assumed: {', '.join(proof.assumed)}")
    shown = open_results[:_SHOWN]
    found.extend(f"{each.name}: {'refuted' if each.refuted else 'not proved'}: {why(each)}" for each in shown)
    if len(open_results) > _SHOWN:
        found.append(f"and {len(open_results) - _SHOWN:,} more (see .results)")
    return found
