"""What is known of links from several runs of exchanges: the newest result of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from harness.fleet.files import LocalFiles
from harness.fleet.links.newest import newest_verdict
from harness.fleet.links.record import LinkRun, Report, keep
from harness.fleet.links.schedule import schedule
from harness.fleet.links.verdict import LinkFinding, Scope
from harness.fleet.policy import Judging
from harness.fleet.store import Store
from harness.report.storage import save_json

NOW = datetime(2026, 11, 4, tzinfo=timezone.utc)


def test_a_finding_holds_until_what_it_accuses_has_been_tested_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    nodes = ("a", "b", "c", "d")

    def exchanged(day: int, nodes: Sequence[str], wrong: Sequence[str], silent: str = "") -> list[LinkFinding]:
        """Let all pairs meet, twice: those with all of ``wrong`` give wrong values. ``silent`` reports nothing."""
        once = schedule(nodes, 3, 0)
        exchanges = (*once, *(replace(each, stage=1) for each in once))
        at = NOW.replace(day=day).isoformat()
        save_json(LinkRun(at, "made up", tuple(nodes), exchanges), tmp_path / "links" / str(day), "links.json")
        for number, each in enumerate(exchanges):
            bad = {*wrong} <= {*each.members} if wrong else False
            for name in each.members:
                if name != silent:
                    made = Report(name, number, "wrong" if bad else "done", "1 of 4 values are wrong" if bad else "")
                    keep(made, LocalFiles(tmp_path / "links" / str(day) / name))
        verdict, _ = newest_verdict(store, (), Judging())
        assert verdict is not None
        assert verdict.nodes == tuple(nodes), "the counts are those of the newest run"
        return list(verdict.findings)

    (link,) = exchanged(1, nodes, ("a", "b"))
    assert (link.scope, link.machines, link.run) == (Scope.LINK, ("a", "b"), "")
    (kept,) = exchanged(2, ("b", "c", "d"), ())
    assert kept == replace(link, run="2026-11-01T00:00:00+00:00")
    assert "on 2026-11-01T00:00:00+00:00, not tested since: look at the cables" in kept.text
    (_, machine) = sorted(exchanged(3, ("b", "c", "d"), ("c",)), key=lambda each: len(each.run))[::-1]
    assert (machine.scope, machine.machines, machine.run) == (Scope.NODE, ("c",), "")
    # Of what has not come to a result, nothing new is known.
    assert [each.machines for each in exchanged(4, ("a", "b"), (), silent="a")] == [("c",), ("a", "b")]
    assert [each.machines for each in exchanged(5, ("a", "b"), ())] == [("c",)]
    assert exchanged(6, ("c", "d"), ()) == []
