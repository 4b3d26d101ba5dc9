"""Of a test that verifies many programs, tox tries one case or as many as it asks for; ``long`` tries the others."""

from __future__ import annotations

import itertools

import pytest
import variants

TESTS = """
import pytest

@pytest.fixture
def devices():
    return ()

@pytest.mark.parametrize("case", range(9))
def test_many(devices, case): ...

@pytest.mark.cases(3)
@pytest.mark.parametrize("case", range(9))
def test_three(devices, case): ...

@pytest.mark.parametrize("case", [pytest.param(0, marks=pytest.mark.long), pytest.param(1)])
def test_a_long_case(devices, case): ...

@pytest.mark.parametrize("case", range(9))
def test_without_devices(case): ...

def test_of_one_case(devices): ...
"""


def counted(pytester: pytest.Pytester, folder: str, markers: str) -> dict[str, int]:
    pytester.makepyprojecttoml(
        '[tool.pytest]\nmarkers = ["long: x", "variant: x", "cases(number): x"]\naddopts = ["-p", "no:harness"]'
    )
    file = pytester.mkdir(folder) / "test_it.py"
    file.write_text(TESTS)
    recorder = pytester.inline_run("-m", markers, plugins=[variants])
    passed = [report.nodeid.split("::")[1].split("[")[0] for report in recorder.listoutcomes()[0]]
    return {name: passed.count(name) for name in passed}


@pytest.mark.parametrize("folder", variants.FOLDERS)
def test_one_case_is_tried_and_the_others_are_variants(pytester: pytest.Pytester, folder: str) -> None:
    first = counted(pytester, folder, "not long and not variant")
    assert first == {
        "test_many": 1, "test_three": 3, "test_a_long_case": 1, "test_without_devices": 9, "test_of_one_case": 1,
    }  # fmt: skip


def test_the_other_cases_are_run_by_long(pytester: pytest.Pytester) -> None:
    assert counted(pytester, "judgement", "long or variant") == {
        "test_many": 8, "test_three": 6, "test_a_long_case": 1,
    }  # fmt: skip


def test_elsewhere_every_case_is_tried(pytester: pytest.Pytester) -> None:
    first = counted(pytester, "devices", "not long and not variant")
    assert first["test_many"] == first["test_three"] == 9


def test_cases_are_spread_evenly_and_begin_by_the_name_of_the_test() -> None:
    assert {len(variants.tried(name, 7, 3)) for name in ("a", "b", "c", "d")} == {3}
    assert variants.tried("a", 2, 5) == {0, 1}
    assert len({min(variants.tried(name, 2, 1)) for name in ("a", "b", "c", "d")}) == 2
    kept = sorted(variants.tried("a", 12, 4))
    assert [later - earlier for earlier, later in itertools.pairwise(kept)] == [3, 3, 3]
