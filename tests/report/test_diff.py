"""What changed between two runs, and which of it is worse."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample_records as samples

from harness.errors import UsageError
from harness.records import CheckResult, Exercised, Figure, Finding, GpuFacts, RunRecord, Verdict
from harness.report.diff import conclusion, diff

FINDING = Finding("value", "output y", samples.full("CPU:1"), "1.0", "1.001", "off by 1e-3")


def directions(old: RunRecord, new: RunRecord) -> list[tuple[str, str, str]]:
    return [(each.direction, each.about, each.what) for each in diff(old, new).differences]


def of(verdict: Verdict, *findings: Finding) -> RunRecord:
    return samples.run(CheckResult("c", verdict, "", "", Exercised(values=1), findings))


def measured(value: float, unit: str) -> RunRecord:
    return samples.run(samples.passed("c", figures=(Figure("f", value, unit, "GPU:0", "GPU:1", 1024),)))


@pytest.mark.parametrize("record", [samples.clean(), samples.eight_cards(), samples.failing(), samples.hostile()])
def test_a_run_is_as_it_was(record: RunRecord) -> None:
    said = diff(record, record)
    assert said.differences == ()
    assert said.checks == len(record.results)
    assert conclusion(said).startswith("NOTHING WORSE")


@pytest.mark.parametrize(
    ("old", "new", "direction"),
    [
        (Verdict.PASS, Verdict.FAIL, "worse"),
        (Verdict.PASS, Verdict.WARN, "worse"),
        (Verdict.PASS, Verdict.SKIP, "worse"),
        (Verdict.PASS, Verdict.UNKNOWN, "worse"),
        (Verdict.WARN, Verdict.FAIL, "worse"),
        (Verdict.FAIL, Verdict.PASS, "better"),
        (Verdict.UNKNOWN, Verdict.PASS, "better"),
        (Verdict.FAIL, Verdict.WARN, "better"),
        (Verdict.FAIL, Verdict.SKIP, "worse"),
        (Verdict.FAIL, Verdict.UNKNOWN, "worse"),
        (Verdict.UNKNOWN, Verdict.SKIP, "changed"),
        (Verdict.SKIP, Verdict.UNKNOWN, "changed"),
        (Verdict.SKIP, Verdict.PASS, "better"),
        (Verdict.SKIP, Verdict.FAIL, "worse"),
    ],
)
def test_a_verdict_is_worse_or_better(old: Verdict, new: Verdict, direction: str) -> None:
    assert directions(of(old), of(new)) == [(direction, "verdict", f"c: {old} → {new}")]


def test_a_check_that_is_not_there_any_more_is_worse_and_a_new_one_that_passes_is_not() -> None:
    one, two = samples.run(samples.passed("a")), samples.run(samples.passed("a"), samples.passed("b"))
    assert directions(two, one) == [("worse", "verdict", "b: PASS → no result")]
    assert directions(one, two) == [("changed", "verdict", "b: no result → PASS")]
    failed = samples.run(samples.passed("a"), samples.passed("b", verdict=Verdict.FAIL))
    assert directions(one, failed) == [("worse", "verdict", "b: no result → FAIL")]


def test_findings_are_new_or_gone_whatever_their_figures_say() -> None:
    again = replace(FINDING, found="1.002", message="off by 2e-3")
    assert directions(of(Verdict.FAIL, FINDING), of(Verdict.FAIL, again)) == []
    other = replace(FINDING, device=samples.full("CPU:0"))
    said = directions(of(Verdict.FAIL, FINDING), of(Verdict.FAIL, other))
    assert [(direction, what[:5]) for direction, _, what in said] == [("better", "gone:"), ("worse", "new: ")]
    more = directions(of(Verdict.FAIL, FINDING), of(Verdict.FAIL, FINDING, FINDING))
    assert [(direction, what[:7]) for direction, _, what in more] == [("worse", "1 more ")]


@pytest.mark.parametrize(
    ("unit", "new", "direction"),
    [
        ("GB/s", 80.0, "worse"),
        ("GB/s", 120.0, "better"),
        ("GFLOP/s", 80.0, "worse"),
        ("us", 120.0, "worse"),
        ("us", 80.0, "better"),
        ("x", 80.0, "worse"),
        ("lanes", 25.0, "worse"),
        ("C", 120.0, "changed"),
        ("GB/s", float("nan"), "worse"),
    ],
)
def test_a_figure_that_moved_is_worse_or_better_by_its_unit(unit: str, new: float, direction: str) -> None:
    ((said, about, what),) = directions(measured(100.0, unit), measured(new, unit))
    assert (said, about) == (direction, "figure")
    assert "c: f GPU:0 → GPU:1, 1 KiB: 100" in what


@pytest.mark.parametrize("new", [93.0, 100.0, 107.0])
def test_a_figure_within_what_is_normal_did_not_move(new: float) -> None:
    assert directions(measured(100.0, "GB/s"), measured(new, "GB/s")) == []


def test_a_figure_that_is_not_measured_any_more_is_worse() -> None:
    without = samples.run(samples.passed("c"))
    assert [each[0] for each in directions(measured(1.0, "GB/s"), without)] == ["worse"]
    assert [each[0] for each in directions(without, measured(1.0, "GB/s"))] == ["changed"]


def test_an_incomplete_run_is_worse_than_a_complete_one() -> None:
    record = samples.clean()
    cut = replace(record, complete=False)
    assert directions(record, cut) == [("worse", "run", "was complete, is incomplete")]
    assert directions(cut, record) == [("better", "run", "was incomplete, is complete")]


def test_the_environment_is_told_and_no_judgement_of_it_save_of_a_card_that_is_gone() -> None:
    record = samples.eight_cards()
    updated = replace(record, fingerprint=samples.fingerprint(driver="575.1", cuda="12.8"), cards=record.cards[:-1])
    said = directions(record, updated)
    assert ("changed", "environment", "driver: 570.86 → 575.1") in said
    assert ("worse", "environment", "device GPU:7 is missing") in said
    swapped = replace(record, cards=(*record.cards[:-1], replace(record.cards[-1], uuid="GPU-other")))
    ((direction, _, what),) = directions(record, swapped)
    assert direction == "changed"
    assert what.endswith("GPU-other")


def test_another_gpu_of_the_same_name_is_seen_in_the_environment() -> None:
    same = (GpuFacts("H100", "GPU-0", "9.0", 81559),) * 7
    old, new = (
        replace(samples.clean(), fingerprint=samples.fingerprint(gpus=(*same, GpuFacts("H100", uuid, "9.0", memory))))
        for uuid, memory in (("GPU-a", 81559), ("GPU-b", 40448))
    )
    line = "gpus: H100 GPU-a 9.0 81,559 MiB → H100 GPU-b 9.0 40,448 MiB"
    assert directions(old, new) == [("changed", "environment", line)]


def test_a_described_machine_is_no_match_for_hardware() -> None:
    record = samples.eight_cards()
    with pytest.raises(UsageError, match="cannot be compared: they are of different machines"):
        diff(record, replace(record, described=not record.described))
    cpus = replace(record, cards=tuple(replace(card, kind="CPU") for card in record.cards))
    with pytest.raises(UsageError, match=r"\(old: GPUs; new: CPUs\)"):
        diff(record, cpus)
    assert diff(record, replace(record, cards=())).worse, "a run without a list of devices is compared"


def test_runs_without_a_check_in_common_are_not_compared() -> None:
    with pytest.raises(UsageError, match="they have no check in common"):
        diff(samples.empty(), samples.empty())
    with pytest.raises(UsageError, match=r"\(old: a; new: b\)"):
        diff(samples.run(samples.passed("a")), samples.run(samples.passed("b")))


def of_a_cpu(value: float, level: str = "quick") -> RunRecord:
    figures = (Figure("matmul float32", value, "GFLOP/s", "CPU:1"),)
    return replace(samples.run(samples.passed("c", figures=figures)), level=level)


@pytest.mark.parametrize(
    ("value", "directions"), [(80.0, []), (30.0, ["changed"]), (20.0, ["worse"]), (900.0, ["better"])]
)
def test_what_a_logical_cpu_loses_to_its_neighbours_is_no_loss_of_the_machine(
    value: float, directions: list[str]
) -> None:
    assert [each.direction for each in diff(of_a_cpu(82.0), of_a_cpu(value)).differences] == directions


def test_what_another_level_leaves_out_is_not_worse() -> None:
    def quick(level: str) -> set[str]:
        measured = of_a_cpu(82.0, level)
        old = replace(measured, results=(*measured.results, samples.passed("d")))
        return {each.direction for each in diff(old, samples.run(samples.passed("d"))).differences}

    assert quick("standard") == {"changed"}
    assert "worse" in quick("quick")


@pytest.mark.parametrize("verdict", [Verdict.SKIP, Verdict.UNKNOWN])
def test_a_check_that_did_not_run_shows_no_fault_gone(verdict: Verdict) -> None:
    seen = directions(of(Verdict.FAIL, FINDING), of(verdict))
    assert seen == [("worse", "verdict", f"c: FAIL → {verdict}")]
    assert ("better", "finding") in [each[:2] for each in directions(of(Verdict.FAIL, FINDING), of(Verdict.PASS))]


@pytest.mark.parametrize("verdict", [Verdict.SKIP, Verdict.UNKNOWN])
def test_fewer_findings_of_a_check_that_did_not_run_are_no_gain(verdict: Verdict) -> None:
    twice = of(Verdict.FAIL, FINDING, FINDING)
    assert directions(twice, of(verdict, FINDING)) == [("worse", "verdict", f"c: FAIL → {verdict}")]
    ((direction, _, what),) = directions(twice, of(Verdict.FAIL, FINDING))
    assert (direction, what[:8]) == ("better", "1 fewer ")
