"""Which machines are accused, and which are not: on simulated fleets with planted faults and their clean twins."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timezone

import pytest
import simulated_fleet as simulated
from simulation import Score

from harness.fleet.actions import Action
from harness.fleet.fleet import judge_runs
from harness.fleet.policy import Accepted, Expectation, Judging, Policy, Xids
from harness.fleet.seen import Seen
from harness.fleet.statistics import binomial_tail, center_and_spread, discoveries, tail
from harness.fleet.verdicts import FleetVerdict, State
from harness.records import Finding, RunRecord, Verdict

NOW = datetime(2026, 11, 3, tzinfo=timezone.utc)


def judged(records: list[RunRecord], policy: Policy | None = None) -> FleetVerdict:
    runs = [Seen(f"{simulated.name_of(each)}/run.json", each) for each in records]
    return judge_runs(runs, policy or Policy(), NOW)


def sound(count: int, seed: int = 0) -> list[RunRecord]:
    draw = random.Random(seed)
    return [simulated.sound(number, draw) for number in range(count)]


def with_finding(record: RunRecord, finding: Finding, check: str = "cards") -> RunRecord:
    results = tuple(
        replace(each, verdict=Verdict.FAIL, findings=(finding,)) if each.check == check else each
        for each in record.results
    )
    return replace(record, results=results, verdict=Verdict.FAIL)


def test_a_sound_fleet_is_proven() -> None:
    found = judged(sound(60))
    assert (found.counts.asked, found.counts.proven, found.exit_code) == (60, 60, 0)
    assert (found.accusations, found.shared) == ((), ())
    assert found.judged_values == 60 * 57


def test_every_kind_of_fault_is_found_on_its_card_with_its_action() -> None:
    """The whole simulation is run by ``simulation.py``; this is a small one with each kind twice."""
    score = Score()
    for seed in (0, 1):
        made = simulated.fleet(seed, machines=500, share=len(simulated.RIGHT) / 500)
        first = judge_runs(made.runs, Policy(), NOW)
        again = {each.machine for each in first.accusations if each.action is Action.RERUN}
        score.add(made, judge_runs(simulated.rerun(made, again, random.Random(seed)).runs, Policy(), NOW))
    assert min(score.planted.values()) == 2
    figures = score.figures()
    assert figures["precision"] >= 0.99, score.false
    assert figures["recall"] >= 0.95, score.table()
    assert figures["right card"] >= 0.98, score.table()
    assert figures["right action"] >= 0.95, score.table()


def test_an_outlier_is_run_again_beside_a_proven_machine_until_a_second_run_confirms_it() -> None:
    records = sound(40)
    slow, _ = simulated.plant(records[7], "slow-products", 3)
    first = judged([*records[:7], slow, *records[8:]])
    (accused,) = first.accusations
    assert (accused.machine, accused.labels, accused.action) == ("sim-0007", ("GPU:3",), Action.RERUN)
    assert accused.control in {
        each.name for each in first.machines if each.state is State.PROVEN and each.rack == "rack-000"
    }
    later = replace(slow, started_at="2026-11-02T08:00:00+00:00")
    (confirmed,) = judged([*records[:7], slow, *records[8:], later]).accusations
    assert (confirmed.action, confirmed.confirmed) == (Action.DRAIN, "also in 1 of 1 earlier runs")
    recovered = replace(records[7], started_at="2026-11-02T08:00:00+00:00")
    assert judged([*records[:7], slow, *records[8:], recovered]).accusations == ()


def test_a_driver_that_is_bad_everywhere_accuses_no_machine() -> None:
    finding = Finding(
        "software", "driver", None, "550", "470", "driver 470.57 is too old", next_step="install NVIDIA driver"
    )
    found = judged([with_finding(each, finding, "software") for each in sound(30)])
    assert found.accusations == ()
    (shared,) = found.shared
    assert (len(shared.machines), shared.of, shared.action) == (30, 30, Action.UPDATE)
    assert (found.counts.shared, found.counts.proven, found.exit_code) == (30, 0, 1)


def test_a_driver_that_is_bad_on_a_part_of_the_fleet_is_named() -> None:
    draw = random.Random(1)
    finding = Finding("arithmetic", "matmul", "GPU:2", "1", "2", "GPU:2 computes matmul incorrectly", subject="matmul")
    records = []
    for number in range(60):
        record = simulated.sound(number, draw, driver="575.51.03" if number % 4 == 0 else "570.86.15")
        records.append(with_finding(record, finding, "arithmetic") if number % 4 == 0 else record)
    found = judged(records)
    assert found.accusations == ()
    assert [(each.common, len(each.machines)) for each in found.shared] == [("driver 575.51.03", 15)]


def test_a_driver_that_is_slower_than_another_is_named() -> None:
    draw, records = random.Random(1), []
    for number in range(60):
        record = simulated.sound(number, draw, driver="575.51.03" if number % 4 == 0 else "570.86.15")
        if number % 4 == 0:
            for card in record.cards:
                record = simulated.slower(record, ("matmul float32",), "card", 0.8, (card.label,))
        records.append(record)
    found = judged(records)
    assert found.accusations == ()
    assert [each.common for each in found.shared] == ["driver 575.51.03"]
    assert "matmul float32" in found.shared[0].reasons[0]


def test_a_slow_rack_is_named_as_a_rack_and_a_slow_machine_in_another_rack_as_a_machine() -> None:
    records = sound(200)
    rack = [each for each in records if each.host is not None and each.host.rack == "rack-003"]
    names = ("all-reduce nccl bus",)
    made = [
        simulated.slower(each, names, "machine", 0.8) if each in rack or each is records[150] else each
        for each in records
    ]
    found = judged(made)
    assert [(each.common, len(each.machines)) for each in found.shared] == [("rack rack-003", 20)]
    # Of values with heavy tails, one or another has to be measured again.
    assert [each.machine for each in found.accusations if names[0] in each.reasons[0]] == ["sim-0150"]


def test_the_same_finding_on_two_machines_is_theirs() -> None:
    records = sound(30)
    for number in (3, 9):
        records[number], _ = simulated.plant(records[number], "stuck-bit", 2)
    made = records
    found = judged(made)
    assert found.shared == ()
    assert [each.machine for each in found.accusations] == ["sim-0003", "sim-0009"]


def test_the_policy_accepts_for_a_time_ignores_xids_and_changes_their_action() -> None:
    records = sound(12)
    records[4] = simulated.plant(records[4], "xid-48", 1)[0]
    records[5] = simulated.plant(records[5], "link-width", 1)[0]
    by_machine = {each.machine: each.action for each in judged(records).accusations}
    assert by_machine == {"sim-0004": Action.RESET, "sim-0005": Action.RESEAT}
    other = judged(records, Policy(xid=Xids(actions={"48": Action.REPLACE})))
    assert {each.machine: each.action for each in other.accusations}["sim-0004"] is Action.REPLACE
    accepted = Accepted(reason="8 lanes", machine="sim-0005", kind="link", until=datetime(2026, 12, 1).date())  # noqa: DTZ001
    ignoring = judged(records, Policy(xid=Xids(ignore=(48,)), accept=(accepted,)))
    assert (ignoring.accusations, ignoring.counts.proven, ignoring.exit_code) == ((), 12, 0)
    assert ignoring.accepted == ("sim-0005 link until 2026-12-01: 8 lanes (1 findings)",)
    expired = replace_until(accepted, datetime(2026, 11, 3).date())  # noqa: DTZ001
    over = judged(records, Policy(accept=(expired,)))
    assert "sim-0005" in {each.machine for each in over.accusations}
    assert "no longer" in over.notes[0]


def replace_until(entry: Accepted, until: object) -> Accepted:
    return entry.model_copy(update={"until": until})


def test_what_a_model_should_reach_is_judged_and_an_expectation_that_matches_nothing_is_named() -> None:
    records = sound(12)
    records[4] = simulated.slower(records[4], ("matmul float32",), "card", 0.5, ("GPU:6",))
    entry = Expectation(model="*H100*", figure="matmul float32", at_least=40_000.0, unit="GFLOP/s", source="acceptance")
    typo = entry.model_copy(update={"figure": "matmul flaot32"})
    found = judged(records, Policy(expect=(entry, typo)))
    (accused,) = found.accusations
    assert (accused.machine, accused.labels, accused.severity) == ("sim-0004", ("GPU:6",), Verdict.FAIL)
    assert "expected at least 40,000 GFLOP/s (acceptance)" in accused.reasons[0]
    assert found.notes == ("the policy expects matmul flaot32 (GFLOP/s) of *H100*: no such figure",)


def test_what_proves_nothing_is_incomplete() -> None:
    records = sound(4)
    records[1] = replace(records[1], complete=False, results=records[1].results[:3])
    records[2] = replace(records[2], results=(), complete=False)
    records[3] = replace(records[3], started_at="2031-01-01T00:00:00+00:00")
    found = judged(records)
    states = {each.name: each.state for each in found.machines}
    assert states == {"sim-0000": State.PROVEN, "sim-0001": State.INCOMPLETE, "sim-0002": State.INCOMPLETE}
    assert (found.counts.complete, found.exit_code) == (False, 3)
    assert "a clock is wrong" in found.left_out[0].why


def test_few_cards_are_not_compared_and_the_report_says_so() -> None:
    found = judged([simulated.plant(sound(1)[0], "slow-products", 0)[0]], Policy(judging=Judging(least_cards=9)))
    assert (found.accusations, found.judged_values, found.values_too_few) == ((), 0, 57)


def test_medians_stand_while_fewer_than_half_of_the_values_are_wrong() -> None:
    values = [100.0, 101.0, 99.0, 100.5, 10.0, 9.0]
    center, spread = center_and_spread(values, 0.02)
    assert 99 <= center <= 100
    assert spread < 2.5
    assert center_and_spread([5.0] * 9, 0.02)[1] == pytest.approx(0.1), "the floor"


def test_the_false_discovery_rate_follows_the_worked_example_of_its_authors() -> None:
    """Benjamini and Hochberg (1995), section 3.2: of 15 tests, four are believed at 5 %."""
    chances = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
        0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0,
    ]  # fmt: skip
    assert sum(discoveries(chances, 0.05)) == 4
    assert discoveries([each for each in chances if each <= 0.05], 0.05, len(chances)) == discoveries(chances, 0.05)[:9]
    assert discoveries([], 0.05) == []


def test_tails_are_those_of_the_distributions() -> None:
    assert tail(1.959964) == pytest.approx(0.025, rel=1e-4)
    assert binomial_tail(3, 3, 0.5) == pytest.approx(0.125)
    assert binomial_tail(0, 3, 0.5) == 1.0
