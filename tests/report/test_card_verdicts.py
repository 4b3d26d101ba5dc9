"""One line for each GPU with findings says what to do with it, and with which GPU."""

from __future__ import annotations

from dataclasses import replace

from sample_records import passed, run

from harness.hardware.finding import REPLACE, RESET
from harness.records import Card, Finding, RunRecord, Verdict
from harness.report.card_verdicts import card_verdicts

CARDS = tuple(
    Card(f"GPU:{at}", "a card", f"/job:localhost/replica:0/task:0/device:GPU:{at}", uuid=f"GPU-{at}", serial=f"S{at}")
    for at in range(4)
)


def finding(card: int, message: str, step: str, severity: Verdict = Verdict.FAIL) -> Finding:
    text = f"GPU:{card} (PCI 0000:1B:00.0) {message}"
    return Finding("memory", "a place", CARDS[card].device, "x", "y", text, severity, step)


def record(*findings: Finding, cards: tuple[Card, ...] = CARDS) -> RunRecord:
    return replace(run(passed(findings=findings)), cards=cards)


def test_each_card_has_its_action_its_serial_number_and_its_strongest_findings() -> None:
    assert card_verdicts(
        record(
            finding(2, "runs at PCIe x4 instead of x16 under load", "reseat the card"),
            finding(0, "throttles", "look at its fans", Verdict.WARN),
            finding(3, "has one remapped row", RESET),
            finding(3, "did not hold a pattern", REPLACE),
            finding(3, "is slow", "look at its clocks"),
        )
    ) == [
        "GPU:2 (serial S2, GPU-2): reseat: runs at PCIe x4 instead of x16 under load",
        "GPU:3 (serial S3, GPU-3): replace: did not hold a pattern; has one remapped row; and 1 more",
        "GPU:0 (serial S0, GPU-0): cool: throttles",
        "1 other GPU: healthy",
    ]


def test_a_pair_is_named_with_both_cards_and_neither_counts_as_healthy() -> None:
    pair = Finding("corruption", "copy", None, "x", "y", "GPU:1 -> GPU:3 delivers zeros", pair=("GPU:1", "GPU:3"))
    assert card_verdicts(record(pair)) == [
        "GPU:1 -> GPU:3: look at the link: delivers zeros",
        "2 other GPUs: healthy",
    ]


def test_a_card_that_tensorflow_does_not_see_is_named_by_the_driver_s_number() -> None:
    lost = Finding("missing-device", "x", "nvml:3", "x", "y", "nvml:3 does not answer", next_step="reseat the card")
    assert card_verdicts(record(lost)) == ["GPU nvml:3: reseat: does not answer", "4 other GPUs: healthy"]


def test_without_a_finding_about_a_gpu_there_is_no_line() -> None:
    program = Finding("value", "an output", CARDS[0].device, "x", "y", "differs")
    assert card_verdicts(record()) == []
    assert card_verdicts(record(program, cards=())) == []
    assert card_verdicts(record(program, cards=(Card("CPU:0", "a CPU"),))) == []
