"""Programs of other people: each has the verdict that is right for it. ``tox -e models`` installs what they need."""

from __future__ import annotations

from collections import Counter

import keras_hub_cases
import keras_image_cases
import keras_layer_cases
import probability_cases
import pytest
import tensorflow_cases
from model_cases import Case, check, require

from harness import Devices, Verdict

FAMILIES = {
    "keras.applications": keras_image_cases.CASES,
    "keras.layers": keras_layer_cases.CASES,
    "keras-hub": keras_hub_cases.CASES,
    "probability": probability_cases.CASES,
    "TensorFlow": tensorflow_cases.CASES,
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
    require(pytestconfig, "keras_hub", "tensorflow_probability", "gpflow", "sonnet")
    check(case, devices)


def test_every_family_has_right_and_faulty_programs_under_names_of_their_own() -> None:
    for family, cases in FAMILIES.items():
        assert {Verdict.PASS, Verdict.FAIL} <= {case.verdict for case in cases}, family
        assert max(Counter(case.name for case in cases).values()) == 1, family
        assert all(case.words for case in cases if case.verdict is not Verdict.PASS), family
