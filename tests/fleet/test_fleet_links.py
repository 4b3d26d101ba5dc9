"""Exchanges between machines: who meets whom, how the members find each other, and what bad exchanges say."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from itertools import combinations, pairwise

import pytest
from simulated_links import KINDS, is_of, network

from harness.errors import UsageError
from harness.fleet.actions import Action
from harness.fleet.links.agent import Meeting, Missing
from harness.fleet.links.judge import judge_links
from harness.fleet.links.record import LinkPlan, Lost, Report, parse_report
from harness.fleet.links.schedule import Exchange, packed, pairs, rings, schedule
from harness.fleet.links.verdict import LinkFinding, Scope
from harness.fleet.policy import Judging
from harness.records import ExitCode
from harness.runner.messages import plain

NOW = datetime(2026, 11, 4, tzinfo=timezone.utc)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 7, 8, 25, 64])
@pytest.mark.parametrize("rounds", [1, 3, 100])
def test_in_each_round_a_node_has_one_exchange_and_it_meets_others_each_time(count: int, rounds: int) -> None:
    made = pairs(count, rounds)
    most = 0 if count < 2 else count - 1 + count % 2
    assert len(made) == min(rounds, most)
    met = Counter(pair for round_ in made for pair in round_)
    assert set(met.values()) <= {1}, "no pair comes twice"
    for round_ in made:
        places = [place for pair in round_ for place in pair]
        assert len(places) == len({*places}) == count - count % 2
        assert {*places} <= {*range(count)}
    if rounds >= most:
        assert {*met} == {*combinations(range(count), 2)}, "all rounds are all pairs"


@pytest.mark.parametrize("count", [*range(12), 64, 65, 66])
def test_rings_hold_each_node_once_beside_its_neighbours_and_begin_further_on_each_time(count: int) -> None:
    made = rings(count, 4, 2)
    assert len(made) == (0 if count < 3 else 1 if count < 7 else 2)
    for round_ in made:
        assert sorted(place for ring in round_ for place in ring) == [*range(count)]
        for ring in round_:
            assert 3 <= len(ring) <= 6
            assert all((one + 1) % count == other for one, other in pairwise(ring))
    if len(made) == 2:
        assert {*map(frozenset, made[0])} != {*map(frozenset, made[1])}
    assert rings(count, 0, 2) == []


def test_what_is_done_again_is_packed_into_few_rounds() -> None:
    given = [Exchange(0, members, 1) for members in (("a", "b"), ("a", "b"), ("c", "d"), ("c", "d"), ("a", "c"))]
    made = packed(given, 5)
    assert [(each.round, each.members) for each in made] == [
        (5, ("a", "b")),
        (5, ("c", "d")),
        (6, ("a", "b")),
        (6, ("c", "d")),
        (7, ("a", "c")),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_each_fault_is_localised_and_its_absence_accuses_nobody(kind: str) -> None:
    for seed in range(3):
        made = network(seed, 120, (kind,))
        found, _ = made.judged()
        (finding,) = [each for each in found.verdict.findings if each.confirmed]
        assert is_of(finding, made.planted[0]), (made.planted, finding)
        assert found.verdict.complete is (finding.fault != "no answer")
        sound, _ = network(seed, 80).judged()
        assert not [each for each in sound.verdict.findings if each.confirmed]
        assert sound.verdict.complete


def test_what_was_slow_once_is_done_again_beside_sound_machines_and_accuses_nobody_then() -> None:
    made = network(1, 80)
    exchanges = list(schedule(made.nodes, 3, 4))
    noisy = [
        replace(each, timings=tuple(replace(one, elapsed_s=3 * one.elapsed_s) for one in each.timings))
        if each.number == 7
        else each
        for each in made.reports(exchanges)
    ]
    first = judge_links(exchanges, noisy, made.racks, Judging())
    pair = exchanges[7].members
    (finding,) = [each for each in first.verdict.findings if {*each.machines} == {*pair}]
    assert (finding.confirmed, finding.action, finding.scope) == (False, Action.RERUN, Scope.LINK)
    repeated = [each for each in first.again if each.members == pair]
    assert len(repeated) >= 2
    assert any(each.control and not {*each.members} & {*pair} for each in first.again)
    for name in pair:
        assert any(name in each.members and each.members != pair for each in first.again), "each end meets another"
    everything = [*exchanges, *first.again]
    reports = [*noisy, *made.reports(everything, len(exchanges))]
    second = judge_links(everything, reports, made.racks, Judging())
    assert not any({*each.machines} == {*pair} for each in second.verdict.findings)
    assert any("mostly not when done again" in note for note in second.verdict.notes)
    # Where the controls were slow as well, being slow again says nothing.
    busy = [
        replace(each, timings=tuple(replace(one, elapsed_s=9 * one.elapsed_s) for one in each.timings))
        if each.number >= len(exchanges)
        else each
        for each in reports
    ]
    third = judge_links(everything, busy, made.racks, Judging())
    assert not [each for each in third.verdict.findings if each.confirmed]
    assert any("the network was busy" in note for note in third.verdict.notes)


def test_where_times_vary_more_no_link_and_no_machine_is_accused_of_it() -> None:
    for seed in range(4):
        made = network(seed, 120)
        made.noise, made.tails = 0.1, 0.15
        found, exchanges = made.judged()
        assert not [each for each in found.verdict.findings if each.confirmed]
        assert sum(each.stage > 0 for each in exchanges) > 50, "it was looked at again"
        assert len(found.verdict.findings) <= 16


def small(
    count: int, *, wrong: tuple[str, ...] = (), closed: bool = False, lost: tuple[Lost, ...] = ()
) -> list[LinkFinding]:
    """Judge a few machines, without anything that looks at times."""
    made = network(0, count)
    exchanges = list(schedule(made.nodes, 3, 4))
    reports: list[Report] = []
    for _ in range(2):
        reports = [
            Report(name, number, "failed", "closed", (each.members[0],))
            if closed
            else Report(name, number, "wrong" if {*wrong} & {*each.members} else "done", "2 values are wrong")
            for number, each in enumerate(exchanges)
            for name in each.members
        ]
        found = judge_links(exchanges, reports, {}, Judging(), lost)
        exchanges += found.again
    return list(found.verdict.findings)


def test_what_cannot_be_told_apart_is_named_together() -> None:
    (both,) = small(2, wrong=("n001",))
    assert (both.scope, both.confirmed, both.unclear) == (Scope.UNCLEAR, True, ("n000", "n001"))
    assert "the link, or n000 or n001, which did well with nobody else" in both.text
    (one,) = small(3, wrong=("n001",))
    assert (one.scope, one.machines) == (Scope.NODE, ("n001",))
    assert small(3) == small(1) == []


def test_what_fails_everywhere_accuses_no_machine() -> None:
    (found,) = small(12, closed=True)
    assert (found.scope, found.fault) == (Scope.FLEET, "no answer")
    assert "no machine is accused" in found.text
    (found,) = small(12, wrong=tuple(f"n{number:03}" for number in range(12)))
    assert (found.scope, found.fault) == (Scope.FLEET, "wrong values")


def test_a_machine_that_never_began_is_left_out_and_not_accused() -> None:
    made = network(0, 6)
    exchanges = schedule(made.nodes, 3, 4)
    away = Lost("n002", "not idle any more")
    reports = [
        Report(name, number, "failed", "n002 did not come", ("n002",))
        if "n002" in each.members
        else Report(name, number, "done")
        for number, each in enumerate(exchanges)
        for name in each.members
        if name != "n002"
    ]
    verdict = judge_links(exchanges, reports, {}, Judging(), (away,)).verdict
    assert (verdict.findings, verdict.complete, verdict.exit_code) == ((), False, ExitCode.UNKNOWN)
    assert verdict.left_out == (("n002", "not idle any more"),)
    assert "INCOMPLETE (a machine took no part: 4)" in verdict.denominator


# How the members of an exchange find each other.


def plan_of(*exchanges: tuple[str, ...], start_s: float = 0.0) -> LinkPlan:
    names = sorted({name for members in exchanges for name in members})
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
    nodes = {}
    for name in names:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            nodes[name] = ("127.0.0.1", int(found.getsockname()[1]))
    made = {number: Exchange(number, members) for number, members in enumerate(exchanges)}
    return LinkPlan("token", nodes, made, (64,), start_s, 60.0)


def met(plan: LinkPlan, *names: str, late: str = "") -> dict[str, object]:
    """Let the members meet for exchange 0, each in a thread, and return the ports or who was missing.

    All listen before the first calls, as they do long before an exchange. ``late`` calls last.
    """
    answers: dict[str, object] = {}
    others_wait = threading.Event()

    def meet(name: str, number: int, listening: socket.socket) -> None:
        meeting = Meeting(plan, name, listening)
        if name == late:
            assert others_wait.wait(60)
        elif late:
            # Long after the leader has stopped waiting for those who are missing.
            threading.Timer(1.0, others_wait.set).start()
        try:
            answers[name] = meeting.meet(0, 7000 + number)
        except Missing as error:
            answers[name] = error.names

    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(plan.nodes[name])) for name in names]
        threads = [
            threading.Thread(target=meet, args=(name, number, listening))
            for number, (name, listening) in enumerate(zip(names, sockets, strict=True))
        ]
        for listening in sockets:
            listening.settimeout(0.05)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return answers


def test_the_members_of_an_exchange_meet_and_learn_the_ports() -> None:
    plan = plan_of(("a", "b", "c"), start_s=60.0)
    assert met(plan, "a", "b", "c") == dict.fromkeys("abc", (7000, 7001, 7002))


def test_a_member_that_does_not_come_is_named_by_all_others() -> None:
    assert met(plan_of(("a", "b", "c")), "a", "b", late="b") == dict.fromkeys("ab", ("c",)), "also by one that is late"
    assert met(plan_of(("a", "b")), "b") == {"b": ("a",)}, "where the first is missing too"


def test_calls_of_strangers_are_dropped() -> None:
    plan = plan_of(("a", "b"), start_s=60.0)
    with socket.create_server(plan.nodes["a"]) as listening:
        listening.settimeout(5)
        meeting = Meeting(plan, "a", listening)
        for text in (
            b"GET / HTTP/1.1\r\n\n",
            b"[]\n",
            b"",
            b'{"token": "other", "number": 0, "node": "b", "port": 1}\n',
        ):
            with socket.create_connection(plan.nodes["a"]) as stranger:
                stranger.sendall(text)
                stranger.shutdown(socket.SHUT_WR)
                meeting._accept()
                assert meeting.called == {}
                assert stranger.recv(10) == b""


# What is kept.


def test_a_plan_is_an_argument_and_what_is_none_is_refused() -> None:
    nodes = tuple(f"node-{number:04}.example.org" for number in range(1000))
    exchanges = dict(enumerate(schedule(nodes, 3, 4)))
    plan = LinkPlan("t", {name: (name, 8520) for name in nodes}, exchanges, (65536,), 120.0, 60.0)
    text = plan.packed()
    assert len(text) < 100_000, "Linux takes 128 KiB in an argument"
    assert LinkPlan.unpacked(text) == plan
    for bad in ("", "x", text[:100], "e30="):
        with pytest.raises(UsageError, match="no plan of exchanges"):
            LinkPlan.unpacked(bad)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"number": 9}, "has no part in"),
        ({"number": 1}, "has no part in"),
        ({"state": "fine"}, "state"),
        ({"schema_version": 99}, "newer than"),
        ({"timings": [{"what": "copy", "size_bytes": 1, "elapsed_s": -1.0}]}, "a time that is none"),
        ({"timings": [{"what": "copy", "size_bytes": 1, "elapsed_s": 1e999}]}, "finite"),
    ],
)
def test_a_report_that_is_none_is_refused(changed: dict[str, object], why: str) -> None:
    exchanges = (Exchange(0, ("a", "b")), Exchange(0, ("c", "d")))
    good = plain(Report("somebody", 0, "done", "x" * 10_000, ("z", "b")))
    assert isinstance(good, dict)
    made = parse_report(json.dumps(good), "a", exchanges)
    assert (made.node, made.missing, len(made.why)) == ("a", ("b",), 400), "by the name that the engine knows"
    with pytest.raises(ValueError, match=why):
        parse_report(json.dumps({**good, **changed}), "a", exchanges)
    with pytest.raises(ValueError, match="too deeply"):
        parse_report("[" * 100_000, "a", exchanges)
