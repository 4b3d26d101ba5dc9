"""Which checks the commands know."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.checking.suite import Suite

#: For the harness's own tests: another suite than the one that is shipped, as ``module:attribute``.
SUITE_VARIABLE = "_HARNESS_SUITE"


def suite_reference() -> str:
    """Where the suite is, as ``module:attribute``."""
    from harness.checks.registry import REFERENCE

    return os.environ.get(SUITE_VARIABLE, REFERENCE)


def suite() -> Suite:
    """The suite."""
    from harness.checking.suite import load_suite

    return load_suite(suite_reference())
