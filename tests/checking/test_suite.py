"""The list of checks: light to load, with ids that can be chosen from."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from harness.checking.check import Check, CheckContext, Level
from harness.checking.suite import Suite, load_suite
from harness.checks.registry import REFERENCE, SUITE
from harness.errors import UnknownCheck
from harness.records import CheckResult

IDS = {
    "devices-distinct",
    "cluster",
    "strategies",
    "software",
    "arithmetic",
    "collectives",
    "isolation",
    "cards",
    "memory",
    "memory-settings",
    "copies",
    "corruption",
    "sustained-load",
    "vector-add",
    "matpow",
    "gradient-colocation",
    "generated-programs",
    "pipeline",
    "ensemble",
    "tasks",
    "mirrored-strategy",
    "polynomial-fit",
    "digits-classifier",
}


def test_the_checks_of_the_suite_are_these() -> None:
    assert set(SUITE.ids) == IDS


def test_every_check_says_what_it_proves_and_takes() -> None:
    for check in SUITE.checks:
        assert check.title
        assert len(check.proves) > 20
        assert not check.proves.endswith(".")
        assert check.typical_s > 0


def test_listing_the_checks_loads_neither_tensorflow_nor_hypothesis_nor_pytest() -> None:
    code = (
        "import sys, harness.checks.registry\n"
        "print([name for name in ('tensorflow', 'hypothesis', 'sklearn', 'pytest') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_named_means_all_checks_of_the_level_in_order() -> None:
    assert SUITE.select(level=Level.DEEP) == SUITE.checks
    assert [check.level for check in SUITE.select()] == [Level.QUICK] * len(SUITE.select())


def test_a_level_has_the_checks_of_those_before_it_and_more_examples() -> None:
    made = [replace(SUITE.checks[0], id=f"a-{level}", level=level) for level in Level]
    suite = replace(SUITE, checks=tuple(made))
    chosen = {level: [check.id for check in suite.select(level=level)] for level in Level}
    assert chosen == {
        Level.QUICK: ["a-quick"],
        Level.STANDARD: ["a-quick", "a-standard"],
        Level.DEEP: ["a-quick", "a-standard", "a-deep"],
    }
    assert [check.id for check in suite.select(["a-deep"])] == ["a-deep"]
    assert Level.QUICK.factor < Level.STANDARD.factor < Level.DEEP.factor


def test_checks_are_chosen_by_id_once_and_in_the_order_of_the_suite() -> None:
    chosen = SUITE.select(["matpow", "devices-distinct", "matpow"])
    assert [check.id for check in chosen] == ["devices-distinct", "matpow"]


def test_an_unknown_id_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(UnknownCheck) as caught:
        SUITE.select(["matpow", "mat-pow"])
    assert caught.value.check_id == "mat-pow"
    assert caught.value.known == SUITE.ids
    assert "vector-add" in str(caught.value)


def test_two_checks_of_one_id_are_refused() -> None:
    def run(context: CheckContext) -> CheckResult:
        raise AssertionError("must not run")

    check = Check("twice", "t", "p", 1, 1, run)
    with pytest.raises(ValueError, match="duplicate check ids: twice"):
        Suite((check, check), SUITE.configure, SUITE.fingerprint)


def test_a_suite_is_loaded_by_its_name() -> None:
    assert load_suite(REFERENCE) is SUITE


def test_what_is_no_suite_is_refused() -> None:
    with pytest.raises(TypeError, match="is of type dict"):
        load_suite("harness.finding_kinds:KINDS")
