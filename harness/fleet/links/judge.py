"""Which link, machine or rack do bad exchanges have in common? Nothing is accused on one exchange alone.

- A machine is accused if it died, or if two thirds of its exchanges are bad, also without its most frequent partner.
- A rack is accused if two thirds of the exchanges that touch or leave it are bad, at three of its machines or more.
- A link is accused if every repetition was bad too, and both of its ends do well elsewhere.

What they cannot tell apart is named together. Whatever is slow must also be unlikely by the share of others that are.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeAlias

from harness.fleet.links.record import Lost, Report
from harness.fleet.links.schedule import Exchange, packed
from harness.fleet.links.verdict import FAULTS, Fault, LinkFinding, LinkVerdict, Scope, Usual
from harness.fleet.policy import Judging
from harness.fleet.statistics import binomial_tail, center_and_spread, discoveries, tail
from harness.plural import plural
from harness.report.quantities import percent, quantity, size

#: Of a sound network: its times spread by this share of the median, and nothing nearer to it than that is slow.
SPREAD_FLOOR, LEAST_EFFECT = 0.05, 0.25
#: The share of its exchanges that are bad where a machine or a rack is.
_SHARE = 2 / 3
#: How many exchanges of a machine have to be bad: times vary, values do not.
_LEAST: dict[Fault, int] = {"no answer": 2, "wrong values": 2, "slow": 3}
#: Machines of a rack that have to show it.
_OF_RACK = 3
#: Suspicions that are looked at again in one stage, and the fewest and most repetitions of each.
_MOST_AGAIN, _REPEATS = 16, (2, 5)
#: What is compared: operation, bytes, members, and whether they are of one rack.
_Cohort = tuple[str, int, int, bool | None]


@dataclass(eq=False)
class _Test:
    """One exchange that was measured, or that failed."""

    number: int
    exchange: Exchange
    racks: frozenset[str]
    values: dict[_Cohort, float] = field(default_factory=dict)
    #: What is wrong with it; for each fault, the members that may be to blame, and what was seen.
    bad: dict[Fault, tuple[frozenset[str], str]] = field(default_factory=dict)

    @property
    def members(self) -> frozenset[str]:
        return frozenset(self.exchange.members)


@dataclass(frozen=True, slots=True)
class LinkJudgement:
    """The verdict, and what to do again before it is final."""

    verdict: LinkVerdict
    again: tuple[Exchange, ...]


def judge_links(
    exchanges: Sequence[Exchange],
    reports: Iterable[Report],
    racks: Mapping[str, str],
    judging: Judging,
    lost: Sequence[Lost] = (),
) -> LinkJudgement:
    """Judge exchanges by the reports of their members.

    ``racks``: of the machines whose rack is known. ``lost``: machines that took no part, or died.
    """
    by_number: dict[int, dict[str, Report]] = defaultdict(dict)
    known = dict(racks)
    for report in reports:
        by_number[report.number][report.node] = report
        if report.rack:
            known[report.node] = report.rack
    when = [(each.stage, each.attempt) for each in exchanges]
    began = {(name, when[number]) for number, own in by_number.items() for name in own}
    gone = {(each.machine, (each.stage, each.attempt)) for each in lost}
    tests: list[_Test] = []
    unmeasured: Counter[str] = Counter()
    measured = 0
    for number, exchange in enumerate(exchanges):
        if any((name, when[number]) in gone - began for name in exchange.members):
            unmeasured["a machine took no part"] += 1
            continue
        dead = frozenset(name for name in exchange.members if (name, when[number]) in gone)
        test, why = _test(number, exchange, by_number[number], known, dead)
        tests += [test] if test is not None else []
        unmeasured[why] += bool(why)
        measured += not why
    usual, compared, too_few = _find_slow(tests, judging)
    notes: list[str] = []
    for stage in sorted({each.exchange.stage for each in tests if each.exchange.control}):
        controls = [each for each in tests if each.exchange.control and each.exchange.stage == stage]
        if 2 * sum("slow" in each.bad for each in controls) >= len(controls):
            for each in tests:
                if each.exchange.stage == stage:
                    each.bad.pop("slow", None)
            notes.append("controls were slow too while exchanges were repeated: the network was busy, repeat the run")
    findings: list[LinkFinding] = []
    suspects: list[_Test] = []
    for fault in FAULTS:
        own, more = _localised(fault, tests, known, {name for name, _ in gone & began}, judging, notes)
        findings += own
        suspects += more
    accused = {name for each in findings if each.scope in (Scope.NODE, Scope.RACK) for name in each.machines}
    again = _again(exchanges, tests, suspects, accused, judging)
    verdict = LinkVerdict(
        nodes=tuple(sorted({*(each.machine for each in lost)}.union(*(each.members for each in exchanges)))),
        asked=len(exchanges),
        measured=measured,
        unmeasured=tuple(sorted((why, count) for why, count in unmeasured.items() if why)),
        left_out=tuple(sorted({each.machine: each.why for each in lost}.items())),
        findings=tuple(findings),
        notes=tuple(notes),
        usual=usual,
        compared=compared,
        too_few=too_few,
        least=judging.least_cards,
    )
    return LinkJudgement(verdict, again)


def _test(
    number: int, exchange: Exchange, reports: Mapping[str, Report], racks: Mapping[str, str], dead: Set[str]
) -> tuple[_Test | None, str]:
    """Return an exchange as it was seen by its members, and why it was not measured."""
    members = frozenset(exchange.members)
    known = frozenset(racks[name] for name in members if name in racks)
    test = _Test(number, exchange, known)
    failed = [each for each in reports.values() if each.state == "failed"]
    if failed:
        missing = frozenset(name for each in failed for name in each.missing)
        # Of two, either may be the one that does not reach the other, unless the engine knows better.
        blamed = members & dead or (missing if missing and not exchange.is_pair else members)
        test.bad["no answer"] = (blamed, min(failed, key=lambda each: (not each.missing, each.node)).why)
        return test, "a member did not answer" if missing else "it failed, or took too long"
    if len(reports) < len(members):
        return None, "a member has not reported"
    for each in reports.values():
        if each.state == "wrong":
            test.bad["wrong values"] = (members, f"at {each.node}: {each.why}")
        for timing in each.timings:
            within = len(known) == 1 if all(name in racks for name in members) else None
            key = (timing.what, timing.size_bytes, len(members), within)
            test.values[key] = max(test.values.get(key, 0.0), timing.elapsed_s)
    return test, ""


def _find_slow(tests: Sequence[_Test], judging: Judging) -> tuple[tuple[Usual, ...], int, int]:
    """Mark what takes longer than is usual. Return what is usual, and how many times were compared, or not."""
    by_cohort: dict[_Cohort, list[tuple[_Test, float]]] = defaultdict(list)
    for test in tests:
        for key, value in test.values.items():
            by_cohort[key].append((test, value))
    far: list[tuple[float, _Test, str]] = []
    usual, compared, too_few = [], 0, 0
    for key, values in sorted(by_cohort.items(), key=lambda item: (*item[0][:3], str(item[0][3]))):
        first = _first(values)
        if len(first) < judging.least_cards:
            # Within racks and between them together: that finds less, and is more than nothing.
            alike = [by_cohort[each] for each in by_cohort if each[:3] == key[:3]]
            first = [value for own in alike for value in _first(own)]
        what = f"{key[0]} of {size(key[1])}" + (f" in rings of {key[2]}" if key[2] > 2 else "")
        if len(first) < judging.least_cards:
            too_few += len(values)
            continue
        center, spread = center_and_spread(first, SPREAD_FLOOR)
        usual.append(Usual(what, key[1], key[3], len(values), center, spread))
        compared += len(values)
        for test, value in values:
            if value - center > LEAST_EFFECT * center:
                text = f"{what}: {quantity(1000 * value, 'ms')}, {percent(value / center)} of the median"
                far.append((tail((value - center) / spread), test, text))
    far = [each for each in far if each[0] <= judging.false_discovery_rate]
    believed = discoveries([chance for chance, _, _ in far], judging.false_discovery_rate, compared)
    for (_, test, text), sure in sorted(zip(far, believed, strict=True), key=lambda item: item[0][0]):
        if sure:
            test.bad.setdefault("slow", (test.members, text))
    return tuple(usual), compared, too_few


def _first(values: Sequence[tuple[_Test, float]]) -> list[float]:
    """Return the values of the schedule: what is done again is no sample of the fleet."""
    return [value for test, value in values if test.exchange.stage == 0]


@dataclass(eq=False)
class _Meeting:
    """All exchanges between the same members, as far as one fault is concerned."""

    members: tuple[str, ...]
    racks: frozenset[str]
    tests: list[_Test] = field(default_factory=list)
    bad: list[_Test] = field(default_factory=list)
    #: Members that may be to blame for what is bad.
    blamed: frozenset[str] = frozenset()

    @property
    def is_bad(self) -> bool:
        """Whether more than half of the exchanges were bad."""
        return 2 * len(self.bad) > len(self.tests)

    @property
    def repeats(self) -> list[_Test]:
        """What was done again."""
        first = min(each.exchange.stage for each in self.tests)
        return [each for each in self.tests if each.exchange.stage > first]

    def says_of(self, name: str) -> bool:
        """Whether it says something of a machine: it took part, and nobody else alone is to blame."""
        return name in self.members and (not self.bad or name in self.blamed)


_Meetings: TypeAlias = Sequence[_Meeting]


def _meetings(fault: Fault, tests: Sequence[_Test]) -> list[_Meeting]:
    made: dict[frozenset[str], _Meeting] = {}
    for each in tests:
        # What failed says nothing of values, and nothing of times.
        if fault in each.bad or "no answer" not in each.bad:
            met = made.setdefault(each.members, _Meeting(each.exchange.members, each.racks))
            met.tests.append(each)
            if fault in each.bad:
                met.bad.append(each)
                met.blamed |= each.bad[fault][0]
    return list(made.values())


def _localised(
    fault: Fault, tests: Sequence[_Test], racks: Mapping[str, str], dead: Set[str], judging: Judging, notes: list[str]
) -> tuple[list[LinkFinding], list[_Test]]:
    """Find what the exchanges with a fault have in common. Return also those that have to be done again."""
    about = _meetings(fault, tests)
    left = [each for each in about if each.bad]
    found: list[LinkFinding] = []
    common = _whole_fleet(fault, about, left)
    if common is not None:
        return [common], []
    while left:
        best = max(_candidates(fault, about, left, racks, dead, judging), key=lambda each: each[0], default=None)
        if best is None:
            break
        _, scope, name, bad, own = best
        inside = {one for each in bad for one in each.members if scope is Scope.RACK and racks.get(one) == name}
        found.append(_finding(fault, scope, (name,), bad, own, inside=inside))
        about = [each for each in about if each not in bad]
        left = [each for each in left if each not in bad]
    suspects: list[_Test] = []
    open_: list[_Meeting] = []
    once, tried = 0, sum(bool(each.repeats) for each in left)
    well = {name for each in about if not each.bad for name in each.members}
    for each in left:
        members, repeats = frozenset(each.members), each.repeats
        if any({*other.members} < members for other in left):
            continue  # a pair of this ring says more
        if not repeats:
            suspects.append(each.bad[0])
        again = sum(fault in one.bad for one in repeats)
        if fault == "slow" and repeats and 2 * again <= len(repeats):
            once += 1
        elif (
            len(members) == 2
            and again == len(repeats) > 0
            and len(each.bad) >= _SHARE * len(each.tests)
            and (fault != "slow" or _chance(about, [each]) ** again * tried <= judging.false_discovery_rate)
        ):
            # Each end has to do well with somebody else: else it may be that end.
            scope = Scope.LINK if members <= well else Scope.UNCLEAR
            found.append(_finding(fault, scope, sorted(members), [each], [each], unclear=sorted(members - well)))
        else:
            open_.append(each)
    if fault == "slow" and len(open_) > _MOST_AGAIN:
        # So many at once are no faults of links.
        having = sorted({name for each in open_ for name in each.members})
        found.append(_finding(fault, Scope.FLEET, having, open_, about, confirmed=False))
        open_ = []
    for each in open_:
        scope = Scope.LINK if len(each.members) == 2 else Scope.RING
        found.append(_finding(fault, scope, sorted(each.members), [each], [each], confirmed=False))
    if once:
        notes.append(f"slow, and then mostly not when done again: {plural(once, 'exchange')}")
    return found, suspects


def _whole_fleet(fault: Fault, about: _Meetings, left: _Meetings) -> LinkFinding | None:
    """Find a fault that most machines have in most of their exchanges: no machine is the cause of that."""
    nodes = sorted({name for each in about for name in each.members})
    having = []
    for name in nodes:
        own = [each for each in about if each.says_of(name)]
        if own and sum(each.is_bad for each in own) > _SHARE * len(own):
            having.append(name)
    if len(having) < _OF_RACK or 2 * len(having) <= len(nodes):
        return None
    return _finding(fault, Scope.FLEET, having, left, about, inside=having)


def _candidates(
    fault: Fault, about: _Meetings, left: _Meetings, racks: Mapping[str, str], dead: Set[str], judging: Judging
) -> Iterator[tuple[tuple[int, int, str], Scope, str, list[_Meeting], list[_Meeting]]]:
    """Yield the machines and racks that explain bad exchanges, each with its rank."""
    for name in sorted({name for each in left for name in each.blamed}):
        own = [each for each in about if each.says_of(name)]
        bad = [each for each in own if each.is_bad]
        # Where it is the link to one partner, the exchanges without this partner are right.
        partners = Counter(one for each in bad for one in each.members if one != name)
        partner = partners.most_common(1)[0][0] if partners else ""
        rest = [each for each in own if partner not in each.members]
        rest_bad = sum(each.is_bad for each in rest)
        enough = len(bad) >= _LEAST[fault] and len(bad) >= _SHARE * len(own)
        enough = enough and rest_bad >= _LEAST[fault] - 1 and rest_bad >= _SHARE * len(rest)
        enough = enough and (fault != "slow" or _are_unlikely(bad, own, about, judging))
        if enough or (name in dead and fault == "no answer"):
            explained = [each for each in left if name in each.blamed]
            yield (len(explained), -len(own), name), Scope.NODE, name, explained, own
    for rack in sorted({rack for each in left for rack in each.racks}):
        inside = {name for name, where in racks.items() if where == rack}
        for only_crossing in (False, True):
            touching = [each for each in about if inside & {*each.members}]
            own = [each for each in touching if not (only_crossing and inside >= {*each.members})]
            bad = [each for each in own if each.is_bad and each.blamed & inside]
            having = {name for each in bad for name in each.blamed & inside}
            among = {name for each in own for name in inside & {*each.members}}
            enough = len(having) >= max(_OF_RACK, _SHARE * len(among)) and len(bad) >= _SHARE * len(own)
            if enough and (fault != "slow" or _are_unlikely(bad, own, about, judging)):
                yield (len(bad), -len(own), rack), Scope.RACK, rack, bad, own


def _are_unlikely(bad: _Meetings, own: _Meetings, about: _Meetings, judging: Judging) -> bool:
    return binomial_tail(len(bad), len(own), _chance(about, own)) * len(about) <= judging.false_discovery_rate


def _chance(about: _Meetings, own: _Meetings) -> float:
    """Return how often exchanges are bad that have nothing to do with ``own``: one more than seen may be."""
    bad = sum(each.is_bad for each in about) - sum(each.is_bad for each in own)
    return (bad + 1) / (len(about) - len(own) + 2)


def _finding(
    fault: Fault,
    scope: Scope,
    machines: Sequence[str],
    bad: _Meetings,
    of: _Meetings,
    *,
    confirmed: bool = True,
    unclear: Sequence[str] = (),
    inside: Iterable[str] = (),
) -> LinkFinding:
    tests = [test for each in bad for test in each.bad]
    return LinkFinding(
        fault,
        scope,
        tuple(machines),
        tuple(dict.fromkeys(f"{' - '.join(each.exchange.members)}: {each.bad[fault][1]}" for each in tests))[:2],
        len(tests),
        sum(len(each.tests) for each in of),
        confirmed,
        tuple(unclear),
        tuple(sorted(inside)),
    )


def _again(
    exchanges: Sequence[Exchange],
    tests: Sequence[_Test],
    suspects: Sequence[_Test],
    accused: set[str],
    judging: Judging,
) -> tuple[Exchange, ...]:
    """Return what to do again: each suspect beside two sound machines, which also meet its members."""
    suspected = {name for each in suspects for name in each.members}
    sound = {name for each in tests if not each.bad for name in each.members}
    sound -= {name for each in tests if each.bad for name in each.members} | suspected | accused
    pool = sorted(sound)
    stage = 1 + max((each.stage for each in exchanges), default=0)
    chance = _chance(_meetings("slow", tests), [])
    wanted = math.log(judging.false_discovery_rate / max(1, len(suspects))) / math.log(chance)
    repeats = min(max(math.ceil(wanted), _REPEATS[0]), _REPEATS[1])
    made: list[Exchange] = []
    for number, each in enumerate(suspects[:_MOST_AGAIN]):
        members = each.exchange.members
        helpers = [pool[(2 * number + place) % len(pool)] for place in range(2)] if len(pool) > 1 else pool
        for _ in range(repeats):
            made.append(Exchange(0, members, stage))
            if len(helpers) == 2:
                made.append(Exchange(0, (helpers[0], helpers[1]), stage, control=True))
        if each.exchange.is_pair:
            made += [Exchange(0, pair, stage) for pair in zip(members, helpers * 2, strict=False)]
        else:
            made += [Exchange(0, pair, stage) for pair in combinations(members, 2)]
    return packed(made, 1 + max((each.round for each in exchanges), default=-1))
