from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy import stats
from synthetic_runs import FINGERPRINT, record, run

from harness.errors import UsageError
from harness.records import Verdict
from harness.report.gate import gate_lines
from harness.speed.baseline import SavedRun
from harness.speed.change import Rules
from harness.speed.gate import judge_rounds, judged_rounds, order_of

_RULES = Rules()


def _runs(speedup: float, first_seed: int, moves: tuple[float, ...] = (0.0, 0.004, -0.004, 0.0)) -> list[SavedRun]:
    return [run({"a": record(speedup * (1 + move), seed=first_seed + n)}) for n, move in enumerate(moves)]


def test_both_versions_have_the_same_mean_time() -> None:
    order = order_of(3)
    when = {version: [n for n, each in enumerate(order) if each == version] for version in "AB"}
    assert len(when["A"]) == len(when["B"]) == 6
    assert sum(when["A"]) == sum(when["B"])
    with pytest.raises(UsageError, match="--rounds 0; accepted: 1 or more"):
        order_of(0)


def test_a_worked_example() -> None:
    # Means 0.64 and 0.56; the deviations of each are -0.01, 0, 0.01: variance 1e-4 each; se = sqrt(1e-4 (1/3 + 1/3)).
    found = judged_rounds("a", [0.63, 0.64, 0.65], [0.55, 0.56, 0.57], _RULES)
    assert found.change.error == pytest.approx(math.sqrt(2e-4 / 3))
    assert found.change.freedom == 4
    assert found.change.interval.value == pytest.approx(math.expm1(-0.08))
    beyond = stats.ttest_ind([0.55, 0.56, 0.57], [x + math.log(0.95) for x in (0.63, 0.64, 0.65)], alternative="less")
    assert found.change.p_beyond == pytest.approx(beyond.pvalue)


def test_a_loss_is_found_and_the_same_code_passes() -> None:
    same = judge_rounds(_runs(1.9, 0), _runs(1.9, 10), _RULES)
    assert (same.verdict, same.judged[0].change.verdict) == (Verdict.PASS, "same")
    lost = judge_rounds(_runs(1.9, 0), _runs(1.71, 10), _RULES)
    assert lost.verdict is Verdict.FAIL
    assert any(line.endswith("FAIL: worse by more than the threshold") for line in gate_lines(lost))


def test_runs_that_wander_cannot_tell_and_say_how_many_rounds_would() -> None:
    wild = (0.1, -0.1, 0.1, -0.1)
    said = judge_rounds(_runs(1.9, 0, wild), _runs(1.9, 10, wild), _RULES)
    assert said.judged[0].change.verdict == "cannot tell"
    assert said.judged[0].change.more is not None
    assert "times as many rounds are needed" in said.judged[0].change.more


def test_runs_of_another_machine_are_not_comparable() -> None:
    b_runs = _runs(1.9, 10)
    b_runs[2] = replace(b_runs[2], fingerprint=replace(FINGERPRINT, tf32=False))
    said = judge_rounds(_runs(1.9, 0), b_runs, _RULES)
    assert said.verdict is Verdict.UNKNOWN
    assert [difference.field for difference in said.differences] == ["tf32"]


def test_what_is_not_in_every_run_is_missing_or_new() -> None:
    a_runs, b_runs = _runs(1.9, 0), _runs(1.9, 10)
    gone = replace(a_runs[0], records={**a_runs[0].records, "gone": record()})
    fresh = replace(b_runs[0], records={**b_runs[0].records, "fresh": record()})
    said = judge_rounds([gone, *a_runs[1:]], [fresh, *b_runs[1:]], _RULES)
    assert (said.verdict, said.missing, said.new) == (Verdict.UNKNOWN, ("gone",), ("fresh",))


def test_what_does_not_gate_is_not_judged() -> None:
    shared = [run({"a": record(gates=False, seed=seed)}) for seed in range(4)]
    said = judge_rounds(shared[:2], shared[2:], _RULES)
    assert said.verdict is Verdict.UNKNOWN
    assert said.ungated == (("a", "not judged: shares one card: not a speedup"),)


def test_values_without_any_scatter_are_no_measurement() -> None:
    with pytest.raises(UsageError, match="a: all runs of A have exactly the same speedup"):
        judged_rounds("a", [0.6, 0.6], [0.5, 0.5], _RULES)
