"""Runs of exchanges: what is kept of them, what is done again, and what is resumed."""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
import simulated_fleet as simulated
from simulated_links import SimulatedNetwork, network

from harness.errors import UsageError
from harness.fleet.actions import Action
from harness.fleet.anonymous import anonymous_fleet
from harness.fleet.engines.engine import Asked, Done, MachineRun
from harness.fleet.engines.slurm_nodes import Slurm
from harness.fleet.files import LocalFiles, StoreError
from harness.fleet.fleet import judge_store
from harness.fleet.index import load
from harness.fleet.links.judge import judge_links
from harness.fleet.links.newest import newest_verdict
from harness.fleet.links.record import LinkPlan, LinkRun, Report, keep, reports_of, runs_of
from harness.fleet.links.run import LinkOptions, carry_out, resume, start
from harness.fleet.links.schedule import schedule
from harness.fleet.page import fleet_page
from harness.fleet.plan import make_plan
from harness.fleet.policy import Judging, Planning, Policy
from harness.fleet.store import Store
from harness.fleet.summary import headline
from harness.records import ExitCode, Host
from harness.report.storage import json_text, save_json
from harness.runner.messages import plain

NOW = datetime(2026, 11, 4, tzinfo=timezone.utc)


class Network:
    """An engine whose machines are made up: it answers with the lines of reports, and one machine dies."""

    name = "made up"

    def __init__(self, made: SimulatedNetwork, kept: bool) -> None:
        self.made, self.kept, self.needs_folder, self.calls = made, kept, kept, 0

    def machines(self) -> list[Asked]:
        return [*map(Asked, self.made.nodes), Asked("away", "not idle: allocated")]

    def addresses(self, machines: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(machines, "127.0.0.1")

    def run(self, machines: Sequence[str], work: MachineRun) -> Generator[Done, None, None]:
        self.calls += 1
        plan = LinkPlan.unpacked(work.arguments[-1])
        places = list(plan.exchanges)
        reports = [
            replace(each, number=places[each.number], attempt=plan.exchanges[places[each.number]].attempt)
            for each in self.made.reports([*plan.exchanges.values()])
        ]
        for name in machines:
            own = [each for each in reports if each.node == name]
            if self.kept:
                for each in own:
                    keep(each, LocalFiles(work.folder / name))
                yield Done(name)
            else:
                text = "\n".join(["hello", *(json.dumps(plain(each)) for each in own)])
                lost = any(each.machine == name for each in self.made.lost)
                yield Done(name, text, "killed" if lost else "")


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_keeps_each_report_does_suspects_again_and_is_in_the_report_of_the_fleet(
    tmp_path: Path, kept: bool
) -> None:
    kinds = ("slow link", "wrong machine", *(() if kept else ("dead machine",)), "slow rack")
    made = network(5, 100, kinds)
    engine, store = Network(made, kept), Store(tmp_path)
    for number, name in enumerate(made.nodes[:3]):
        record = simulated.sound(number, random.Random(number))
        store.add(json_text(replace(record, host=Host(name, rack=made.racks[name]))))
    files, run = start(engine, LinkOptions(), store, NOW)
    said = list(carry_out(engine, LinkOptions(), files, run, Judging()))
    assert engine.calls >= 2
    assert any("doing again what looks bad" in line for line in said)
    found = judge_store(store, Policy(), NOW)
    assert found.links is not None
    assert found.links.left_out[0] == ("away", "not idle: allocated")
    assert (found.links.complete, found.exit_code) == (False, ExitCode.FAILURE)
    assert headline(found).startswith("FAIL, INCOMPLETE: ")
    assert "; between machines: " in headline(found)
    where = {each.kind: each.where for each in made.planted}
    accused = {each.machine: each for each in found.accusations if each.source == "links"}
    assert {*accused} == {where[kind][0] for kind in kinds if kind.endswith("machine")}
    assert accused[where["wrong machine"][0]].action is Action.RESEAT
    (rack,) = [each for each in found.shared if each.common.startswith("network of rack")]
    assert rack.common == f"network of rack {where['slow rack'][0]}"
    assert {made.racks[name] for name in rack.machines} == {*where["slow rack"]}
    plan = make_plan(found, Slurm(), Policy(plan=Planning(most_share=0.5)))
    assert {each.machine for each in plan.steps} == {*accused}
    link = " - ".join(where["slow link"])
    page = fleet_page(found, "")
    assert f"link {link}: slow in " in page
    bare = anonymous_fleet(found, load(store).runs)
    assert "n0" not in fleet_page(bare, "").replace("n0n", "")
    # A report that is damaged is named, and what is left of the run still counts.
    path = next((files.folder / made.nodes[0]).glob("*.exchange.json"))
    path.write_text("{", encoding="utf-8")
    assert any(each.path.endswith(path.name) for each in judge_store(store, Policy(), NOW).left_out)


class Interrupted(Network):
    """An engine that is interrupted once: half of the machines have reported, and say that the others did not come."""

    def run(self, machines: Sequence[str], work: MachineRun) -> Generator[Done, None, None]:
        if self.calls:
            yield from super().run(machines, work)
            return
        half = machines[: len(machines) // 2]
        first, *others = super().run(machines, work)
        yield first
        plan = LinkPlan.unpacked(work.arguments[-1])
        for done in others[: len(half)]:
            lines = [Report(done.machine, number, "failed", "gone", (machines[-1],)) for number in plan.exchanges]
            yield replace(done, text="\n".join(json.dumps(plain(each)) for each in lines), why="interrupted")
        raise StoreError("store", "No space left on device")


def test_exchanges_that_were_interrupted_are_resumed_and_what_they_said_last_accuses_nobody(tmp_path: Path) -> None:
    made = network(3, 40, ("wrong machine",))
    engine, store = Interrupted(made, kept=False), Store(tmp_path)
    files, run = start(engine, LinkOptions(), store, NOW)
    with pytest.raises(StoreError, match="what has come so far is kept"):
        list(carry_out(engine, LinkOptions(), files, run, Judging()))
    before, _ = newest_verdict(store, (), Judging())
    assert before is not None
    assert (before.measured, before.complete) == (0, False)
    *nodes, gone = made.nodes
    made.nodes = tuple(nodes)
    same, rest = resume(engine, store)
    assert (same, {each.attempt for each in rest.exchanges}) == (files, {1})
    list(carry_out(engine, LinkOptions(), files, rest, Judging()))
    found, bad = newest_verdict(store, (), Judging())
    assert found is not None
    (wrong,) = found.findings
    assert ((wrong.machines), bad) == (made.planted[0].where, [])
    assert found.left_out == (("away", "not idle: allocated"), (gone, "unknown to the engine now"))
    # Whatever was measured is not measured again, and a run that has ended is not resumed.
    ((_, ended),) = runs_of(store)[0]
    with pytest.raises(UsageError, match="no exchanges that were interrupted"):
        resume(engine, store)
    save_json(replace(ended, complete=False), files.folder, "links.json")
    _, again = resume(engine, store)
    assert {each.attempt for each in again.exchanges if gone not in each.members} == {0, 1}
    calls = engine.calls
    list(carry_out(engine, LinkOptions(), files, again, Judging()))
    assert engine.calls == calls, "nothing is left to do"


def test_a_run_that_was_killed_keeps_what_it_measured(tmp_path: Path) -> None:
    run = LinkRun(NOW.isoformat(), "slurm", ("a", "b", "c"), tuple(schedule("abc", 3, 0)))
    folder = tmp_path / "links" / "1"
    save_json(run, folder, "links.json")
    assert run.exchanges[1].members == ("a", "b")
    keep(Report("a", 1, "done"), LocalFiles(folder / "a"))
    (folder / "a" / ".00002.exchange.json.123").write_text("{", encoding="utf-8")  # of the killed writer
    (tmp_path / "links" / "2").mkdir()
    (tmp_path / "links" / "2" / "links.json").write_text("{", encoding="utf-8")
    found, left_out = runs_of(Store(tmp_path))
    assert found == [("links/1/", run)]
    assert [each.path for each in left_out] == ["links/2/links.json"]
    reports, bad = reports_of(Store(tmp_path), run, "links/1/")
    assert (len(reports), bad) == (1, [])
    verdict = judge_links(run.exchanges, reports, {}, Judging()).verdict
    assert (verdict.asked, verdict.measured, verdict.exit_code) == (3, 0, ExitCode.UNKNOWN)
    assert verdict.unmeasured == (("a member has not reported", 3),)
