"""A program, its reference, and what both get, verified on the first two devices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from harness import Devices, Verdict, Verification, verify

MODES = ("eager", "graph")


class Case(NamedTuple):
    parallel: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: dict[str, Any]
    variables: list[Any]


def judged(
    devices: Devices, make: Callable[[Devices, bool], Case], cause: str, modes: Sequence[str] = MODES
) -> Verification:
    """What is found in the wrong program: its reason matches ``cause``. The right one passes."""
    case = make(devices[:2], False)
    options: dict[str, Any] = {"devices": devices[:2], "gradients": False, "modes": modes}
    clean = verify(case.parallel, case.reference, case.inputs, variables=case.variables, **options)
    assert clean.verdict is Verdict.PASS, str(clean)
    case = make(devices[:2], True)
    found = verify(case.parallel, case.reference, case.inputs, variables=case.variables, **options)
    assert found.verdict is Verdict.FAIL, str(found)
    assert re.search(cause, found.reason, re.IGNORECASE), found.reason
    return found
