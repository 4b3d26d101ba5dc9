"""The check ``collectives``: a share that is dropped, and other wrong values, beside collectives that are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from numpy_machine import NumpyMachine, context, cpus, gpus

from harness.checking.check import CheckContext, Level
from harness.checking.execute import execute
from harness.checks import mirrored_strategy
from harness.devices.device import Device, Devices
from harness.hardware.collectives import check, judge
from harness.hardware.collectives.check import CHECK
from harness.hardware.collectives.judge import KINDS, bandwidth, common_gbs, expected
from harness.hardware.machine import NoLibrary, PairLink
from harness.records import Card, Finding, Verdict

pytest_plugins = ["little_data"]
pytestmark = pytest.mark.usefixtures("little_data")

CARDS = gpus(4)


def _judged(kind: str, algorithm: str, cards: Sequence[Card], *arrays: list[NDArray[Any]]) -> list[Finding]:
    return [each.finding for each in judge.judge_collective(kind, algorithm, cards, *arrays)]


def _arrays() -> list[NDArray[Any]]:
    return [np.arange(1, 9, dtype=np.float32) * 10**number for number in range(4)]


def test_exact_collectives_pass_with_their_bandwidths() -> None:
    outcome = CHECK.run(context(NumpyMachine(CARDS)))
    assert (outcome.verdict, outcome.findings) == (Verdict.PASS, ())
    assert outcome.exercised.values > 1000
    assert outcome.exercised.devices == tuple(card.device for card in CARDS)
    by_name = {(figure.name, figure.size_bytes): figure.value for figure in outcome.figures}
    # Each takes as long as the shares of all cards at 100 GB/s.
    assert by_name["all-reduce ring algorithm", 4096] == pytest.approx(25)
    assert by_name["all-reduce ring bus", 4096] == pytest.approx(25 * 1.5)
    assert by_name["all-gather ring algorithm", 16384] == pytest.approx(100)
    assert by_name["all-gather ring bus", 16384] == pytest.approx(75)
    assert by_name["broadcast reduce-to-one bus", 4096] == pytest.approx(25)


def test_a_dropped_share_names_its_card_each_kind_and_the_algorithm() -> None:
    outcome = CHECK.run(context(NumpyMachine(CARDS, dropped=2)))
    assert outcome.verdict is Verdict.FAIL
    assert {(each.kind, each.where, each.device) for each in outcome.findings} == {
        ("corruption", f"{kind} by ring", CARDS[2].device) for kind in ("all-reduce", "all-gather", "reduce-scatter")
    }
    assert all("is missing" in finding.message for finding in outcome.findings)
    assert "GPU:2" in outcome.next_step


def test_a_broadcast_that_sends_nothing_names_the_card_that_sends() -> None:
    outcome = CHECK.run(context(NumpyMachine(CARDS, dropped=0, dropped_by="reduce-to-one")))
    broadcast = {finding.device for finding in outcome.findings if finding.where == "broadcast by reduce-to-one"}
    assert broadcast == {CARDS[0].device}
    arrays = _arrays()
    for wrong in (0, 2):
        found = [arrays[0] * (2 if number == wrong else 1) for number in range(4)]
        (finding,) = _judged("broadcast", "nccl", CARDS, arrays, found)
        assert finding.device == CARDS[wrong].device


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "broadcast"])
def test_what_went_wrong_once_and_was_passed_on_accuses_no_card(kind: str) -> None:
    found = [each.copy() for each in expected(kind, _arrays())]
    for number in (1, 3):
        found[number][1] = np.nextafter(found[number][1], np.float32(np.inf))
    (finding,) = _judged(kind, "ring", CARDS, _arrays(), found)
    assert finding.device is None
    assert finding.message.startswith("GPU:1, GPU:3 hold the same 1 wrong element after")
    found[3][1] += 1
    assert [each.device for each in _judged(kind, "ring", CARDS, _arrays(), found)] == [
        CARDS[1].device,
        CARDS[3].device,
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_one_wrong_bit_on_one_card_names_that_card(kind: str) -> None:
    found = [each.copy() for each in expected(kind, _arrays())]
    assert _judged(kind, "nccl", CARDS, _arrays(), found) == []
    found[3][1] = np.nextafter(found[3][1], np.float32(np.inf))
    (finding,) = _judged(kind, "nccl", CARDS, _arrays(), found)
    assert (finding.device, finding.where) == (CARDS[3].device, f"{kind} by nccl")
    assert "element [1]" in finding.found


class WrongSum(NumpyMachine):
    """Adds up wrongly on the first card, which sends all others the sum or their parts of it."""

    def collective(self, kind: str, algorithm: str, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        found = super().collective(kind, algorithm, arrays)
        if algorithm == "reduce-to-one" and kind in ("all-reduce", "reduce-scatter"):
            for each in found if kind == "all-reduce" else found[2:3]:
                each[0] += 1
        return found


def test_a_wrong_part_of_a_sum_that_was_made_elsewhere_accuses_no_card() -> None:
    outcome = CHECK.run(context(WrongSum(CARDS)))
    assert [(each.where, each.device) for each in outcome.findings] == [("all-reduce by reduce-to-one", None)]


def test_a_share_that_is_counted_twice_is_told_from_one_that_is_missing() -> None:
    found = [each + _arrays()[1] for each in expected("all-reduce", _arrays())]
    (finding,) = _judged("all-reduce", "nccl", CARDS, _arrays(), found)
    assert finding.device == CARDS[1].device
    assert "counted twice" in finding.message


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter"])
def test_two_cards_whose_shares_are_missing_are_named_and_no_others(kind: str) -> None:
    given = [each if at in (1, 2) else np.zeros_like(each) for at, each in enumerate(_arrays())]
    findings = _judged(kind, "nccl", CARDS, _arrays(), expected(kind, given))
    assert [each.device for each in findings] == [CARDS[0].device, CARDS[3].device]
    assert all("is missing" in each.message for each in findings)


def test_a_result_that_is_not_there_or_of_another_shape_is_found() -> None:
    right = expected("all-reduce", _arrays())
    assert _judged("all-reduce", "nccl", CARDS, _arrays(), right[:3])
    cut = [*right[:3], right[3][:4]]
    assert [each.device for each in _judged("all-reduce", "nccl", CARDS, _arrays(), cut)] == [CARDS[3].device]


def test_parts_given_to_the_wrong_cards_are_found() -> None:
    swapped = expected("reduce-scatter", _arrays())[::-1]
    assert len(_judged("reduce-scatter", "ring", CARDS, _arrays(), swapped)) == 4


@pytest.mark.parametrize(("kind", "size", "factor"), [("all-reduce", 100, 1.75), ("all-gather", 800, 0.875),
    ("reduce-scatter", 100, 0.875), ("broadcast", 100, 1.0)])  # fmt: skip
def test_bandwidths_are_those_of_nccl_tests(kind: str, size: int, factor: float) -> None:
    measured = bandwidth(kind, 100, 8, 1e-9)
    assert measured.size_bytes == size
    assert measured.algorithm == pytest.approx(size)
    assert measured.bus == pytest.approx(size * factor)


def test_one_card_is_skipped_and_no_algorithm_is_unknown() -> None:
    class _Without(NumpyMachine):
        def algorithms(self) -> tuple[str, ...]:
            return ()

    assert CHECK.run(context(NumpyMachine(gpus(1)))).verdict is Verdict.SKIP
    assert CHECK.run(context(_Without(CARDS))).verdict is Verdict.UNKNOWN
    assert CHECK.run(context(None)).verdict is Verdict.UNKNOWN


def test_cards_of_other_processes_are_skipped_as_tensorflow_cannot_join_them() -> None:
    servers = Devices(
        [Device(f"/job:core/replica:0/task:{task}/device:CPU:0", "core", "x") for task in range(2)], spec="cores:2"
    )
    machine = NumpyMachine(cpus(2))
    assert execute(CHECK, CheckContext(servers, machine=machine)).verdict is Verdict.SKIP
    assert execute(mirrored_strategy.CHECK, CheckContext(servers)).verdict is Verdict.SKIP


@dataclass
class _Stale(NumpyMachine):
    """A machine whose collectives are right once; then they do nothing, and give the memory of the last result."""

    last: dict[tuple[str, int], list[NDArray[Any]]] = field(default_factory=dict)

    def collective(self, kind: str, algorithm: str, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        found = super().collective(kind, algorithm, arrays)
        return self.last.setdefault((kind, arrays[0].size), found)


def test_what_an_earlier_run_left_in_memory_cannot_pass_for_a_result() -> None:
    outcome = CHECK.run(context(_Stale(CARDS)))
    assert outcome.verdict is Verdict.FAIL
    # Shares of a wrong all-reduce add nothing.
    assert {finding.where.partition(" by ")[0] for finding in outcome.findings} == set(KINDS) - {"reduce-scatter"}


@dataclass
class _Linked(NumpyMachine):
    """Four GPUs joined by NVLinks of 450 GB/s, of which NCCL uses a share. Starting takes a millisecond."""

    share: float = 0.8
    links: dict[tuple[str, str], PairLink] = field(
        default_factory=lambda: {(a.label, b.label): PairLink(18, 25.0) for a in CARDS for b in CARDS if a is not b}
    )

    def pair_links(self) -> dict[tuple[str, str], PairLink]:
        return self.links

    def algorithms(self) -> tuple[str, ...]:
        return ("nccl",)

    def collective(self, kind: str, algorithm: str, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        before_s = self.now_s
        found = super().collective(kind, algorithm, arrays)
        self.now_s = before_s + 1e-3 + bandwidth(kind, arrays[0].nbytes, 4, 1.0).bus / (450.0 * self.share)
        return found


@pytest.mark.parametrize(
    ("share", "severity"), [(0.8, None), (1.7, None), (0.41, None), (0.3, Verdict.WARN), (0.1, Verdict.FAIL)]
)
def test_the_bus_bandwidth_of_nccl_is_judged_by_the_links_where_all_are_known(
    monkeypatch: pytest.MonkeyPatch, share: float, severity: Verdict | None
) -> None:
    monkeypatch.setitem(check.ELEMENTS, Level.QUICK, (2**2, 2**12))
    monkeypatch.setattr(judge, "LEAST_S", 1e-8)
    outcome = CHECK.run(context(_Linked(CARDS, share=share)))
    assert {each.severity for each in outcome.findings} == ({severity} if severity else set())
    assert {each.where for each in outcome.findings} == ({f"{kind} by nccl" for kind in KINDS} if severity else set())
    assert any("or more over the NVLinks (450 GB/s one way)" in said for said in outcome.scope)


def test_bus_bandwidths_are_left_alone_where_a_pair_has_no_nvlink_or_the_arrays_are_short() -> None:
    slow = _Linked(CARDS, share=0.01)
    assert CHECK.run(context(slow)).verdict is Verdict.PASS, "a few kilobytes are over in microseconds"
    slow.links["GPU:0", "GPU:3"] = PairLink(way="a host bridge")
    assert common_gbs(slow.links, CARDS) is None
    assert common_gbs({}, CARDS) is None
    parts = [replace(card, part="logical GPU") for card in CARDS]
    assert common_gbs(_Linked(CARDS).links, parts) is None


@dataclass
class _WithoutNccl(NumpyMachine):
    """A machine with GPUs, on which NCCL cannot be loaded."""

    def algorithms(self) -> tuple[str, ...]:
        return ("nccl", "ring")

    def collective(self, kind: str, algorithm: str, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        if algorithm == "nccl":
            raise NoLibrary("NCCL", "NCCL: Unable to load NCCL library")
        return super().collective(kind, algorithm, arrays)


def test_a_library_that_cannot_be_loaded_is_reported_once_and_the_other_algorithms_are_tested() -> None:
    outcome = CHECK.run(context(_WithoutNccl(CARDS)))
    assert outcome.verdict is Verdict.FAIL
    (found,) = outcome.findings
    assert (found.kind, found.found) == ("software", "NCCL: Unable to load NCCL library")
    assert "install NCCL with" in found.next_step
    assert {figure.name.split()[1] for figure in outcome.figures} == {"ring"}
