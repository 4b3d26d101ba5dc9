"""On a real Ray cluster of four nodes on this host: nodes that hang, die or are full, and a run that is resumed.

``HARNESS_REQUIRE_FLEET=1`` turns a skip, for lack of Ray, into a failure. What the nodes run is ``misbehaving.py``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import misbehaving
import pytest

_LIMIT_S = 600.0
_NODES = ("n1", "n2", "n3", "n4")


def _prepare(folder: Path) -> None:
    """Let each node answer with the record of a sound machine."""
    import simulated_fleet as simulated

    from harness.records import Host
    from harness.report.storage import json_text

    shutil.copy(misbehaving.__file__, folder / "program.py")
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    for number, node in enumerate(_NODES):
        record = replace(simulated.sound(number, random.Random(number)), host=Host(node), started_at=at)
        (folder / f"{node}.json").write_text(json_text(record), encoding="utf-8")


def _behave(folder: Path, **of_node: str) -> None:
    for node, way in of_node.items():
        (folder / f"{node}.does").write_text(way, encoding="utf-8")
        (folder / f"{node}.pid").unlink(missing_ok=True)


def run_on_a_cluster() -> None:
    """Start the cluster, run twice, and print what became of the nodes as JSON."""
    from ray.cluster_utils import Cluster

    folder = Path(os.environ["FOLDER"])
    _prepare(folder)
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "node_name": "n1"})
    try:
        nodes = {
            name: cluster.add_node(wait=False, num_cpus=1, object_store_memory=80 * 2**20, node_name=name)
            for name in _NODES[1:]
        }
        cluster.wait_for_nodes(timeout=_LIMIT_S)
        print(json.dumps(_use(cluster, nodes["n3"], folder)))
    finally:
        cluster.shutdown()
        for file in folder.glob("*.pid"):  # of the node that was killed
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text(encoding="utf-8")), 9)


def _use(cluster: Any, mortal: object, folder: Path) -> dict[str, Any]:
    from harness.fleet.engines.engine import MachineRun
    from harness.fleet.engines.ray import RayEngine
    from harness.fleet.fleet import judge_store
    from harness.fleet.policy import Policy
    from harness.fleet.run import carry_out, resume, start
    from harness.fleet.store import Store

    engine = RayEngine(cluster.address, program=(sys.executable, str(folder / "program.py")))
    store = Store(folder / "store")
    said: dict[str, Any] = {}

    def judged() -> list[int]:
        found = judge_store(store, Policy(), datetime.now(timezone.utc))
        counts = found.counts
        return [counts.asked, counts.reached, counts.proven, int(found.exit_code)]

    # A run in which one hangs, one dies and one is full.
    _behave(folder, n2="hangs", n3="hangs", n4="full")

    def kill() -> None:
        misbehaving.wait_for(folder / "n3.pid", _LIMIT_S)
        cluster.remove_node(mortal, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    files, run = start(engine, (), store, datetime.now(timezone.utc))
    work = files.folder
    said["lost"] = {each.machine: each.why for each in carry_out(engine, MachineRun((), work, 20.0), run)}
    killer.join()
    said["lost counts"] = judged()
    # A run that is interrupted, and resumed.
    _behave(folder, n2="hangs", n4="hangs")
    engine = RayEngine(cluster.address, program=engine.program)
    files, run = start(engine, (), store, datetime.now(timezone.utc))
    work = files.folder
    said["left out"] = {each.machine: each.why for each in run.outcomes}
    going = carry_out(engine, MachineRun((), work, _LIMIT_S), run)
    said["first"] = next(going).machine
    hung = [misbehaving.wait_for(folder / f"{node}.pid", _LIMIT_S) for node in ("n2", "n4")]
    going.close()
    # Much less than they would hang.
    said["left behind"] = [pid for pid in hung if not misbehaving.has_ended(pid, _LIMIT_S)]
    said["interrupted counts"] = judged()
    _behave(folder, n2="answers", n4="answers")
    engine = RayEngine(cluster.address, program=engine.program)
    same, rest = resume(engine, store)
    said["resumed"] = {
        each.machine: each.why for each in carry_out(engine, MachineRun((), same.folder, _LIMIT_S), rest)
    }
    said["resumed counts"] = judged()
    return said


@pytest.mark.long
def test_a_node_that_hangs_is_full_or_dies_is_a_result_and_an_interrupted_run_is_resumed(
    tmp_path: Path, fresh_process: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    if find_spec("ray") is None:
        if os.environ.get("HARNESS_REQUIRE_FLEET") == "1":
            pytest.fail("ray is not installed")
        pytest.skip("ray is not installed")
    # The names of Ray's sockets are long, and Linux limits them to 107 bytes.
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        done = fresh_process(run_on_a_cluster, new_python=True, FOLDER=str(tmp_path), RAY_TMPDIR=short)
    said = json.loads(done.stdout.splitlines()[-1])
    lost = said["lost"]
    assert lost.keys() == {*_NODES}
    assert (lost["n1"], lost["n2"]) == ("", "no result within 20 s")
    assert any(why in lost["n3"] for why in ("NodeDied", "died", "Unschedulable")), lost
    assert any(why in lost["n4"] for why in misbehaving.FULL), lost
    assert said["lost counts"] == [4, 1, 1, 3]
    assert said["left out"] == {"n3": "not alive"}
    assert said["first"] == "n1"
    assert said["left behind"] == []
    assert said["interrupted counts"] == [4, 1, 1, 3]
    assert said["resumed"] == {"n2": "", "n4": ""}
    assert said["resumed counts"] == [4, 3, 3, 3]
