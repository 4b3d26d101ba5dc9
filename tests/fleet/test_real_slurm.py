"""On a real Slurm of Debian's packages, with three virtual nodes on this host: jobs, drains, and the way back.

It needs root, ``slurm-wlm`` and ``munge``; ``HARNESS_REQUIRE_FLEET=1`` turns a skip into a failure. What the nodes run
is ``misbehaving.py``, so that no time is spent on TensorFlow, but for the exchanges between nodes, which are real.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import misbehaving
import psutil
import pytest
import simulated_fleet as simulated

from harness.fleet.actions import Action
from harness.fleet.engines.engine import MachineRun
from harness.fleet.engines.slurm import SlurmEngine
from harness.fleet.engines.slurm_nodes import Slurm
from harness.fleet.fleet import judge_store
from harness.fleet.index import load
from harness.fleet.links.newest import newest_verdict
from harness.fleet.links.run import LinkOptions, carry_out as carry_out_links, start as start_links
from harness.fleet.links.verdict import Scope
from harness.fleet.plan import make_plan
from harness.fleet.policy import Judging, Planning, Policy
from harness.fleet.run import carry_out, resume, start
from harness.fleet.service import NotReturned, apply, bring_back
from harness.fleet.store import Store
from harness.records import Host
from harness.report.storage import json_text

_LIMIT_S = 300.0
_TOOLS = ("slurmctld", "slurmd", "sbatch", "munged")
_MISSING = [name for name in _TOOLS if shutil.which(name, path="/usr/sbin:/usr/bin") is None]
_CONFIGURATION = """\
ClusterName=t
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/d.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
NodeName=n3 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[3]} CPUs=1 State=UNKNOWN
PartitionName=p Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
#: The harness, on nodes of which one gets a wrong bit of whatever arrives, and another dies before its last exchange.
_LINKS = """\
import os, runpy, signal, sys
from harness.fleet.links import agent, collective
node, landed, meet = os.environ["HARNESS_NODE"], collective.landed, agent.Meeting.meet
def flipped(tensor):
    made = landed(tensor).copy()
    made.view("uint8")[1] ^= 4
    return made
def dying(meeting, number, port):
    if len(meeting.plan.exchanges[number].members) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return meet(meeting, number, port)
if node == "n2":
    collective.landed = flipped
if node == "n3":
    agent.Meeting.meet = dying
runpy.run_module("harness", run_name="__main__", alter_sys=True)
"""


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _run(*command: str) -> str:
    path = f"/usr/sbin:/usr/bin:{os.environ['PATH']}"
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=_LIMIT_S
    ).stdout


