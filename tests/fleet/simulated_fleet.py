"""Fleets of made-up machines with planted faults, and what has to be found of them.

What a faulty card's checks find is taken from runs that really happened (``observed_faults.json``, made by
``observe_faults.py`` from described machines). Everything else is drawn: the machines, their figures with a spread of
heavy tails, where they stand, and which of them are faulty.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from harness.fleet.actions import Action
from harness.fleet.seen import Seen
from harness.records import (
    Card,
    CheckResult,
    Cohort,
    Exercised,
    Figure,
    Finding,
    Fingerprint,
    Host,
    RunRecord,
    Verdict,
)
from harness.stored import validated

CARDS, PER_RACK = 8, 20
MODEL = "NVIDIA H100 80GB HBM3"
CHECKS = ("software", "cards", "memory", "copies", "arithmetic", "corruption", "collectives", "sustained-load")
#: What a sound card reaches, in the order of its check; the numbers are only a scale.
FIGURES = (
    ("copies", "copy host-to-device", 52.0, "GB/s"),
    ("copies", "copy device-to-host", 50.0, "GB/s"),
    ("arithmetic", "matmul float32", 51_000.0, "GFLOP/s"),
    ("arithmetic", "matmul bfloat16", 756_000.0, "GFLOP/s"),
    ("sustained-load", "sustained matmul tfloat32", 370_000.0, "GFLOP/s"),
    ("sustained-load", "add float32 bandwidth", 2_600.0, "GB/s"),
)
LINK = ("copies", "copy device-to-device", 371.0, "GB/s")
MACHINE = ("collectives", "all-reduce nccl bus", 390.0, "GB/s")
#: Faults that show only beside other machines: the figures that are lower, on what, and by how much.
SLOWER = {
    "slow-products": (("matmul float32", "matmul bfloat16", "sustained matmul tfloat32"), "card", 0.85),
    "slow-memory": (("add float32 bandwidth",), "card", 0.82),
    "slow-host-link": (("copy host-to-device", "copy device-to-host"), "card", 0.7),
    "slow-link": (("copy device-to-device",), "pair", 0.6),
    "slow-collectives": (("all-reduce nccl bus",), "machine", 0.75),
}
#: The right action for each fault, whether it is about a card, a pair of cards or the machine.
RIGHT: dict[str, tuple[Action, str]] = {
    "bit-flip": (Action.REPLACE, "card"),
    "stuck-bit": (Action.REPLACE, "card"),
    "ecc-corrected": (Action.REPLACE, "card"),
    "ecc-uncorrected": (Action.REPLACE, "card"),
    "no-write": (Action.REPLACE, "card"),
    "nondeterministic": (Action.REPLACE, "card"),
    "wrong-card": (Action.REPLACE, "card"),
    "wrong-arithmetic": (Action.REPLACE, "card"),
    "row-remap-failed": (Action.REPLACE, "card"),
    "row-remap-pending": (Action.RESET, "card"),
    "stuck-allocation": (Action.RESET, "card"),
    "leak": (Action.RESET, "card"),
    "memory-held": (Action.RESET, "card"),
    "xid-48": (Action.RESET, "card"),
    "link-width": (Action.RESEAT, "card"),
    "link-generation": (Action.RESEAT, "card"),
    "replays": (Action.RESEAT, "card"),
    "nvlink-down": (Action.RESEAT, "card"),
    "lost": (Action.RESEAT, "card"),
    "zeros": (Action.RESEAT, "pair"),
    "shifted": (Action.RESEAT, "pair"),
    "pair-flip": (Action.RESEAT, "pair"),
    "stale": (Action.RESEAT, "pair"),
    "absent": (Action.RESEAT, "machine"),
    "hot": (Action.DRAIN, "card"),
    "power-limit": (Action.UPDATE, "card"),
    "missing": (Action.UPDATE, "card"),
    "driver-too-old": (Action.UPDATE, "machine"),
    "library-missing": (Action.UPDATE, "machine"),
    "hung-check": (Action.DRAIN, "machine"),
    # Once a second run has confirmed them; before, it is to run them again.
    "slow-host-link": (Action.RESEAT, "card"),
    "slow-link": (Action.RESEAT, "pair"),
    "slow-products": (Action.DRAIN, "card"),
    "slow-memory": (Action.DRAIN, "card"),
    "slow-collectives": (Action.DRAIN, "machine"),
}


@dataclass(frozen=True)
class Planted:
    """A fault of one machine: what it is, and the labels of the cards that have it."""

    kind: str
    machine: str
    labels: tuple[str, ...]
    #: The number of the card, also where the fault is of the machine.
    first: int

    @property
    def action(self) -> Action:
        """What has to be advised."""
        return RIGHT[self.kind][0]


@cache
def observed() -> dict[str, Any]:
    """The findings of the faults that were observed, by kind."""
    content: dict[str, Any] = json.loads(Path(__file__).with_name("observed_faults.json").read_text(encoding="utf-8"))
    return content


def pci(slot: int) -> str:
    """The PCI id of a card."""
    return f"0000:{0x1B + 3 * slot:02X}:00.0"


def sound(number: int, draw: random.Random, driver: str = "570.86.15", day: int = 1) -> RunRecord:
    """A machine without a fault."""
    cards = tuple(
        Card(
            f"GPU:{slot}",
            MODEL,
            f"/job:localhost/replica:0/task:0/device:GPU:{slot}",
            slot,
            uuid=f"GPU-{number:08x}-{slot}",
            pci=pci(slot),
            serial=f"165{number:06}{slot}",
            vbios="96.00.74.00.01",
            kind="GPU",
        )
        for slot in range(CARDS)
    )
    own = 1 + 0.004 * draw.gauss(0, 1)
    figures: dict[str, list[Figure]] = {check: [] for check in CHECKS}
    for check, name, usual, unit in FIGURES:
        for card in cards:
            figures[check].append(Figure(name, usual * own * _spread(draw), unit, card.label))
    check, name, usual, unit = LINK
    for slot in range(CARDS):
        ends = (f"GPU:{slot}", f"GPU:{(slot + 1) % CARDS}")
        figures[check].append(Figure(name, usual * own * _spread(draw), unit, *ends))
    check, name, usual, unit = MACHINE
    figures[check].append(Figure(name, usual * own * _spread(draw), unit))
    done = Exercised(programs=8, values=1_000_000, ops=640)
    return RunRecord(
        started_at=f"2026-11-{day:02}T08:00:00+00:00",
        harness="0.1.0",
        command=("harness", "validate"),
        spec="gpu",
        verdict=Verdict.PASS,
        exit_code=0,
        complete=True,
        results=tuple(
            CheckResult(each, Verdict.PASS, "as expected", "", done, figures=tuple(figures[each])) for each in CHECKS
        ),
        planned=CHECKS,
        fingerprint=Fingerprint(
            "2.21.0", "3.12.0", "2.3.1", "3.11.7", True, "EPYC", 128, 64, 1_031_000, "Linux 6.8", driver=driver
        ),
        level="standard",
        cards=cards,
        host=Host(f"sim-{number:04}", rack=f"rack-{number // PER_RACK:03}"),
        cohort=Cohort(MODEL, driver, "96.00.74.00.01", "0.1.0"),
    )


def _spread(draw: random.Random) -> float:
    """Around 1, with a spread of 1.2 % and heavier tails than a normal distribution."""
    wide = 2.5 if draw.random() < 0.03 else 1.0
    return 1 + 0.012 * wide * draw.gauss(0, 1)


def name_of(record: RunRecord) -> str:
    """The name of the machine."""
    assert record.host is not None
    return str(record.host.name)


def plant(record: RunRecord, kind: str, first: int) -> tuple[RunRecord, Planted]:
    """Give a machine a fault: on the card with the number ``first``, on its link to the next one, or on the machine."""
    name = name_of(record)
    what = RIGHT[kind][1]
    second = (first + 1) % CARDS
    slots = {"card": (first,), "pair": (first, second), "machine": ()}[what]
    labels = tuple(f"GPU:{slot}" for slot in slots)
    if kind in SLOWER:
        return slower(record, *SLOWER[kind], labels), Planted(kind, name, labels, first)
    if kind == "absent":
        return _without(record, first), Planted(kind, name, labels, first)
    seen = observed()[kind]
    text = json.dumps(seen["findings"])
    for letter, slot in zip("AB", slots, strict=False):
        text = text.replace(f"<{letter}>", str(slot)).replace(f"<PCI {letter}>", pci(slot))
    if "nvml:" in text or seen["error"]:
        record, labels = _lost(record, first, seen["error"]), (f"nvml:{first}",)
    found = {check: tuple(map(_finding, findings)) for check, findings in json.loads(text).items()}
    results = tuple(
        replace(
            each, verdict=_worst(found[each.check]), reason=found[each.check][0].message, findings=found[each.check]
        )
        if each.check in found
        else each
        for each in record.results
    )
    verdict = Verdict.FAIL if any(each.verdict is Verdict.FAIL for each in results) else Verdict.WARN
    return replace(record, results=results, verdict=verdict), Planted(kind, name, labels, first)


def slower(
    record: RunRecord, names: tuple[str, ...], what: str, share: float, labels: tuple[str, ...] = ()
) -> RunRecord:
    """Lower the figures ``names`` of a card, of a link or of all."""

    def figure(each: Figure) -> Figure:
        own = {"card": (each.device,), "pair": (each.device, each.peer), "machine": ()}[what]
        return replace(each, value=each.value * share) if each.name in names and own == labels else each

    return replace(
        record, results=tuple(replace(each, figures=tuple(map(figure, each.figures))) for each in record.results)
    )


def _finding(given: dict[str, Any]) -> Finding:
    return validated(given, Finding)


def _worst(findings: tuple[Finding, ...]) -> Verdict:
    return Verdict.FAIL if any(each.severity is Verdict.FAIL for each in findings) else Verdict.WARN


def _without(record: RunRecord, slot: int) -> RunRecord:
    """A card that nobody counts: the figures of the others stay."""
    label = f"GPU:{slot}"
    results = tuple(
        replace(each, figures=tuple(f for f in each.figures if label not in (f.device, f.peer)))
        for each in record.results
    )
    return replace(record, cards=tuple(card for card in record.cards if card.label != label), results=results)


def _lost(record: RunRecord, slot: int, error: str | None) -> RunRecord:
    bare = _without(record, slot)
    lost = Card(f"nvml:{slot}", "GPU", pci=pci(slot), kind="GPU", error=error or "GPU is lost")
    return replace(bare, cards=(*bare.cards, lost))


@dataclass(frozen=True)
class SimulatedFleet:
    """Runs of many machines, and what was planted."""

    runs: tuple[Seen, ...]
    planted: tuple[Planted, ...]


def fleet(
    seed: int, machines: int = 2000, share: float = 0.02, kinds: tuple[str, ...] = tuple(RIGHT)
) -> SimulatedFleet:
    """A fleet with faults in a share of its machines, each kind as often as the others."""
    draw = random.Random(seed)
    faulty = draw.sample(range(machines), round(machines * share))
    order = [kinds[(seed + place) % len(kinds)] for place in range(len(faulty))]
    kind_of = dict(zip(faulty, order, strict=True))
    runs, planted = [], []
    for number in range(machines):
        record = sound(number, draw, _driver(number))
        if number in kind_of:
            record, fault = plant(record, kind_of[number], draw.randrange(CARDS))
            planted.append(fault)
        runs.append(Seen(f"sim-{number:04}/run.json", record))
    return SimulatedFleet(tuple(runs), tuple(planted))


def rerun(given: SimulatedFleet, names: Iterable[str], draw: random.Random) -> SimulatedFleet:
    """Run machines again the next day: their faults stay, everything that is drawn is drawn again."""
    faults = {each.machine: each for each in given.planted}
    runs = list(given.runs)
    for name in sorted(names):
        number = int(name.rpartition("-")[2])
        record = sound(number, draw, _driver(number), day=2)
        if name in faults:
            record, _ = plant(record, faults[name].kind, faults[name].first)
        runs.append(Seen(f"{name}/again/run.json", record))
    return SimulatedFleet(tuple(runs), given.planted)


def _driver(number: int) -> str:
    return "570.86.15" if number % 3 else "575.51.03"
