"""The table of rules: each has a code of its own, says what it means, and is shown by a planted fault."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from harness.cli.app import app
from harness.faults.catalogue import CATALOGUE
from harness.judgement.diagnosis.looks import LOOKS, Look
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.rules import first_difference
from harness.judgement.diagnosis.rules.table import RULES

EVERY: list[Rule | Look] = [*RULES, *LOOKS]


def test_no_two_rules_have_one_code_or_name() -> None:
    assert len({each.code for each in EVERY}) == len({each.name for each in EVERY}) == len(EVERY)
    assert all(re.fullmatch(r"C\d{3}", each.code) and re.fullmatch(r"[a-z-]+", each.name) for each in EVERY)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.by != "platform"], ids=lambda rule: str(rule.name))
def test_a_rule_is_shown_by_a_planted_fault(rule: Rule) -> None:
    """``tests/faults`` sees that the fault gives the code, and that its clean twin passes.

    What TensorFlow or a device does wrong is in no program. ``test_settings.py`` has stand-ins.
    """
    looks = {look.code for look in LOOKS} if rule is first_difference.RULE else set()
    assert {rule.code, *looks} & {fault.rule for fault in CATALOGUE.values()}


def test_explain_prints_what_a_cause_means_by_its_code_or_name() -> None:
    rule = next(rule for rule in RULES if rule.code == "C101")
    shown = CliRunner().invoke(app, ["explain", "c101"]).output
    assert shown.startswith("C101 rows-moved\n")
    assert " ".join(rule.meaning.split()) in " ".join(shown.split())
    assert CliRunner().invoke(app, ["explain", rule.name]).output == shown
    everything = CliRunner().invoke(app, ["explain"]).output
    assert all(f"{rule.code} {rule.name}: " in everything for rule in EVERY)
