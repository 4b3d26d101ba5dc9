"""The report on a fleet: the denominator, what comes first, and what never gets out."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree as ET

import sample_records as samples
import simulated_fleet as simulated
from html_rules import Page
from rich.console import Console

from harness.fleet import asked
from harness.fleet.anonymous import anonymous_fleet
from harness.fleet.asked import FleetRun, Outcome
from harness.fleet.fleet import judge_runs, judge_store
from harness.fleet.history import of_card, offenders, trends
from harness.fleet.junit import fleet_junit
from harness.fleet.page import fleet_page
from harness.fleet.policy import Judging, Policy
from harness.fleet.seen import Seen
from harness.fleet.store import Store
from harness.fleet.summary import fleet_json, headline, print_fleet
from harness.fleet.verdicts import FleetVerdict, State
from harness.records import Card, Host, RunRecord
from harness.report.storage import save_run

NOW = datetime(2026, 11, 3, tzinfo=timezone.utc)


def made(machines: int = 40) -> FleetVerdict:
    fleet = simulated.fleet(3, machines, share=4 / machines, kinds=("bit-flip", "zeros", "hot", "slow-products"))
    run = FleetRun("2026-11-01T07:00:00+00:00", "slurm", (), (*(seen.host for seen in fleet.runs), "lost-1"))
    run = replace(run, outcomes=(Outcome("lost-1", "not idle: drained (fan)"),))
    return judge_runs(fleet.runs, Policy(), NOW, run=run)


def test_the_denominator_comes_first_then_what_needs_an_action() -> None:
    found = made()
    counts = "41 machines asked, 40 reached, 40 exercised, 36 proven; 4 need an action; 1 without a verdict"
    assert headline(found) == f"FAIL, INCOMPLETE: {counts}"
    page = Page(fleet_page(found, "judged by medians"))
    assert page.problems == []
    titles = ("41 machines", "Incomplete", "Replace: 1 machine", "Drain: 1 machine", "Every machine that was asked")
    order = [page.text.index(title) for title in titles]
    assert order == sorted(order)
    assert "lost-1" in page.text
    assert "not idle: drained (fan)" in page.text


def test_the_same_records_give_the_same_bytes() -> None:
    one, other = made(), made()
    assert fleet_page(one, "") == fleet_page(other, "")
    assert fleet_json(one) == fleet_json(other)
    assert fleet_junit(one) == fleet_junit(other)


def test_a_thousand_machines_fit_into_a_page() -> None:
    fleet = simulated.fleet(1, 1000, share=0.1)
    text = fleet_page(judge_runs(fleet.runs, Policy(), NOW), "")
    assert len(text.encode()) < 5e6
    assert Page(text).problems == []


def test_a_machine_that_was_asked_and_has_only_an_old_record_is_not_proven(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number, folder in ((0, "runs/first/sim-0000"), (1, "runs/first/sim-0001"), (0, "runs/second/sim-0000")):
        day = 2 if "second" in folder else 1
        save_run(simulated.sound(number, random.Random(number), day=day), tmp_path / folder)
    names = ("sim-0000", "sim-0001")
    for folder, day in (("first", 1), ("second", 2)):
        run = FleetRun(f"2026-11-0{day}T07:00:00+00:00", "hosts", (), names, complete=True)
        asked.save(run, store.files.below(f"runs/{folder}"))
    (tmp_path / "runs" / "third").mkdir()
    (tmp_path / "runs" / "third" / "fleet.json").write_text("{", encoding="utf-8")
    found = judge_store(store, Policy(), NOW)
    states = {each.name: (each.state, each.why) for each in found.machines}
    assert states["sim-0000"] == (State.PROVEN, "")
    assert states["sim-0001"] == (
        State.MISSING,
        "no result in the last run; its last result is of 2026-11-01T08:00:00+00:00",
    )
    assert [each.path for each in found.left_out] == ["runs/third/fleet.json"]
    assert found.exit_code == 3


def hostile() -> list[RunRecord]:
    base = samples.hostile()
    return [
        replace(base, host=Host(text, text, text), started_at=f"2026-11-01T08:00:{number:02}+00:00")
        for number, text in enumerate(samples.HOSTILE)
    ]


def test_what_machines_send_is_shown_as_it_is_and_nothing_of_it_is_executed() -> None:
    found = judge_runs([Seen(f"a/{n}/run.json", each) for n, each in enumerate(hostile())], Policy(), NOW)
    page = fleet_page(found, "")
    assert Page(page).problems == []
    assert "<script" not in page
    assert "<img" not in page
    ET.fromstring(fleet_junit(found).encode("utf-8", "backslashreplace"))
    json.loads(fleet_json(found))
    with Path("/dev/null").open("w", encoding="utf-8", errors="replace") as nowhere:
        console = Console(width=120, record=True, file=nowhere)
        print_fleet(console, found, "")
        assert "\x1b" not in console.export_text()


def test_the_report_without_names_has_none_and_still_tells_machines_and_cards_apart() -> None:
    fleet = simulated.fleet(3, 40, share=0.1, kinds=("bit-flip", "zeros", "hot", "slow-products"))
    again = simulated.rerun(fleet, [each.machine for each in fleet.planted], random.Random(1))
    found = judge_runs(again.runs, Policy(), NOW)
    assert found.offenders
    bare = anonymous_fleet(found, again.runs)
    for text in (fleet_page(bare, ""), fleet_json(bare), fleet_junit(bare)):
        assert "sim-0" not in text
        for seen in again.runs:
            for card in seen.record.cards:
                assert (card.serial or "?") not in text
                assert (card.uuid or "?") not in text
    assert len({each.name for each in bare.machines}) == 40
    assert len({each.card for each in bare.offenders}) == len(found.offenders)
    assert bare.counts == found.counts


def test_junit_has_a_case_for_each_machine() -> None:
    root = ET.fromstring(fleet_junit(made()))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("41", "4", "1")
    (lost,) = [case for case in root.iter("testcase") if case.get("name") == "lost-1"]
    assert lost.find("error") is not None


def _runs(*stays: tuple[str, Sequence[tuple[str, bool]]]) -> list[Seen]:
    """Runs of machines: in each, the cards by serial number in the slots 0, 1, …, and whether each failed."""
    made = []
    for day, (machine, cards) in enumerate(stays, start=1):
        record = simulated.sound(0, random.Random(day), day=day)
        for slot, (_, failed) in enumerate(cards):
            if failed:
                record, _ = simulated.plant(record, "stuck-bit", slot)
        own = tuple(replace(card, serial=serial) for card, (serial, _) in zip(record.cards, cards, strict=False))
        record = replace(record, cards=own, host=Host(machine))
        made.append(Seen(f"{machine}-{day}/run.json", record))
    return made


def test_a_fault_that_moves_with_the_card_is_told_from_one_that_stays_with_the_slot() -> None:
    moves = _runs(("a", [("S1", True)]), ("b", [("S2", False), ("S1", True)]), ("a", [("S3", False)]))
    assert "moves with the card; replace it" in of_card(moves, "S1").conclusion
    stays = _runs(("a", [("S1", True)]), ("a", [("S2", True)]), ("b", [("S1", False)]))
    found = of_card(stays, "S1")
    assert "stays with the place" in found.conclusion
    assert found.shared_places == (("a PCI 0000:1B:00.0", 1),)
    only = of_card(_runs(("a", [("S1", True)])), "S1")
    assert "swap it with another card" in only.conclusion
    assert of_card(stays, "S2").stays[0].machine == "a"
    assert of_card(_runs(("a", [("S1", False)])), "S1").conclusion == "never failed"
    assert of_card(stays, "S9").stays == ()


def test_cards_that_fail_again_are_listed_the_worst_first() -> None:
    runs = _runs(("a", [("S1", True), ("S2", False)]), ("a", [("S1", True), ("S2", False)]), ("a", [("S1", True)]))
    (worst,) = offenders({"a": runs})
    assert (worst.card, worst.failed, worst.runs) == ("S1", 3, 3), worst


def test_a_card_that_gets_slower_is_a_trend_and_one_that_varies_is_none() -> None:
    def history(last: float) -> list[Seen]:
        made = []
        for day in range(1, 6):
            record = simulated.sound(0, random.Random(day), day=day)
            share = last if day == 5 else 1.0
            record = simulated.slower(record, ("matmul float32",), "card", share, ("GPU:2",))
            made.append(Seen(f"{day}/run.json", record))
        return made

    (trend,) = trends({"sim-0000": history(0.7)}, Judging())
    assert (trend.card, trend.machine) == ("1650000002", "sim-0000")
    assert trend.text.startswith("matmul float32: ")
    assert list(trends({"sim-0000": history(1.0)}, Judging())) == []


def test_a_card_without_a_serial_number_is_named_by_its_place() -> None:
    record = simulated.plant(simulated.sound(1, random.Random(1)), "stuck-bit", 0)[0]
    bare = replace(record, cards=tuple(replace(card, serial=None, uuid=None) for card in record.cards))
    runs = [Seen("1", bare), Seen("2", replace(bare, started_at="2026-11-02T08:00:00+00:00"))]
    assert [each.card for each in offenders({"sim-0001": runs})] == ["sim-0001 GPU:0"]
    assert isinstance(bare.cards[0], Card)
