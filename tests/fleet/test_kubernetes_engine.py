"""The engine for Kubernetes, with a stand-in for kubectl: what each node comes to, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import random
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import simulated_fleet as simulated

from harness.errors import UsageError
from harness.fleet.engines.command import EngineError
from harness.fleet.engines.engine import MachineRun
from harness.fleet.engines.kubernetes import KubernetesEngine
from harness.fleet.engines.kubernetes_nodes import KEY
from harness.report.storage import json_text

#: kubectl: it keeps what is created, and answers with what ``fate.json`` says of the pod on each node.
KUBECTL = """#!{python}
import json, pathlib, sys
here, given = pathlib.Path({folder!r}), sys.argv[1:]
with (here / "called").open("a") as file:
    print(*given, file=file)
made = here / "made.json"
if given[:2] == ["get", "nodes"]:
    print((here / "nodes.json").read_text())
elif given[:2] == ["get", "pods"]:
    fate = json.loads((here / "fate.json").read_text())
    pods = [each for each in json.loads(made.read_text())["items"] if each["kind"] == "Pod"]
    for pod in pods:
        term = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        pod["status"] = fate[term["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]]
    print(json.dumps({{"items": [pod for pod in pods if pod["status"]]}}))
elif given[0] == "create":
    made.write_text(pathlib.Path(given[2]).read_text())
elif given[0] == "logs":
    print((here / "record.json").read_text() if given[1].endswith("-0") else "")
elif given[0] == "delete" and (here / "refused").exists():
    sys.exit("Error from server (Forbidden)")
"""


def node(name: str, *, ready: bool = True, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {"harness.tensorflow/reason": "harness: replace: GPU:2"}},
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "allocatable": {"nvidia.com/gpu": "8"},
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": f"10.0.0.{name[1]}"},
            ],
        },
    }


def ended(code: int, message: str = "") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "message": message}}
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{"state": state}]}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster of nodes n0 to n7, of which n6 is cordoned and n7 not ready."""
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL.format(python=sys.executable, folder=str(tmp_path)), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("harness.fleet.engines.kubernetes._POLL_S", 0.01)
    nodes = [node(f"n{number}") for number in range(5)]
    nodes += [
        node("n5", taints=[{"key": KEY, "effect": "NoSchedule"}]),
        node("n6", unschedulable=True),
        node("n7", ready=False),
    ]
    (tmp_path / "nodes.json").write_text(json.dumps({"items": nodes}), encoding="utf-8")
    (tmp_path / "record.json").write_text(json_text(simulated.sound(0, random.Random(0))), encoding="utf-8")
    return tmp_path


def fates(cluster: Path, **of_node: dict[str, Any]) -> None:
    (cluster / "fate.json").write_text(json.dumps(of_node), encoding="utf-8")


def test_each_node_gets_a_pod_and_comes_to_a_result(cluster: Path) -> None:
    engine = KubernetesEngine("image", namespace="ops", selector="pool=gpu", wait_s=600.0)
    found = {each.name: each.why_not for each in engine.machines()}
    ready = [name for name, why in found.items() if not why]
    assert ready == ["n0", "n1", "n2", "n3", "n4", "n5"], "also what the harness took out itself: it may be mended"
    assert (found["n6"], found["n7"]) == ("cordoned", "not ready")
    assert engine.addresses(["n1"]) == {"n1": "10.0.0.1"}
    full = "harness: error: report folder /harness cannot be written: No space left on device\n"
    fates(
        cluster,
        n0=ended(1, "some of TensorFlow's lines"),
        n1=ended(2, full),
        n2=ended(124),
        n3={"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        n4={},
        n5=ended(137),
    )
    done = {each.machine: each for each in engine.run(ready, MachineRun(("--level", "quick"), Path(), 60.0))}
    assert done["n0"].why == ""
    assert json.loads(done["n0"].text or "")["host"]["name"] == "sim-0000"
    assert {name: each.why for name, each in done.items() if name != "n0"} == {
        "n1": "report folder /harness cannot be written: No space left on device",
        "n2": "no result within 60 s",
        "n3": "Evicted: The node was low on resource: memory.",
        "n4": "its pod is gone: it was deleted, or its node was",
        "n5": "no record; exit code 137",
    }
    called = (cluster / "called").read_text(encoding="utf-8").splitlines()
    assert called[0] == "get nodes --selector pool=gpu --output json"
    assert called[-1].startswith("delete pods,configmaps --wait=false --namespace ops --selector harness-run=")
    settings, pod, *_ = json.loads((cluster / "made.json").read_text(encoding="utf-8"))["items"]
    command = "timeout --kill-after=30 60 harness validate --json --report /harness --level quick"
    assert shlex.split(settings["data"]["command"]) == command.split()
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    assert "priorityClassName" not in pod["spec"], "the cluster has none"


def test_a_pod_that_does_not_start_or_end_is_a_result_and_an_interrupted_run_is_deleted(cluster: Path) -> None:
    image = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    busy = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "Insufficient nvidia.com/gpu",
    }
    fates(
        cluster,
        n0=ended(0),
        n1={"phase": "Pending", "containerStatuses": [{"state": {"waiting": image}}]},
        n2={"phase": "Pending", "conditions": [busy]},
        n3={"phase": "Running"},
    )
    engine = KubernetesEngine("image", wait_s=-1000.0)
    engine.machines()
    done = {each.machine: each.why for each in engine.run(["n1", "n2", "n3"], MachineRun((), Path(), 60.0))}
    assert done == {
        "n1": "its pod did not start within -1000 s: ImagePullBackOff: Back-off pulling image",
        "n2": "its pod did not start within -1000 s: Unschedulable: Insufficient nvidia.com/gpu",
        "n3": "no result within 60 s; its pod is still Running",
    }
    (cluster / "called").unlink()
    engine = KubernetesEngine("image")
    going = engine.run(["n0", "n3"], MachineRun((), Path(), 60.0))
    assert next(going).machine == "n0"
    going.close()
    assert (cluster / "called").read_text(encoding="utf-8").splitlines()[-1].startswith("delete pods,configmaps ")
    (cluster / "refused").touch()
    assert [each.machine for each in engine.run(["n0"], MachineRun((), Path(), 60.0))] == ["n0"]


def test_what_cannot_be_used_is_one_clear_line(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for nodes, why in ((["n9"], "--nodes n9: unknown to Kubernetes"), (["n1", "n1"], "n1 is named twice")):
        with pytest.raises(UsageError, match=why):
            KubernetesEngine("image", nodes=nodes).machines()
    (cluster / "nodes.json").write_text('{"items": []}', encoding="utf-8")
    with pytest.raises(UsageError, match="Kubernetes has no nodes with pool=gpu"):
        KubernetesEngine("image", selector="pool=gpu").machines()
    (cluster / "nodes.json").write_text("{}", encoding="utf-8")
    with pytest.raises(EngineError, match="an answer that is not a list"):
        KubernetesEngine("image").machines()
    (cluster / "kubectl").write_text("#!/bin/sh\necho 'The connection to the server was refused' >&2; exit 1\n")
    with pytest.raises(EngineError, match=r"^kubectl get nodes .*: The connection to the server was refused$"):
        KubernetesEngine("image").machines()


@pytest.mark.parametrize("version", ["1.29", "1.31", "1.33"])
def test_what_is_created_is_valid_in_several_versions(cluster: Path, version: str) -> None:
    engine = KubernetesEngine("image")
    engine.machines()
    checks = engine.documents("run", ["n0", "n1"], MachineRun((), Path(), 60.0), "harness-fleet-low")
    links = engine.documents("run", ["n0", "n1"], MachineRun(("PLAN",), Path(), 60.0, links=True))
    assert [each["kind"] for each in (*checks, *links)] == ["ConfigMap", "Pod", "Pod"] * 2
    assert (links[1]["spec"]["hostNetwork"], "hostNetwork" in checks[1]["spec"]) == (True, False)
    assert "resources" not in links[1]["spec"]["containers"][0]
    if find_spec("kubernetes_validate") is None:
        if os.environ.get("HARNESS_REQUIRE_FLEET") == "1":
            pytest.fail("kubernetes-validate is not installed")
        pytest.skip("kubernetes-validate is not installed")
    import kubernetes_validate

    for document in (*checks, *links):
        kubernetes_validate.validate(document, version, strict=True)
