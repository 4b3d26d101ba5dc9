"""The nodes of a Kubernetes cluster: tainted and labelled, and given back."""

from __future__ import annotations

import json
from typing import Any

from harness.fleet.engines.command import EngineError, answer
from harness.fleet.engines.scheduler import OWN, NodeState

#: Keys of the taint, the label and the annotation that the harness sets.
KEY = "harness.tensorflow/faulty"
REASON = "harness.tensorflow/reason"
_NODES = ["kubectl", "get", "nodes", "--output", "json"]


class Kubernetes:
    """Kubernetes, through kubectl."""

    name = "kubernetes"

    def states(self) -> dict[str, NodeState]:
        """Return all nodes by name. A node that is cordoned, or has a taint against scheduling, is out of service."""
        try:
            items: list[dict[str, Any]] = json.loads(answer(_NODES))["items"]
            return {state.name: state for state in map(node_state, items)}
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(_NODES, "an answer that is not a list of nodes") from error

    def take_out(self, node: str, action: str, reason: str) -> list[list[str]]:
        """Return the commands that keep new pods from a node, and say why."""
        return [
            ["kubectl", "taint", "nodes", node, f"{KEY}={action}:NoSchedule", "--overwrite"],
            ["kubectl", "label", "nodes", node, f"{KEY}={action}", "--overwrite"],
            ["kubectl", "annotate", "nodes", node, f"{REASON}={OWN} {action}: {reason}", "--overwrite"],
        ]

    def bring_back(self, node: str) -> list[list[str]]:
        """Return the commands that undo it."""
        return [
            ["kubectl", "taint", "nodes", node, f"{KEY}:NoSchedule-"],
            ["kubectl", "label", "nodes", node, f"{KEY}-"],
            ["kubectl", "annotate", "nodes", node, f"{REASON}-"],
        ]


def node_state(node: dict[str, Any]) -> NodeState:
    """Return the state of a node, as kubectl writes it in JSON."""
    metadata, spec = node["metadata"], node.get("spec", {})
    taints = [taint for taint in spec.get("taints") or [] if taint.get("effect") in ("NoSchedule", "NoExecute")]
    own = any(taint.get("key") == KEY for taint in taints)
    foreign = bool(spec.get("unschedulable"))
    conditions = node.get("status", {}).get("conditions") or []
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    reason = (metadata.get("annotations") or {}).get(REASON, "") if own and not foreign else ""
    if foreign:
        reason = "cordoned"
    return NodeState(
        metadata["name"],
        idle=ready and not foreign and not own,
        out=own or foreign,
        reason=reason,
        state="ready" if ready else "not ready",
    )
