"""Out of service and back: what a plan says, what it never does, and what proves a machine sound again."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
import simulated_fleet as simulated

from harness.errors import UsageError
from harness.fleet.engines import slurm_nodes
from harness.fleet.engines.command import EngineError, answer, is_node, plain_reason
from harness.fleet.engines.kubernetes_nodes import KEY, REASON, Kubernetes
from harness.fleet.engines.scheduler import NodeState
from harness.fleet.engines.slurm_nodes import Slurm
from harness.fleet.fleet import judge_runs
from harness.fleet.plan import FleetPlan, make_plan, plan_lines
from harness.fleet.policy import Planning, Policy
from harness.fleet.seen import Seen
from harness.fleet.service import NotReturned, apply, bring_back
from harness.fleet.store import Store
from harness.records import Host, RunRecord

NOW = datetime(2026, 11, 3, tzinfo=timezone.utc)
LATER = datetime(2026, 11, 10, tzinfo=timezone.utc)
LENIENT = Policy(plan=Planning(most_share=1.0))


class FakeSlurm(Slurm):
    """A scheduler that only remembers."""

    def __init__(self, *nodes: NodeState) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.ran: list[str] = []

    def states(self) -> dict[str, NodeState]:
        return self.nodes

    def run(self, given: list[str]) -> str:
        node, state = given[2].removeprefix("NodeName="), given[3].removeprefix("State=")
        self.ran.append(f"{node} {state}")
        reason = given[4].removeprefix("Reason=") if state == "DRAIN" else ""
        self.nodes[node] = NodeState(node, idle=state == "RESUME", out=state == "DRAIN", reason=reason)
        return ""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    names = [f"sim-{number:04}" for number in range(20)]
    made = FakeSlurm(*(NodeState(name, idle=True, out=False, state="idle") for name in names))
    monkeypatch.setattr("harness.fleet.service.answer", made.run)
    return made


def fleet(*kinds: str, machines: int = 20) -> list[RunRecord]:
    draw = random.Random(0)
    records = [simulated.sound(number, draw) for number in range(machines)]
    for number, kind in enumerate(kinds):
        records[number] = simulated.plant(records[number], kind, 2)[0]
    return records


def planned(records: list[RunRecord], policy: Policy = LENIENT) -> FleetPlan:
    runs = [Seen(f"{number}/run.json", each) for number, each in enumerate(records)]
    return make_plan(judge_runs(runs, policy, NOW), Slurm(), policy)


def test_a_plan_names_the_cause_the_commands_and_their_undo() -> None:
    plan = planned(fleet("stuck-bit", "slow-products", "power-limit"))
    (step,) = plan.steps  # an outlier is run again, and a setting that only warns is no failure
    assert (step.machine, step.action, step.serials) == ("sim-0000", "replace", ("1650000002",))
    assert step.commands[0][:4] == ("scontrol", "update", "NodeName=sim-0000", "State=DRAIN")
    assert step.commands[0][4].startswith("Reason=harness: replace: GPU:2 (serial 1650000002")
    assert step.undo == (("scontrol", "update", "NodeName=sim-0000", "State=RESUME"),)
    text = "\n".join(plan_lines(plan))
    assert "# 1 machine of 20 taken out (5.0%)" in text
    done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, "a shell can read it"


def test_a_plan_that_takes_out_too_much_is_refused_before_anything_is_done(tmp_path: Path, slurm: FakeSlurm) -> None:
    plan = planned(fleet("stuck-bit", "hot", "ecc-corrected"), Policy())
    assert "takes out 3 machines of 20 (15%), more than the policy's 10%" in plan.refusal
    with pytest.raises(UsageError, match="nothing was done"):
        list(apply(plan, slurm, Store(tmp_path), NOW))
    out = [NodeState(f"sim-{number:04}", idle=False, out=True, reason="fan") for number in (10, 11)]
    slurm.nodes |= {node.name: node for node in out}
    with pytest.raises(UsageError, match="2 of 20 machines are out of service already"):
        list(apply(planned(fleet("stuck-bit"), Policy()), slurm, Store(tmp_path), NOW))
    assert slurm.ran == []
    # Of a small cluster, one machine may always go, but not a second one, and of two it may be either.
    for machines, kinds, refused in ((3, 1, False), (3, 2, True), (2, 1, True)):
        plan = planned(fleet(*("stuck-bit", "ecc-corrected")[:kinds], machines=machines), Policy())
        assert (len(plan.steps), bool(plan.refusal)) == (kinds, refused)


def test_a_machine_that_a_person_drained_is_left_alone_and_never_brought_back(tmp_path: Path, slurm: FakeSlurm) -> None:
    slurm.nodes["sim-0000"] = NodeState("sim-0000", idle=False, out=True, reason="fan, bob")
    records = fleet("stuck-bit", "hot")
    lines = list(apply(planned(records), slurm, Store(tmp_path), NOW))
    assert lines == [
        "sim-0000: somebody else took it out of service (fan, bob); left alone",
        "sim-0001: taken out of service",
    ]
    assert slurm.ran == ["sim-0001 DRAIN"]
    again = list(apply(planned(records), slurm, Store(tmp_path), NOW))
    assert again[1].startswith("sim-0001: already out of service (harness: drain: ")
    with pytest.raises(NotReturned, match=r"the harness did not take it out \(fan, bob\)"):
        back("sim-0000", records, tmp_path, slurm)
    slurm.nodes["sim-0001"] = replace(slurm.nodes["sim-0001"], reason="bob took over")
    with pytest.raises(NotReturned, match="bob took over"):
        back("sim-0001", records, tmp_path, slurm)


def back(
    name: str, records: list[RunRecord], place: Path | str, slurm: FakeSlurm, *, run: bool = True
) -> list[list[str]]:
    runs = tuple(Seen(f"{number}/run.json", each) for number, each in enumerate(records))
    return bring_back(name, slurm, Store(place), judge_runs(runs, LENIENT, LATER), runs, LATER, run=run)


@pytest.mark.parametrize("place", ["", "memory://drains"])
def test_a_machine_comes_back_with_a_run_under_load_that_is_newer_than_its_drain(
    tmp_path: Path, slurm: FakeSlurm, place: str
) -> None:
    store = place or tmp_path
    records = fleet("stuck-bit")
    list(apply(planned(records), slurm, Store(store), NOW))
    with pytest.raises(NotReturned, match="no run since it was drained"):
        back("sim-0000", records, store, slurm)
    mended = simulated.sound(0, random.Random(5), day=5)
    idle = replace(mended, results=mended.results[:-1], planned=mended.planned[:-1])
    with pytest.raises(NotReturned, match="did not pass under load"):
        back("sim-0000", [*records, idle], store, slurm)
    broken = simulated.plant(mended, "ecc-corrected", 1)[0]
    with pytest.raises(NotReturned, match="did not pass under load"):
        back("sim-0000", [*records, broken], store, slurm)
    slow = simulated.plant(mended, "slow-products", 1)[0]
    with pytest.raises(NotReturned, match="does not prove it: needs an action"):
        back("sim-0000", [*records, slow], store, slurm)
    assert slurm.ran == ["sim-0000 DRAIN"]
    assert back("sim-0000", [*records, mended], store, slurm, run=False) == Slurm().bring_back("sim-0000")
    assert slurm.ran == ["sim-0000 DRAIN"], "only printed"
    back("sim-0000", [*records, mended], store, slurm)
    assert slurm.ran == ["sim-0000 DRAIN", "sim-0000 RESUME"]
    with pytest.raises(NotReturned, match="it is not out of service"):
        back("sim-0000", [*records, mended], store, slurm)


@pytest.mark.parametrize("name", ["n[1-99]", "-a", "a,b", "$(reboot)", "a b", "../a", "ALL;", "a" * 300])
def test_what_is_no_name_of_one_node_gets_into_no_command(name: str) -> None:
    assert not is_node(name)
    records = fleet("stuck-bit", machines=4)
    records[0] = replace(records[0], host=Host(name))
    plan = planned(records)
    assert plan.steps == ()
    assert plan.left_alone[0][1] == "its name cannot be that of a node"


def test_a_reason_is_one_plain_line() -> None:
    assert plain_reason("it's `bad`\nand $(hot) ≥ 96 °C") == "its bad and (hot) ? 96 ?C"
    assert len(plain_reason("x" * 900)) <= 202
    assert is_node("gpu-07.example.org")


def test_the_states_of_slurm_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "n1|idle|none\nn2|drained*|fan, bob\nn3|allocated|none\nn4|idle*|Not responding\nn5|draining|harness: x\n"
    monkeypatch.setattr(slurm_nodes, "answer", lambda _: lines)
    states = Slurm().states()
    assert [(each.idle, each.out, each.is_own) for each in states.values()] == [
        (True, False, False),
        (False, True, False),
        (False, False, False),
        (False, False, False),
        (False, True, True),
    ]
    assert states["n4"].state == "idle, not responding"


def test_the_states_of_kubernetes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    own = {"taints": [{"key": KEY, "effect": "NoSchedule"}]}
    cordoned = {**own, "unschedulable": True}
    items = [
        {"metadata": {"name": "a"}, "spec": {}, "status": ready},
        {"metadata": {"name": "b", "annotations": {REASON: "harness: replace"}}, "spec": own, "status": ready},
        {"metadata": {"name": "c", "annotations": {REASON: "harness: replace"}}, "spec": cordoned},
    ]
    monkeypatch.setattr("harness.fleet.engines.kubernetes_nodes.answer", lambda _: json.dumps({"items": items}))
    states = Kubernetes().states()
    assert [(each.idle, each.out, each.is_own) for each in states.values()] == [
        (True, False, False),
        (False, True, True),
        (False, True, False),  # somebody has cordoned it too
    ]
    commands = Kubernetes().take_out("b", "replace", "bad")
    assert commands[0] == ["kubectl", "taint", "nodes", "b", f"{KEY}=replace:NoSchedule", "--overwrite"]
    monkeypatch.setattr("harness.fleet.engines.kubernetes_nodes.answer", lambda _: "[]")
    with pytest.raises(EngineError, match="not a list of nodes"):
        Kubernetes().states()


def test_a_tool_that_is_missing_fails_or_hangs_is_one_clear_line() -> None:
    with pytest.raises(EngineError, match=r"^no-such-tool: not found"):
        answer(["no-such-tool", "--version"])
    with pytest.raises(EngineError, match=r"^sh -c .*: You are not permitted$"):
        answer(["sh", "-c", "echo You are not permitted >&2; exit 1"])
    log = 'E1128 18:35:50.960558 20422 memcache.go:265] "Unhandled Error"'
    with pytest.raises(EngineError, match=r": The connection to the server was refused$"):
        answer(["sh", "-c", f"echo '{log}' >&2; echo The connection to the server was refused >&2; exit 1"])
    with pytest.raises(EngineError, match="Unhandled Error"):
        answer(["sh", "-c", f"echo '{log}' >&2; exit 1"])
    with pytest.raises(EngineError, match="no answer within"):
        answer(["sleep", "60"], limit_s=0.05)
    assert answer(["echo", "a"]) == "a\n"
