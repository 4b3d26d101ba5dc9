"""Each GPU with findings has one action, its two strongest reasons, and what identifies it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_records import passed, run

from harness.hardware import finding as steps
from harness.hardware.rates import SLOW
from harness.records import Card, Finding, RunRecord, Verdict
from harness.report.card_verdicts import card_verdicts, verdict_lines
from harness.report.html.page import report_page
from harness.report.junit import junit_xml

CARDS = tuple(
    Card(
        f"GPU:{at}",
        "a card",
        f"/job:localhost/replica:0/task:0/device:GPU:{at}",
        uuid=f"GPU-{at}",
        serial=f"S{at}",
        pci=f"0000:{at}B:00.0",
        slot=str(at),
    )
    for at in range(4)
)


def finding(card: int, message: str, step: str, severity: Verdict = Verdict.FAIL) -> Finding:
    text = f"GPU:{card} (PCI 0000:1B:00.0) {message}"
    return Finding("memory", "a place", CARDS[card].device, "x", "y", text, severity, step, subject=message)


def record(*findings: Finding, cards: tuple[Card, ...] = CARDS) -> RunRecord:
    return replace(run(passed(findings=findings)), cards=cards)


def test_each_card_has_its_action_what_identifies_it_and_its_strongest_findings() -> None:
    made = record(
        finding(2, "runs at PCIe x4 instead of x16 under load", "reseat the card"),
        finding(0, "throttles", "look at its fans", Verdict.WARN),
        finding(3, "has one remapped row", steps.RESET),
        finding(3, "did not hold a pattern; 3 words", steps.REPLACE),
        finding(3, "is slow", SLOW),
    )
    assert list(verdict_lines(made)) == [
        "GPU:2: reseat; GPU:3: replace; GPU:0: improve its cooling; 1 other GPU healthy",
        "GPU:2 (serial S2, GPU-2, slot 2, PCI 0000:2B:00.0): reseat",
        "    runs at PCIe x4 instead of x16 under load",
        "    next: reseat the card",
        "GPU:3 (serial S3, GPU-3, slot 3, PCI 0000:3B:00.0): replace",
        "    did not hold a pattern; 3 words",
        "    has one remapped row (and 1 more finding)",
        f"    next: {steps.REPLACE}",
        "GPU:0 (serial S0, GPU-0, slot 0, PCI 0000:0B:00.0): improve its cooling",
        "    throttles",
        "    next: look at its fans",
    ]


def test_the_page_says_of_the_others_that_they_are_healthy_and_junit_has_each_action() -> None:
    pair = Finding("corruption", "copy", None, "x", "y", "delivers zeros", pair=("GPU:1", "GPU:3"))
    made = record(finding(2, "throttles", "look at its fans"), pair)
    assert "<p><bdi>1 other GPU healthy</bdi>.</p>" in report_page(made)
    assert '<property name="GPU:2" value="improve its cooling" />' in junit_xml(made)
    assert '<property name="GPU:1 -&gt; GPU:3" value="look at the link between them" />' in junit_xml(made)
    assert "healthy" not in report_page(record())
    assert "GPU:" not in junit_xml(record())


def test_one_cause_and_one_next_step_for_several_cards_are_told_once() -> None:
    causes = [(1, "library missing"), (2, "library missing"), (3, "other")]
    made = record(*(finding(card, message, steps.RESET) for card, message in causes))
    assert [line.partition(" (")[0] for line in verdict_lines(made)][1:] == [
        "GPU:1",
        "GPU:2",
        "    library missing",
        "GPU:3",
        "    other",
        "    next: stop the programs that use it and reset it",
    ]


def test_when_a_finding_came_first_is_kept_however_long_it_is() -> None:
    when = " (first after 1 min 36 s, in 1 of 2 rounds)"
    clauses = "computes wrong results in 1 of 2 trials at every index of all; matmul float16: 1 element" + when
    made = record(finding(1, "x" * 200 + when, steps.RESET), finding(2, clauses, steps.RESET))
    lines = list(verdict_lines(made))
    assert lines[2] == f"    {'x' * 109}…{when}"
    assert lines[4] == f"    computes wrong results in 1 of 2 trials at every index of all{when}"


def test_a_warning_does_not_outweigh_what_fails() -> None:
    (verdict,) = card_verdicts(
        record(finding(1, "counted errors", steps.REPLACE, Verdict.WARN), finding(1, "is narrow", "reseat the card"))
    )
    assert (verdict.action, verdict.severity, verdict.reasons) == (
        "reseat",
        Verdict.FAIL,
        ("is narrow", "counted errors"),
    )


def test_a_pair_is_named_with_both_cards_and_neither_counts_as_healthy() -> None:
    pair = Finding("corruption", "copy", None, "x", "y", "GPU:1 -> GPU:3 delivers zeros", pair=("GPU:1", "GPU:3"))
    ends = "GPU:1 (serial S1, slot 1, PCI 0000:1B:00.0) -> GPU:3 (serial S3, slot 3, PCI 0000:3B:00.0)"
    assert list(verdict_lines(record(pair))) == [
        "GPU:1 -> GPU:3: look at the link between them; 2 other GPUs healthy",
        f"{ends}: look at the link between them",
        "    -> GPU:3 delivers zeros",
    ]


def test_a_card_is_not_called_healthy_where_a_check_was_lost_or_proved_nothing() -> None:
    made = record(finding(2, "throttles", "look at its fans"))
    lost = Finding("error", "check memory", None, "it completes", "a time-out", "its process timed out after 120 s")
    crashed = replace(passed(check="memory"), verdict=Verdict.FAIL, findings=(lost,))
    unknown = replace(passed(check="copies"), verdict=Verdict.UNKNOWN)
    for more, complete, text in (
        ((crashed,), True, "3 other GPUs without a finding (not completed: memory)"),
        ((unknown,), True, "3 other GPUs without a finding (not completed: copies)"),
        ((), False, "3 other GPUs without a finding (the run was interrupted)"),
        ((), True, "3 other GPUs healthy"),
    ):
        ended = replace(made, results=(*made.results, *more), complete=complete)
        assert next(iter(verdict_lines(ended))) == f"GPU:2: improve its cooling; {text}"


def test_a_card_that_tensorflow_does_not_see_is_named_by_the_driver_s_number() -> None:
    step = "power the node off and on, reseat the card"
    lost = Finding("missing-device", "x", "nvml:3", "x", "y", "nvml:3 does not answer", next_step=step)
    first, second, third, fourth = verdict_lines(record(lost))
    assert first == "nvml:3: power the node off and on, and reseat; 4 other GPUs healthy"
    assert second == "GPU nvml:3: power the node off and on, and reseat"
    assert (third, fourth) == ("    does not answer", f"    next: {step}")
    there = Card("nvml:3", "GPU", index=3, pci="0000:9B:00.0", slot="7", kind="GPU", error="GPU is lost")
    first, second, third, *_ = verdict_lines(record(lost, cards=(*CARDS, there)))
    assert first == "nvml:3: power the node off and on, and reseat; 4 other GPUs healthy"
    unread = "serial number and UUID cannot be read"
    assert second == f"GPU nvml:3 (slot 7, PCI 0000:9B:00.0, {unread}): power the node off and on, and reseat"
    assert third == "    does not answer"


def test_logical_gpus_of_one_card_share_its_verdict() -> None:
    halves = tuple(replace(card, uuid="GPU-0", part="logical GPU") for card in CARDS[:2])
    hot = [finding(at, "throttles", "look at its fans") for at in range(2)]
    (verdict,) = card_verdicts(record(*hot, cards=halves))
    assert (verdict.labels, verdict.action, verdict.reasons) == (
        ("GPU:0", "GPU:1"),
        "improve its cooling",
        ("throttles",),
    )


@pytest.mark.parametrize(
    ("step", "action"),
    [
        (steps.REPLACE, "replace"),
        (steps.RESET, "reset"),
        (steps.FREE_MEMORY, "free its memory, or reset"),
        (steps.WATCH, "watch"),
        (SLOW, "swap with another, and see whether the fault moves"),
        ("use a TensorFlow that supports compute capability 12.0", "use a TensorFlow that supports it"),
        ("install NVIDIA driver 525.60.13 or later", "install a newer driver"),
        ("look at the copies to and from it (check 'copies')", "look at its links"),
        ("try another version of TensorFlow and of the driver", "try another TensorFlow and driver"),
        ("read the log", "look at it"),
    ],
)
def test_every_next_step_comes_to_an_action(step: str, action: str) -> None:
    (verdict,) = card_verdicts(record(finding(1, "is ill", step)))
    assert verdict.action == action


def test_without_a_finding_about_a_gpu_there_is_no_line() -> None:
    program = Finding("value", "an output", CARDS[0].device, "x", "y", "differs")
    for made in (record(), record(program, cards=()), record(program, cards=(Card("CPU:0", "a CPU"),))):
        assert card_verdicts(made) == []
        assert list(verdict_lines(made)) == []
