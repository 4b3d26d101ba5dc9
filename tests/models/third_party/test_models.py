"""Programs of other people: each has the verdict that is right for it. ``tox -e models`` installs what they need."""

from __future__ import annotations

import pytest
from families import FAMILIES
from model_cases import Case, check, require

from harness import Devices

# What other packages warn of when they are imported is theirs.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{family}: {case.name}", marks=pytest.mark.xdist_group(family))
        for family, cases in FAMILIES.items()
        for case in cases
    ],
)
def test_the_verdict_is_right(case: Case, devices: Devices, pytestconfig: pytest.Config) -> None:
    require(pytestconfig, "keras_hub", "tensorflow_probability", "gpflow", "sonnet")
    check(case, devices)
