"""What is kept of exchanges between machines: the plan that each node gets, its reports, and the run.

Reports come from machines, so nothing in them is trusted.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.errors import UsageError
from harness.fleet.files import Files
from harness.fleet.links.schedule import Exchange
from harness.fleet.seen import LONGEST, parse_time
from harness.fleet.store import LeftOut, Store, parsed, plain_name
from harness.report.printable import shortened
from harness.report.storage import json_text
from harness.runner.messages import plain
from harness.stored import parse_versioned

LINKS_FILE = "links.json"
#: The folder of these runs in a store.
LINKS = "links"
SCHEMA_VERSION = 1
SUFFIX = ".exchange.json"
#: No plan is larger, unpacked.
_MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """What every node gets: the exchanges, and how to reach the others."""

    #: Tells this run's messages from those of others.
    token: str
    #: The names of the nodes, their addresses, and the port at which each expects the others.
    nodes: dict[str, tuple[str, int]]
    exchanges: dict[int, Exchange]
    sizes_bytes: tuple[int, ...]
    #: How much later than the first node the last one may start, and how long an exchange may take, in seconds.
    start_s: float
    limit_s: float
    schema_version: int = SCHEMA_VERSION

    @property
    def longest_s(self) -> float:
        """How long a node may take for all of its exchanges."""
        rounds = 1 + max((each.round for each in self.exchanges.values()), default=0)
        return self.deadline_s(rounds) + self.limit_s

    def deadline_s(self, round_: int) -> float:
        """When to give up waiting for the others in a round, in seconds since the own start.

        A node that waited until then for a dead one is still in time for its next exchange.
        """
        return self.start_s + (round_ + 1) * (self.limit_s + self.start_s)

    def packed(self) -> str:
        """Return the plan as an argument of a command."""
        text = json.dumps(plain(self), allow_nan=False)
        return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode()

    @classmethod
    def unpacked(cls, text: str) -> LinkPlan:
        """Read what :meth:`packed` made. Raise UsageError if it is no plan."""
        try:
            packed = zlib.decompressobj()
            content = json.loads(packed.decompress(base64.urlsafe_b64decode(text), _MOST_BYTES))
            return parse_versioned(content, cls, SCHEMA_VERSION)
        except (ValueError, zlib.error, binascii.Error, RecursionError) as error:
            raise UsageError(f"no plan of exchanges: {error}; harness fleet links makes it") from error


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one operation took, the fastest of several."""

    what: Literal["copy", "all-reduce"]
    size_bytes: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """What one node says of one exchange."""

    node: str
    number: int
    state: Literal["done", "wrong", "failed"]
    #: Why it failed, or which values are wrong.
    why: str = ""
    #: Members that did not answer.
    missing: tuple[str, ...] = ()
    timings: tuple[Timing, ...] = ()
    rack: str | None = None
    #: That of the exchange. What an earlier attempt said does not count.
    attempt: int = 0
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Lost:
    """A machine that took no part in a stage, or whose agent ended before its last exchange, and why."""

    machine: str
    why: str
    stage: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class LinkRun:
    """A run of exchanges over many machines."""

    started_at: str
    engine: str
    #: Every machine that was named or found.
    asked: tuple[str, ...]
    exchanges: tuple[Exchange, ...]
    lost: tuple[Lost, ...] = ()
    complete: bool = False
    schema_version: int = SCHEMA_VERSION


def keep(report: Report, files: Files) -> None:
    """Write a report among the files of its node."""
    files.write(f"{report.number:05}{SUFFIX}", json_text(report) + "\n")


def save(run: LinkRun, files: Files) -> None:
    """Write ``links.json`` of a run, whose files these are."""
    files.write(LINKS_FILE, json_text(run) + "\n")


def parse_report(text: str, node: str, exchanges: Sequence[Exchange]) -> Report:
    """Read what ``node`` says. Raise ValueError if it is no report, or not of an exchange of this node."""
    return _report(parsed(text), node, exchanges)


def _report(content: object, node: str, exchanges: Sequence[Exchange]) -> Report:
    made = parse_versioned(content, Report, SCHEMA_VERSION)
    if not 0 <= made.number < len(exchanges) or node not in (own := exchanges[made.number].members):
        raise ValueError(f"is of exchange {made.number}, which {node} has no part in")
    times = [each.elapsed_s for each in made.timings]
    if not all(math.isfinite(each) and each > 0 for each in times):
        raise ValueError("has a time that is none")
    missing = tuple(name for name in own if name in made.missing)
    why = shortened(made.why, LONGEST)
    rack = shortened(made.rack, 100) if made.rack else None
    return Report(node, made.number, made.state, why, missing, made.timings[:16], rack, made.attempt)


def reports_of(store: Store, run: LinkRun, prefix: str = "") -> tuple[list[Report], list[LeftOut]]:
    """Read all reports of a run, whose folder is ``prefix``, of each exchange the last attempt. Name what is none."""
    made: list[Report] = []
    bad: list[LeftOut] = []
    members = {plain_name(name): name for each in run.exchanges for name in each.members}
    nodes = {
        path: members[folder]
        for path in store.files.names(f"{prefix}*/*{SUFFIX}")
        if (folder := path.removeprefix(prefix).partition("/")[0]) in members
    }
    for report in store.made(list(nodes), lambda path, content: _report(content, nodes[path], run.exchanges)):
        if isinstance(report, LeftOut):
            bad.append(report)
        elif report.attempt == run.exchanges[report.number].attempt:
            made.append(report)
    return made, bad


def measured(run: LinkRun, reports: Iterable[Report]) -> set[int]:
    """Return the exchanges, by number, that all members took part in."""
    took = Counter(each.number for each in reports if each.state != "failed")
    return {number for number, each in enumerate(run.exchanges) if took[number] == len(each.members)}


def _run(content: object) -> LinkRun:
    run = parse_versioned(content, LinkRun, SCHEMA_VERSION)
    if parse_time(run.started_at) is None:
        raise ValueError(f"started_at {run.started_at[:40]!r} is not a time")
    return run


def runs_of(store: Store) -> tuple[list[tuple[str, LinkRun]], list[LeftOut]]:
    """Return the runs of exchanges in a store with their folders, the newest first, and the files that are none."""
    found: list[tuple[str, str, LinkRun]] = []
    bad: list[LeftOut] = []
    paths = store.files.names(f"{LINKS}/*/{LINKS_FILE}")
    for path, run in zip(paths, store.made(paths, lambda _, content: _run(content)), strict=True):
        if isinstance(run, LeftOut):
            bad.append(run)
        else:
            found.append((run.started_at, path.removesuffix(LINKS_FILE), run))
    return [each[1:] for each in sorted(found, key=lambda each: each[:2], reverse=True)], bad
