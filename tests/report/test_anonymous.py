"""A record without what identifies a machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import sample_records as samples

from harness.records import Card, Cohort, Fingerprint, Host
from harness.report.anonymous import anonymous
from harness.report.cohort import cohort_of
from harness.report.recording import RunRecording
from harness.report.storage import json_text, load_run

HOST = Host("gpu-17", "CHASSIS-9", "r4", "boot-1")


def test_no_name_of_the_host_or_of_a_card_is_left_anywhere() -> None:
    record = samples.eight_cards()
    cards = tuple(replace(card, serial=f"16505{number}") for number, card in enumerate(record.cards))
    first = record.results[1]
    named = replace(first.findings[0], message=f"gpu-17: card 165053 ({cards[3].uuid}) is broken; gpu-170 is not")
    results = (record.results[0], replace(first, findings=(named,)), *record.results[2:])
    whole = replace(record, host=HOST, cards=cards, results=results, command=("ssh", "gpu-17"))
    text = json_text(anonymous(whole))
    for word in ("CHASSIS-9", "boot-1", "165053", *(card.uuid or "" for card in cards)):
        assert word in json_text(whole)
        assert word not in text
    assert "left out: card left out (left out) is broken; gpu-170 is not" in text, "only whole words are names"
    assert anonymous(whole).cards[3].pci == cards[3].pci
    assert anonymous(samples.clean()) == samples.clean(), "nothing to leave out"


def test_a_recording_stores_what_it_may(tmp_path: Path) -> None:
    kept = RunRecording(
        tmp_path, harness="1", command=("harness", "gpu-17"), spec="gpu", planned=(), host=HOST, without_names=True
    )
    assert kept.record.host == HOST
    stored = load_run(tmp_path)
    assert stored.host == Host(rack="r4")
    assert stored.command == ("harness", "left out")


def test_a_cohort_is_what_machines_have_in_common() -> None:
    facts: Fingerprint = samples.fingerprint(driver="570.86")
    cards = tuple(Card(f"GPU:{n}", "H100", vbios=f"96.0{n % 2}") for n in range(3))
    assert cohort_of(cards, facts, "0.1.0") == Cohort("H100", "570.86", "96.00, 96.01", "0.1.0")
    broken = (*cards, Card("nvml:3", "GPU", error="GPU is lost"))
    assert cohort_of(broken, facts, "0.1.0") == cohort_of(cards, facts, "0.1.0")
    assert cohort_of(cards[:0], facts, "0.1.0") is None
    assert cohort_of(cards, None, "0.1.0") is None
