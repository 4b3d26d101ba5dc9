"""The catalogue itself: what has to be planted is, under names that can be told apart."""

from __future__ import annotations

import re
from collections import Counter

from harness.faults.catalogue import CATALOGUE
from harness.faults.fault import GROUPS


def test_every_group_of_faults_has_some() -> None:
    found = Counter(fault.group for fault in CATALOGUE.values())
    assert set(found) == set(GROUPS.values())
    assert sum(found.values()) >= 100


def test_a_fault_is_named_after_its_class() -> None:
    assert all(re.fullmatch(r"[A-Z]\d\d-[a-z0-9-]+", name) for name in CATALOGUE)
    assert all(fault.name == name for name, fault in CATALOGUE.items())


def test_each_fault_has_a_title_of_its_own_and_says_what_its_first_line_must_name() -> None:
    titles = Counter(fault.title for fault in CATALOGUE.values())
    assert [title for title, count in titles.items() if count > 1] == []
    assert [name for name, fault in CATALOGUE.items() if not fault.cause or fault.names_cause("no such words", 4)] == []
