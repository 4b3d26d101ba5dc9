"""The catalogue itself: what has to be planted is, under names that can be told apart."""

from __future__ import annotations

import re
from collections import Counter

from harness.faults.catalogue import FAULTS

_VALUES = "V01 V02 V03 V04 V05 V06 V07 V08 V12 V14 V15 V16 V17 V18 V19 V20 V21"
_PLACES = "P01 P02 P03 P04 P05 P06 P08 P09 P10 P11 P12 P13 P14 P16 P17 P18"
_PATTERNS = "M01 M02 M03 M04"
_SET_UP = "C06"


def test_every_fault_that_can_be_written_as_a_program_is_planted() -> None:
    wanted = " ".join([_VALUES, _PLACES, _PATTERNS, _SET_UP])
    assert {fault.id for fault in FAULTS.values()} == set(wanted.split())


def test_a_fault_is_named_after_its_class() -> None:
    assert all(re.fullmatch(rf"{fault.id}-[a-z0-9-]+", name) for name, fault in FAULTS.items())
    assert all(fault.name == name for name, fault in FAULTS.items())


def test_no_two_faults_have_one_title() -> None:
    titles = Counter(fault.title for fault in FAULTS.values())
    assert [title for title, count in titles.items() if count > 1] == []
