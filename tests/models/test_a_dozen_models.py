"""A dozen of the programs with Keras alone, which is installed with TensorFlow; ``tox -e models`` runs all of them."""

from __future__ import annotations

import re
from collections import Counter

import keras_layer_cases
import pytest
import tensorflow_cases
from families import FAMILIES, KERAS_2
from model_cases import Case, check
from repository import read

from harness import Devices, Verdict

_CHOSEN = {
    "GRU",
    "GRU with dropout",
    "Conv2D",
    "Transformer",
    "Embedding with a mask",
    "BatchNormalization in training",
    "Dropout in training",
    "Conv2D rows dropped",
    "gather",
    "lookup table",
    "strings beside scores",
    "ragged mean",
    "argmax",
}
CASES = [case for case in (*keras_layer_cases.CASES, *tensorflow_cases.CASES) if case.name in _CHOSEN]


@pytest.mark.cases("GRU", "BatchNormalization in training", "Conv2D rows dropped", "strings beside scores")
@pytest.mark.rotated(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_is_right(case: Case, devices: Devices) -> None:
    check(case, devices)


def test_every_family_has_right_and_faulty_programs_and_the_documented_numbers_of_them() -> None:
    rows = re.findall(
        r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", read("docs/reference/models.md"), re.MULTILINE
    )
    documented = {name: tuple(map(int, counts)) for name, *counts in rows}
    total = Counter[str]()
    for family, cases in {**FAMILIES, **KERAS_2}.items():
        counts = Counter(str(case.verdict) for case in cases)
        assert counts["PASS"], family
        assert counts["FAIL"], family
        assert documented[family] == (len(cases), counts["PASS"], counts["FAIL"], counts["UNKNOWN"])
        assert len({case.name for case in cases}) == len(cases), family
        assert all(case.words for case in cases if case.verdict is not Verdict.PASS), family
        total.update(counts)
    assert documented["all"] == (sum(total.values()), total["PASS"], total["FAIL"], total["UNKNOWN"])
    assert sum(total.values()) >= 150