def _wait_for(*nodes: str) -> None:
    """Wait until nodes are idle: they answer to Slurm, and nobody has taken them out."""
    deadline = time.monotonic() + _LIMIT_S
    while not all(Slurm().states()[node].idle for node in nodes):
        assert time.monotonic() < deadline, Slurm().states()
        time.sleep(0.2)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a Slurm that runs."""
    why = f"{', '.join(_MISSING)} not installed" if _MISSING else "needs root" if os.geteuid() else ""
    if why and os.environ.get("HARNESS_REQUIRE_FLEET") == "1":
        pytest.fail(why)
    if why:
        pytest.skip(why)
    folder = tmp_path / "slurm"
    folder.mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    folder.chmod(0o755)
    for above in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        above.chmod(0o755)
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log"}
    munge = [f"--{name}={folder}/munge.{kind}" for name, kind in files.items()]
    configuration = _CONFIGURATION.format(
        host=socket.gethostname().partition(".")[0], folder=folder, ports=_free_ports(4)
    )
    (folder / "slurm.conf").write_text(configuration, encoding="utf-8")
    (folder / "state").mkdir()
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    try:
        _run("munged", "--force", f"--seed-file={folder}/munge.seed", *munge)
        _run("slurmctld")
        for node in ("n1", "n2", "n3"):
            (folder / "spool" / node).mkdir(parents=True)
            _run("slurmd", "-N", node)
        _wait_for("n1", "n2", "n3")
        yield folder
    finally:
        for path in folder.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text(encoding="utf-8")), signal.SIGTERM)


def _records(folder: Path, **of_node: str) -> None:
    """Let each node answer with a record of now: that of a sound machine, or of one with a fault."""
    for number, node in enumerate(("n1", "n2", "n3")):
        record = simulated.sound(number, random.Random(number))
        if node in of_node:
            record, _ = simulated.plant(record, of_node[node], 2)
        at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        text = json_text(replace(record, host=Host(node), started_at=at))
        (folder / f"{node}.json").write_text(text, encoding="utf-8")


def test_a_broken_node_is_found_drained_and_comes_back_when_a_run_proves_it(slurm: Path, tmp_path: Path) -> None:
    shutil.copy(misbehaving.__file__, slurm / "program.py")
    engine = SlurmEngine(program=(sys.executable, str(slurm / "program.py")))
    store, policy = Store(tmp_path / "store"), Policy(plan=Planning(most_share=0.7))
    _run("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=fan, bob")

    def checked() -> dict[str, str]:
        files, run = start(engine, (), store, datetime.now(timezone.utc))
        folder = files.folder
        outcomes = (*run.outcomes, *carry_out(engine, MachineRun((), folder, _LIMIT_S), run))
        return {each.machine: each.why for each in outcomes}

    _records(slurm, n1="stuck-bit")
    assert checked() == {"n1": "", "n2": "", "n3": "not idle: drained (fan, bob)"}
    now = datetime.now(timezone.utc)
    found = judge_store(store, policy, now)
    assert (found.counts.asked, found.counts.proven, found.counts.action) == (3, 1, 1)
    assert list(apply(make_plan(found, Slurm(), policy), Slurm(), store, now)) == ["n1: taken out of service"]
    states = Slurm().states()
    assert states["n1"].is_own
    assert states["n1"].reason.startswith("harness: replace: GPU:2 (serial ")
    assert (states["n2"].idle, states["n3"].reason) == (True, "fan, bob")
    later = now + timedelta(seconds=5)
    for node, why in (("n1", "no run since it was drained"), ("n3", "did not take it out")):
        with pytest.raises(NotReturned, match=why):
            bring_back(node, Slurm(), store, found, load(store).runs, later, run=True)
    # The node is mended, and its run under load comes by another way, since it takes no jobs.
    mended = replace(simulated.sound(0, random.Random(9)), host=Host("n1"), started_at=later.isoformat())
    store.add(json_text(mended))
    found = judge_store(store, policy, later)
    bring_back("n1", Slurm(), store, found, load(store).runs, later, run=True)
    _wait_for("n1")
    _records(slurm)
    assert checked()["n1"] == ""


@pytest.mark.long
def test_between_nodes_one_that_is_wrong_and_one_that_dies_are_told_from_the_link_that_is_sound(
    slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    (slurm / "program.py").write_text(_LINKS, encoding="utf-8")
    engine, store = SlurmEngine(program=(sys.executable, str(slurm / "program.py"))), Store(tmp_path / "store")
    options = LinkOptions(sizes_bytes=(2**12,), port=random.randrange(20_000, 30_000), start_s=45.0, limit_s=_LIMIT_S)
    files, run = start_links(engine, options, store, datetime.now(timezone.utc))
    folder = files.folder
    said = list(carry_out_links(engine, options, files, run, Judging()))
    logs = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*/slurm.log"))]
    assert sorted(said)[:2] == ["n1: done", "n2: done"], logs
    verdict, bad = newest_verdict(store, (), Judging())
    assert verdict is not None
    assert (verdict.asked, verdict.measured, bad) == (4, 3, []), logs
    dead, wrong = verdict.findings
    assert (dead.fault, dead.scope, dead.machines, dead.action) == ("no answer", Scope.NODE, ("n3",), Action.DRAIN)
    assert (wrong.fault, wrong.scope, wrong.machines, wrong.bad) == ("wrong values", Scope.NODE, ("n2",), 2)
    assert "of 1,024 values are wrong" in wrong.reasons[0]
    ((name, why),) = verdict.left_out
    assert (name, "its job" in why) == ("n3", True)


def test_a_node_that_hangs_is_full_or_dies_is_a_result_and_an_interrupted_run_is_resumed(
    slurm: Path, tmp_path: Path
) -> None:
    program = Path(shutil.copy(misbehaving.__file__, slurm / "program.py"))
    engine = SlurmEngine(program=(sys.executable, str(program)))
    store = Store(tmp_path / "store")
    _records(slurm)

    def behave(**of_node: str) -> None:
        for node, way in of_node.items():
            (slurm / f"{node}.does").write_text(way, encoding="utf-8")

    behave(n2="hangs", n3="hangs")
    files, run = start(engine, (), store, datetime.now(timezone.utc))
    folder = files.folder
    going = carry_out(engine, MachineRun((), folder, _LIMIT_S), run)
    assert next(going).machine == "n1"
    hung = [misbehaving.wait_for(slurm / f"{node}.pid", _LIMIT_S) for node in ("n2", "n3")]
    going.close()
    _wait_for("n1", "n2", "n3")
    assert all(misbehaving.has_ended(pid, _LIMIT_S) for pid in hung), "nothing is left behind"
    found = judge_store(store, Policy(), datetime.now(timezone.utc))
    assert (found.counts.asked, found.counts.proven, found.exit_code) == (3, 1, 3)

    behave(n2="full")
    same, rest = resume(engine, store)
    assert same == files
    outcomes = {each.machine: each.why for each in carry_out(engine, MachineRun((), folder, 4.0), rest)}
    assert outcomes.keys() == {"n2", "n3"}
    assert outcomes["n3"] == "no result within 4 s"
    assert outcomes["n2"].startswith("no record; its job "), outcomes
    assert any(said in outcomes["n2"] for said in misbehaving.FULL), outcomes
    found = judge_store(store, Policy(), datetime.now(timezone.utc))
    assert (found.counts.asked, found.counts.reached, found.counts.proven, found.exit_code) == (3, 1, 1, 3)
    assert {each.name: each.why for each in found.machines if each.why} == outcomes

    behave(n2="answers", n3="hangs")
    (slurm / "n3.pid").unlink()
    _wait_for("n1", "n2", "n3")
    files, run = start(engine, (), store, datetime.now(timezone.utc))
    folder = files.folder
    with contextlib.closing(carry_out(engine, MachineRun((), folder, _LIMIT_S), run)) as going:
        outcomes = {each.machine: each.why for each in (next(going), next(going))}
        assert outcomes == {"n1": "", "n2": ""}
        killed = misbehaving.wait_for(slurm / "n3.pid", _LIMIT_S)
        os.kill(int((slurm / "d.n3.pid").read_text(encoding="utf-8")), signal.SIGKILL)
        step = psutil.Process(killed)
        for each in [step, *(above for above in step.parents() if "slurmstepd" in above.name())]:
            each.kill()
        _run("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=dead")
        (dead,) = going
    assert dead.machine == "n3"
    assert "NODE_FAIL" in dead.why
    found = judge_store(store, Policy(), datetime.now(timezone.utc))
    assert (found.counts.asked, found.counts.reached, found.counts.proven, found.exit_code) == (3, 2, 2, 3)
