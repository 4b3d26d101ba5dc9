"""Kubernetes: a pod for each node, bound to it, with all of its GPUs. Its log is the record.

``kubectl`` does it, in the context that it has. All pods of a run have a label, by which they are watched and, in the
end, deleted.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.fleet.engines.command import EngineError, answer, is_node
from harness.fleet.engines.engine import Asked, Done, MachineRun
from harness.fleet.engines.kubernetes_nodes import KEY, node_state
from harness.fleet.files import MOST_BYTES
from harness.fleet.manifest import PRIORITY, REPORT, SHARED_MEMORY, last_result, node_name, shared_memory
from harness.report.printable import shortened

GPU = "nvidia.com/gpu"
#: The label of all that a run makes.
_RUN = "harness-run"
_POLL_S = 2.0
#: How long a pod may wait for its node, and for its image, in seconds.
_WAIT_S = 300.0
#: What a pod may take longer than its command, in seconds.
_GRACE_S = 60.0
#: The exit code of timeout(1) for a command that took too long.
_TIMED_OUT = 124
#: The log has both streams, and the record must be alone in it: the other is the message of the container's end.
_SCRIPT = 'sh -c "$HARNESS_COMMAND" 2>/tmp/said; code=$?; tail -c 2000 /tmp/said >/dev/termination-log; exit $code'


class KubernetesEngine:
    """Nodes of the cluster that kubectl is set up for. ``selector`` chooses them by labels, ``nodes`` by name.

    ``image`` has the harness, which ``program`` starts.
    """

    name = "kubernetes"
    needs_folder = False

    def __init__(
        self,
        image: str,
        namespace: str = "default",
        selector: str = "",
        nodes: Sequence[str] = (),
        wait_s: float = _WAIT_S,
        program: Sequence[str] = ("harness",),
    ) -> None:
        self.image, self.namespace, self.selector, self.nodes = image, namespace, selector, tuple(nodes)
        self.wait_s, self.program = wait_s, tuple(program)
        self._known: dict[str, dict[str, Any]] = {}

    def machines(self) -> list[Asked]:
        """Return the nodes; those that take no pods with why not. What the harness took out itself may be tested."""
        items = _items(["kubectl", "get", "nodes", *(["--selector", self.selector] if self.selector else [])])
        self._known = {str(each["metadata"]["name"]): each for each in items}
        unknown = [node for node in self.nodes if node not in self._known]
        if unknown:
            raise UsageError(f"--nodes {','.join(unknown)}: unknown to Kubernetes; kubectl get nodes lists the nodes")
        twice = sorted({node for node in self.nodes if self.nodes.count(node) > 1})
        if twice:
            raise UsageError(f"--nodes: {', '.join(twice)} is named twice")
        if not self._known:
            raise UsageError(f"Kubernetes has no nodes{f' with {self.selector}' if self.selector else ''}")
        states = [node_state(self._known[name]) for name in self.nodes or sorted(self._known)]
        return [
            Asked(each.name, "" if each.idle or (each.is_own and each.state == "ready") else each.reason or each.state)
            for each in states
        ]

    def addresses(self, machines: Sequence[str]) -> dict[str, str]:
        """Return the internal addresses of the nodes."""
        return {name: _address(self._known[name]) or name for name in machines}

    def run(self, machines: Sequence[str], work: MachineRun) -> Generator[Done, None, None]:
        """Make a pod for each node, and yield each node when its pod has ended."""
        run = secrets.token_hex(6)
        own = ["--namespace", self.namespace, "--selector", f"{_RUN}={run}"]
        began = time.monotonic()
        try:
            self._create(run, machines, work)
            left = {f"harness-{run}-{number}": machine for number, machine in enumerate(machines)}
            while left:
                pods = {str(each["metadata"]["name"]): each for each in _items(["kubectl", "get", "pods", *own])}
                for pod, machine in list(left.items()):
                    done = self._done(machine, pods.get(pod), work, time.monotonic() - began)
                    if done is not None:
                        del left[pod]
                        yield done
                if left:
                    time.sleep(_POLL_S)
        finally:
            with contextlib.suppress(EngineError):
                answer(["kubectl", "delete", "pods,configmaps", "--wait=false", *own])

    def _create(self, run: str, machines: Sequence[str], work: MachineRun) -> None:
        has_priority = answer(["kubectl", "get", "priorityclasses", PRIORITY, "--ignore-not-found", "--output", "name"])
        documents = self.documents(run, machines, work, PRIORITY if has_priority.strip() else "")
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "List", "items": documents}, file)
            file.flush()
            answer(["kubectl", "create", "--filename", file.name, "--output", "name"])

    def documents(
        self, run: str, machines: Sequence[str], work: MachineRun, priority: str = ""
    ) -> list[dict[str, Any]]:
        """Return what is created: the command, once for all, and the pods."""
        limit = ["timeout", "--kill-after=30", f"{work.limit_s:g}"]
        command = [*limit, *self.program, *work.command, "--json", "--report", REPORT, *work.arguments]
        about = {"namespace": self.namespace, "labels": {_RUN: run, "app": "harness-fleet"}}
        name = f"harness-{run}"
        made: list[dict[str, Any]] = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {**about, "name": name},
                "data": {"command": shlex.join(command)},
            }
        ]
        for number, machine in enumerate(machines):
            spec = self._spec(machine, name, work)
            if priority:
                spec["priorityClassName"] = priority
            metadata = {**about, "name": f"{name}-{number}"}
            made.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        return made

    def _spec(self, machine: str, settings: str, work: MachineRun) -> dict[str, Any]:
        if not is_node(machine):
            raise UsageError(f"{machine!r} cannot be the name of a node")
        container: dict[str, Any] = {
            "name": "harness",
            "image": self.image,
            "command": ["/bin/sh", "-c", _SCRIPT],
            "env": [
                node_name(),
                {"name": "HARNESS_COMMAND", "valueFrom": {"configMapKeyRef": {"name": settings, "key": "command"}}},
            ],
            "volumeMounts": [{"name": "memory", "mountPath": SHARED_MEMORY}],
        }
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [machine]}]}
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(work.limit_s + self.wait_s + _GRACE_S),
            "terminationGracePeriodSeconds": 5,
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            },
            "tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in (GPU, KEY)],
            "containers": [container],
            "volumes": [shared_memory()],
        }
        if work.links:
            spec["hostNetwork"] = True  # the network of the machines is tested, and not that between pods
            return spec
        # The node keeps its last result, for the metrics and the node condition.
        container["volumeMounts"].append({"name": "report", "mountPath": REPORT})
        spec["volumes"].append(last_result())
        gpus = str(self._known.get(machine, {}).get("status", {}).get("allocatable", {}).get(GPU, "0"))
        if gpus != "0":
            container["resources"] = {"limits": {GPU: gpus}}
        return spec

    def _done(self, machine: str, pod: Mapping[str, Any] | None, work: MachineRun, waited_s: float) -> Done | None:
        """Return what became of a machine; ``None`` while its pod may still end."""
        if pod is None:
            return Done(machine, why="its pod is gone: it was deleted, or its node was")
        status = pod.get("status", {})
        phase = str(status.get("phase", ""))
        if phase in ("Succeeded", "Failed"):
            return self._ended(machine, str(pod["metadata"]["name"]), status, work)
        if phase != "Running" and waited_s > self.wait_s:
            why = _why_waiting(status) or f"its pod is still {phase or 'unknown'}"
            return Done(machine, why=f"its pod did not start within {self.wait_s:g} s: {why}")
        if waited_s > self.wait_s + work.limit_s + _GRACE_S:
            return Done(machine, why=f"no result within {work.limit_s:g} s; its pod is still {phase}")
        return None

    def _ended(self, machine: str, pod: str, status: Mapping[str, Any], work: MachineRun) -> Done:
        end = _container(status).get("terminated") or {}
        said = [line for line in str(end.get("message") or "").splitlines() if line.strip()]
        try:
            most = f"--limit-bytes={MOST_BYTES}"
            text = answer(["kubectl", "logs", pod, "--namespace", self.namespace, most]).strip() or None
        except EngineError as error:
            text, said = None, said or [error.why]
        if text is not None and end:
            return Done(machine, text)
        code = end.get("exitCode")
        if not end:
            # The node has ended the pod: it was evicted, took too long, or had no such GPUs.
            why = ": ".join(filter(None, (status.get("reason"), status.get("message")))) or "its pod has no result"
        elif code == _TIMED_OUT:
            why = f"no result within {work.limit_s:g} s"
        else:
            why = said[-1].removeprefix("harness: error: ") if said else f"no record; exit code {code}"
        return Done(machine, text, shortened(why, 300))


def _items(command: Sequence[str]) -> list[dict[str, Any]]:
    whole = [*command, "--output", "json"]
    try:
        items: list[dict[str, Any]] = json.loads(answer(whole))["items"]
        return [each for each in items if each["metadata"]["name"]]
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(whole, "an answer that is not a list") from error


def _address(node: Mapping[str, Any]) -> str:
    known = {each.get("type"): str(each.get("address", "")) for each in node.get("status", {}).get("addresses") or []}
    return known.get("InternalIP", "")


def _container(status: Mapping[str, Any]) -> dict[str, Any]:
    states: list[dict[str, Any]] = [each.get("state") or {} for each in status.get("containerStatuses") or []]
    return states[0] if states else {}


def _why_waiting(status: Mapping[str, Any]) -> str:
    """Say why a pod does not start: its image, or that no node is free for it."""
    waiting = _container(status).get("waiting") or {}
    unscheduled = [
        each
        for each in status.get("conditions") or []
        if each.get("type") == "PodScheduled" and each.get("status") == "False"
    ]
    about = waiting or (unscheduled[0] if unscheduled else {})
    return shortened(": ".join(filter(None, (about.get("reason"), about.get("message")))), 300)
