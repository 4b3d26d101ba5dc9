"""``harness.fixtures`` says what the fixtures are; mypy checks the annotations of this file."""

from __future__ import annotations

import inspect
from typing import Any

import harness
from harness.fixtures import Speedup, Tracer, Verify
from harness.pytest_plugin.speed import speedup as fixture


def _parameters(function: Any) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(function).parameters.items() if name != "self"}


def test_the_types_have_the_arguments_of_the_functions() -> None:
    checked = {"check": True, "devices": ...}
    assert {**_parameters(Verify.__call__), "devices": None} == {**_parameters(harness.verify), "check": True}
    assert _parameters(Verify.__call__)["devices"] is checked["devices"]
    given = inspect.getsource(inspect.unwrap(getattr(fixture, "__wrapped__", fixture)))
    for name in _parameters(Speedup.__call__):
        assert f"        {name}: " in given


def used(verify: Verify, trace: Tracer, speedup: Speedup) -> None:
    """What type checkers see."""
    verify(abs, abs, {"x": 1.0}, check=False).passed  # noqa: B018
    trace(abs, 1.0).ops  # noqa: B018
    with trace() as traced:
        pass
    traced.trace.ops  # noqa: B018
    speedup(lambda: 1, lambda: 1).speedup  # noqa: B018
