from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy.stats import false_discovery_control
from synthetic_runs import FINGERPRINT, record, run

from harness.records import Verdict
from harness.report.gate import gate_lines
from harness.speed.change import Change, Rules, Variation, judged_change
from harness.speed.gate import FigureChange, Judgement, conclude, judge, suspects
from harness.speed.record import SpeedupRecord

_RULES = Rules()
_STEADY = Variation(0.004, math.inf, "given")


def _judge(base: dict[str, SpeedupRecord], new: dict[str, SpeedupRecord]) -> Judgement:
    return judge(run(base), new, FINGERPRINT, _RULES, lambda _name, _figure: _STEADY, variation="given")


def _words(said: Judgement) -> str:
    return "\n".join(gate_lines(said))


def test_the_same_code_passes() -> None:
    names = "abcde"
    said = _judge(
        {name: record(seed=seed) for seed, name in enumerate(names)},
        {name: record(seed=seed + 50) for seed, name in enumerate(names)},
    )
    assert said.verdict is Verdict.PASS
    assert [(each.name, each.figure, each.change.verdict) for each in said.judged] == [
        (name, figure, "same") for name in names for figure in ("fastest", "typical")
    ]
    assert _words(said).endswith("PASS: no loss of speedup beyond 5.0% was shown in 5 benchmarks")


def test_a_loss_of_a_tenth_that_is_confirmed_fails() -> None:
    said = _judge(
        {"a": record(1.9), "b": record(1.9, seed=1)}, {"a": record(1.71, seed=2, second=1.71), "b": record(1.9, seed=3)}
    )
    assert said.verdict is Verdict.FAIL
    assert {each.name for each in said.judged if each.fails} == {"a"}
    assert "FAIL: worse by more than the threshold, confirmed by a second measurement (-1" in _words(said)
    assert said.reason == "a loss of speedup beyond 5.0% in 1 of 2 benchmarks: a"


def test_a_loss_that_the_second_measurement_does_not_show_passes() -> None:
    said = _judge({"a": record(1.9)}, {"a": record(1.71, seed=2, second=1.9)})
    assert said.verdict is Verdict.PASS
    assert said.judged[0].confirmed is False
    assert "worse, contradicted by the second measurement" in _words(said)


def test_a_second_measurement_that_cannot_exclude_the_loss_leaves_the_benchmark_undecided() -> None:
    def change(percent: float, half: float) -> Change:
        return judged_change(math.log1p(percent / 100), half / 2.326 / 100, math.inf, _RULES)

    def concluded(*seconds: Change) -> Judgement:
        rows = [FigureChange(str(number), 1.9, 1.48, change(-22.1, 10), each) for number, each in enumerate(seconds)]
        return conclude(replace(empty, baseline="base"), rows)

    empty = Judgement(Verdict.UNKNOWN, "", _RULES, "", "")
    imprecise, excludes, confirms = change(-14.4, 15), change(-1.0, 2), change(-14.4, 5)
    both = concluded(imprecise, excludes)
    assert [(each.imprecise, each.contradicted, each.fails) for each in both.judged] == [
        (True, False, False),
        (False, True, False),
    ]
    assert both.verdict is Verdict.PASS
    assert both.reason == "no loss of speedup beyond 5.0% was shown in 2 benchmarks; 1 undecided"
    words = _words(both)
    assert "worse by more than the threshold, not confirmed: the second measurement (-14.4%) is too imprecise" in words
    assert "worse, contradicted by the second measurement (-1.0%)" in words
    # As where every benchmark "cannot tell".
    assert concluded(imprecise).verdict is Verdict.WARN
    assert concluded(imprecise).reason == (
        "cannot tell: no loss beyond 5.0% was shown in 1 benchmark, and none is ruled out; measure longer, or run "
        "`harness calibrate`"
    )
    assert concluded(confirms, imprecise).verdict is Verdict.FAIL
    assert concluded(excludes).verdict is Verdict.PASS


def test_a_loss_that_nobody_looked_at_again_is_neither_a_failure_nor_a_pass() -> None:
    said = _judge({"a": record(1.9)}, {"a": record(1.71, seed=2)})
    assert (said.verdict, said.judged[0].confirmed, said.judged[0].fails) == (Verdict.UNKNOWN, None, False)
    assert "worse by more than the threshold, but measured only once" in _words(said)
    assert "--harness-speedup-twice" in said.reason


def test_a_loss_within_the_threshold_is_worse_and_passes() -> None:
    said = _judge({"a": record(1.9)}, {"a": record(1.84, seed=2)})
    assert (said.verdict, said.judged[0].change.verdict) == (Verdict.PASS, "worse")
    assert "worse, possibly within the threshold" in _words(said)


