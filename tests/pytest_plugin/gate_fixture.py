"""The fixture ``gate``: a small plug-in for the test files that name it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gate_session import GateSession


@pytest.fixture
def gate(pytester: pytest.Pytester, inner_pytest: Callable[..., pytest.RunResult]) -> GateSession:
    """A folder with two benchmarks whose speedups are made up."""
    return GateSession(pytester, inner_pytest)
