"""The same with libraries that need Keras 2, for which ``TF_USE_LEGACY_KERAS=1`` must be set."""

from __future__ import annotations

import pytest
from families import KERAS_2
from model_cases import Case, check, require

from harness import Devices

# What other packages warn of when they are imported is theirs.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{family}: {case.name}", marks=pytest.mark.xdist_group(family))
        for family, cases in KERAS_2.items()
        for case in cases
    ],
)
def test_the_verdict_is_right(case: Case, devices: Devices, pytestconfig: pytest.Config) -> None:
    require(pytestconfig, "transformers", "tensorflow_recommenders", "keras_rs", "tf_keras")
    check(case, devices)
