"""Of a test that takes long for each case, tox tries some cases; ``long`` tries the others."""

from __future__ import annotations

import itertools

import pytest
import variants

TESTS = """
import pytest

NINE = pytest.mark.parametrize("case", ["first", "first-again", "other", "firstly", *"abcde"])

@pytest.mark.cases(3)
@NINE
def test_three(case): ...

@pytest.mark.cases("first", "e")
@NINE
def test_named(case): ...

@pytest.mark.cases("a name that is gone")
@NINE
def test_at_least_one(case): ...

@pytest.mark.cases(1)
@pytest.mark.parametrize("case", [pytest.param(0, marks=pytest.mark.long), pytest.param(1)])
def test_a_long_case(case): ...

@NINE
def test_all(case): ...
"""


def ran(pytester: pytest.Pytester, markers: str) -> dict[str, list[str]]:
    pytester.makepyprojecttoml(
        '[tool.pytest]\nmarkers = ["long: x", "variant: x", "cases(which): x"]\naddopts = ["-p", "no:harness"]'
    )
    pytester.makepyfile(TESTS)
    recorder = pytester.inline_run("-m", markers, plugins=[variants])
    cases = [report.nodeid.split("::")[1].rstrip("]").split("[") for report in recorder.listoutcomes()[0]]
    return {test: [case for other, case in cases if other == test] for test, _ in cases}


def test_some_cases_are_tried_and_the_others_are_run_by_long(pytester: pytest.Pytester) -> None:
    first = ran(pytester, "not long and not variant")
    assert {test: len(cases) for test, cases in first.items()} == {
        "test_three": 3, "test_named": 3, "test_at_least_one": 1, "test_a_long_case": 1, "test_all": 9,
    }  # fmt: skip
    assert first["test_named"] == ["first", "first-again", "e"]
    second = ran(pytester, "long or variant")
    assert "test_all" not in second
    for test, cases in second.items():
        assert len(cases) + len(first[test]) == (2 if test == "test_a_long_case" else 9)
        assert not set(cases).intersection(first[test])


def test_cases_are_spread_evenly_and_begin_by_the_name_of_the_test() -> None:
    ids = [*"abcdefghijkl"]
    assert {len(variants.tried(name, ids[:7], [3])) for name in ("a", "b", "c", "d")} == {3}
    assert variants.tried("a", ids[:2], [5]) == {0, 1}
    assert len({min(variants.tried(name, ids[:2], [1])) for name in ("a", "b", "c", "d")}) == 2
    kept = sorted(variants.tried("a", ids, [4]))
    assert [later - earlier for earlier, later in itertools.pairwise(kept)] == [3, 3, 3]
