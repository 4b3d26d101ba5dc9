"""The same with libraries that need Keras 2, for which ``TF_USE_LEGACY_KERAS=1`` must be set."""

from __future__ import annotations

import hugging_face_cases
import pytest
import recommender_cases
from model_cases import Case, check, require

from harness import Devices

FAMILIES = {
    "Hugging Face": hugging_face_cases.CASES,
    "recommenders": recommender_cases.CASES,
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=f"{family}: {case.name}", marks=pytest.mark.xdist_group(family))
        for family, cases in FAMILIES.items()
        for case in cases
    ],
)
def test_the_verdict_is_right(case: Case, devices: Devices, pytestconfig: pytest.Config) -> None:
    require(pytestconfig, "transformers", "tensorflow_recommenders", "keras_rs", "tf_keras")
    check(case, devices)