def test_the_number_of_benchmarks_is_corrected_for() -> None:
    # One p-value that fails by itself and does not among twenty.
    base, new = record(1.9, seed=1), record(1.9 * 0.935, seed=2)
    new = replace(new, second_single_ns=new.single_ns, second_parallel_ns=new.parallel_ns)
    alone = _judge({"a": base}, {"a": new})
    many = {f"n{seed}": record(seed=seed) for seed in range(10, 29)}
    others = {f"n{seed}": record(seed=seed + 100) for seed in range(10, 29)}
    among = _judge({"a": base, **many}, {"a": new, **others})
    assert alone.judged[0].p_corrected == alone.judged[0].change.p_beyond
    assert alone.verdict is Verdict.FAIL
    assert among.verdict is Verdict.PASS
    assert among.judged[0].p_corrected == pytest.approx(20 * alone.judged[0].p_corrected)


def test_the_correction_is_benjamini_and_hochberg_s() -> None:
    # Their own form: the i-th smallest of m p-values times m / i, and no larger than the next.
    corrected = false_discovery_control([0.01, 0.04, 0.03, 0.005], method="bh")
    assert corrected == pytest.approx([0.02, 0.04, 0.04, 0.02])


def test_another_machine_is_not_comparable_and_both_values_are_named() -> None:
    said = judge(run({"a": record()}), {"a": record()}, replace(FINGERPRINT, cores_logical=4), _RULES)
    assert said.verdict is Verdict.UNKNOWN
    assert "differs: cores_logical: 2 in the baseline, 4 now" in _words(said)
    assert said.reason.startswith("not comparable")
    assert said.judged == ()


def test_an_unknown_machine_is_not_comparable() -> None:
    assert judge(run({"a": record()}, None), {"a": record()}, FINGERPRINT, _RULES).verdict is Verdict.UNKNOWN


def test_what_is_missing_is_no_pass_and_what_is_new_is_named() -> None:
    both = {"a": record()}
    said = _judge({**both, "gone": record()}, {**both, "fresh": record(0.5)})
    assert said.verdict is Verdict.UNKNOWN
    assert (said.missing, said.new) == (("gone",), ("fresh",))
    words = _words(said)
    assert "missing: gone is in the baseline" in words
    assert "new: fresh has no baseline" in words
    assert _judge(both, {**both, "fresh": record(0.5)}).verdict is Verdict.PASS


def test_nothing_in_common_is_unknown() -> None:
    assert _judge({}, {"a": record()}).reason.startswith("nothing was compared")


def test_what_does_not_gate_is_named_and_not_judged() -> None:
    shared = record(1.9, gates=False)
    said = _judge({"a": record(), "card": shared}, {"a": record(seed=1), "card": record(0.5, gates=False)})
    assert said.verdict is Verdict.PASS
    assert said.ungated == (("card", "not judged: shares one card: not a speedup"),)
    assert _judge({"card": shared}, {"card": shared}).verdict is Verdict.UNKNOWN


def test_what_gated_and_no_longer_does_is_no_pass() -> None:
    both = {"a": record()}
    assert _judge({**both, "b": record()}, {**both, "b": record(gates=False)}).verdict is Verdict.UNKNOWN
    fewer = replace(record(), devices=FINGERPRINT.devices[:1])
    said = _judge({**both, "b": record()}, {**both, "b": fewer})
    assert said.verdict is Verdict.UNKNOWN
    assert "b: not judged: the devices differ: CPU:0, CPU:1 before; CPU:0 now" in _words(said)


def test_where_nothing_can_be_told_it_is_a_warning() -> None:
    wide, wider = record(scatter=0.3, seed=1), record(scatter=0.3, seed=2)
    said = _judge({"a": wide}, {"a": wider})
    assert (said.verdict, said.judged[0].change.verdict) == (Verdict.WARN, "cannot tell")
    assert "more pairs than the 60 measured" in _words(said)
    one_of_two = _judge({"a": wide, "b": record()}, {"a": wider, "b": record(seed=3)})
    assert one_of_two.verdict is Verdict.PASS
    assert one_of_two.reason.endswith("in 2 benchmarks; 1 undecided")


def test_a_second_look_is_asked_for_where_one_benchmark_alone_shows_a_loss() -> None:
    base = record(1.9)
    assert suspects("a", base, record(1.6, seed=1), lambda _name, _figure: _STEADY, _RULES)
    assert not suspects("a", base, record(1.88, seed=1), lambda _name, _figure: _STEADY, _RULES)
    assert not suspects("a", base, record(1.6, seed=1, gates=False), lambda _name, _figure: _STEADY, _RULES)
