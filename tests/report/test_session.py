from __future__ import annotations

import json
from dataclasses import asdict

from harness.records import Exercised
from harness.report.session import DeviceUse, SessionTotals


def test_what_a_test_says_travels_as_plain_values() -> None:
    said = DeviceUse(True, "4 devices", 2, Exercised(1, 2, 3, 4, 5, ("/CPU:0", "/CPU:1")), 1)
    assert DeviceUse.from_plain(json.loads(json.dumps(asdict(said)))) == said
    assert DeviceUse.from_plain(json.loads(json.dumps(asdict(DeviceUse())))) == DeviceUse()


def test_a_session_without_tests_that_need_devices_says_nothing() -> None:
    totals = SessionTotals()
    assert totals.lines() == []
    assert not totals.nothing_exercised


def test_what_was_exercised_is_added_up() -> None:
    totals = SessionTotals()
    for test in ("a", "b"):
        totals.add(
            test, DeviceUse(True, "2 devices", 1, Exercised(programs=1, values=10, devices=(f"/CPU:{test}",))), None
        )
    assert totals.lines() == [
        "2 devices",
        "2 verifications: 2 programs, 20 values on 2 devices",
    ]
    assert not totals.nothing_exercised


def test_verifications_that_did_not_pass_are_told_with_their_tests() -> None:
    totals = SessionTotals()
    totals.add("a", DeviceUse(True, "2 devices", 2, Exercised(programs=2), 1, proved=("every batch size",)), None)
    totals.add("b", DeviceUse(True, "2 devices", 1, Exercised(programs=1)), None)
    assert totals.lines()[2:] == ["proved: 1 for every batch size", "1 of them did not pass:", "  1 in a"]


def test_of_many_tests_whose_verifications_did_not_pass_the_files_are_told() -> None:
    totals = SessionTotals()
    for number in range(12):
        test = f"tests/test_{number % 2}.py::test_it[{number}]"
        totals.add(test, DeviceUse(True, "2 devices", 1, Exercised(programs=1), 1), None)
    assert totals.lines()[2:] == ["12 of them did not pass:", "  6 in tests/test_0.py", "  6 in tests/test_1.py"]


def test_a_session_in_which_every_test_was_skipped_exercised_nothing() -> None:
    totals = SessionTotals()
    totals.add("a", DeviceUse(True, "2 devices"), "no GPU")
    totals.add("b", DeviceUse(True, "2 devices"), "no GPU")
    assert totals.nothing_exercised
    assert totals.lines()[1].startswith("UNKNOWN: nothing was exercised. All 2 tests that need devices")
    assert totals.lines()[2:] == ["  2 x no GPU"]


def test_one_test_that_was_not_skipped_is_enough() -> None:
    totals = SessionTotals()
    totals.add("a", DeviceUse(True, "2 devices"), "no GPU")
    totals.add("b", DeviceUse(True, "2 devices"), None)
    assert not totals.nothing_exercised
    assert totals.lines() == ["2 devices"]


def test_a_test_that_is_skipped_after_its_setup_counts_as_skipped() -> None:
    totals = SessionTotals()
    totals.add("a", DeviceUse(True, "2 devices"), None)
    totals.add("a", DeviceUse(True, "2 devices"), "skipped in the test")
    totals.add("a", DeviceUse(True, "2 devices"), None)
    assert totals.nothing_exercised


def test_a_test_that_verifies_without_asking_for_devices_counts_but_needs_none() -> None:
    totals = SessionTotals()
    totals.add("a", DeviceUse(True, "2 devices"), "no GPU")
    totals.add("b", DeviceUse(False, None, 1, Exercised(programs=1)), None)
    assert totals.nothing_exercised
    assert totals.lines()[1] == "1 verification: 1 program"
