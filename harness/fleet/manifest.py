"""Kubernetes manifests: a job with a pod on each node, and what keeps the nodes watched afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.fleet.engines.kubernetes_nodes import KEY

_NAME = "harness-fleet"
#: What node-problem-detector sets on a node, and the one line that says why.
CONDITION = "HarnessProblem"
#: The name of the priority class: jobs of users come first.
PRIORITY = f"{_NAME}-low"
#: Where the last result of a node is, for its pods.
REPORT = "/harness"
#: Where NCCL shares memory between processes: of the 64 MiB that a container has by default, it needs more.
SHARED_MEMORY = "/dev/shm"  # noqa: S108
#: What needs no quotes in YAML, but for words that stand for something else.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z_-]*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
_METRICS = "/var/lib/node_exporter/textfile_collector"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the manifests are for."""

    image: str
    nodes: int
    gpus: int
    namespace: str = "default"
    #: The resource of the GPUs.
    resource: str = "nvidia.com/gpu"
    #: A persistent volume claim that all pods can write to; without one, the record is the pod's log.
    claim: str = ""
    #: Labels that nodes must have: ``KEY=VALUE``.
    selector: tuple[str, ...] = ()
    limit_s: int = 3600
    arguments: tuple[str, ...] = ()


def manifests(wanted: Wanted) -> list[dict[str, Any]]:
    """Return the job with its priority, the settings for node-problem-detector, and the daemon set of metrics."""
    if wanted.nodes < 1 or wanted.gpus < 0:
        raise UsageError(f"--count {wanted.nodes}, --gpus {wanted.gpus}; accepted: 1 or more nodes, 0 or more GPUs")
    return [_priority(), _job(wanted), _condition(wanted), _daemon_set(wanted)]


def as_yaml(documents: Sequence[dict[str, Any]]) -> str:
    """Write manifests as YAML. Every text is in quotes, so that none is taken for something else."""
    return "".join(f"---\n{_lines(each, 0)}" for each in documents)


def _priority() -> dict[str, Any]:
    """Jobs of users come first, and may take the place of these pods."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY},
        "value": -1000,
        "preemptionPolicy": "Never",
        "description": "harness fleet: runs on nodes that nobody else wants now",
    }


def _job(wanted: Wanted) -> dict[str, Any]:
    validate = ["harness", "validate", *wanted.arguments]
    if wanted.claim:
        script = (
            f'"$@" --quiet --report {REPORT}; code=$?; folder="/store/runs/$HARNESS_RUN/$HARNESS_NODE"; '
            f'mkdir -p "$folder" && cp {REPORT}/run.json "$folder/.part" && mv "$folder/.part" "$folder/run.json"; '
            "exit $code"
        )
    else:
        # The log of a pod has both streams; the record must be alone in it.
        script = f'exec "$@" --json --report {REPORT} 2>/dev/null'
    container: dict[str, Any] = {
        "name": "harness",
        "image": wanted.image,
        "command": ["/bin/sh", "-c", script, "harness", *validate],
        "env": [node_name(), {"name": "HARNESS_RUN", "value": _NAME}],
        "volumeMounts": [{"name": "report", "mountPath": REPORT}, {"name": "memory", "mountPath": SHARED_MEMORY}],
    }
    # The node keeps its last result, for the metrics and the node condition.
    volumes: list[dict[str, Any]] = [last_result(), shared_memory()]
    if wanted.claim:
        container["volumeMounts"].append({"name": "store", "mountPath": "/store"})
        volumes.append({"name": "store", "persistentVolumeClaim": {"claimName": wanted.claim}})
    if wanted.gpus:
        container["resources"] = {"limits": {wanted.resource: str(wanted.gpus)}}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "priorityClassName": PRIORITY,
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {"app": _NAME}},
                        "topologyKey": "kubernetes.io/hostname",
                    }
                ]
            }
        },
        "tolerations": [
            {"key": wanted.resource, "operator": "Exists", "effect": "NoSchedule"},
            {"key": KEY, "operator": "Exists", "effect": "NoSchedule"},
        ],
        "containers": [container],
        "volumes": volumes,
    }
    if wanted.selector:
        spec["nodeSelector"] = dict(_pair(each) for each in wanted.selector)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(wanted, _NAME),
        "spec": {
            "completionMode": "Indexed",
            "completions": wanted.nodes,
            "parallelism": wanted.nodes,
            # Each node gets one attempt; one that fails must not end the others.
            "backoffLimitPerIndex": 0,
            "maxFailedIndexes": wanted.nodes,
            "activeDeadlineSeconds": wanted.limit_s,
            "template": {"metadata": {"labels": {"app": _NAME}}, "spec": spec},
        },
    }


def _condition(wanted: Wanted) -> dict[str, Any]:
    """The settings of node-problem-detector: a node condition from the exit code and the line of the prolog."""
    monitor = {
        "plugin": "custom",
        "pluginConfig": {"invoke_interval": "5m", "timeout": "25s", "max_output_length": 200, "concurrency": 1},
        "source": "harness",
        "conditions": [
            {"type": CONDITION, "reason": "HarnessReady", "message": "no fault is known of the cards of this node"}
        ],
        "rules": [
            {
                "type": "permanent",
                "condition": CONDITION,
                "reason": "CardNeedsAction",
                "path": "/usr/local/bin/harness",
                "args": ["fleet", "prolog", "--last", f"{REPORT}/run.json"],
                "timeout": "25s",
            }
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(wanted, f"{_NAME}-condition"),
        "data": {"harness-monitor.json": json.dumps(monitor, indent=2)},
    }


def _daemon_set(wanted: Wanted) -> dict[str, Any]:
    script = (
        f"while true; do harness export openmetrics --run {REPORT}/run.json "
        f"--output {_METRICS}/harness.prom; sleep 300; done"
    )
    name = f"{_NAME}-metrics"
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(wanted, name),
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [
                        {
                            "name": "metrics",
                            "image": wanted.image,
                            "command": ["/bin/sh", "-c", script],
                            "env": [node_name()],
                            "volumeMounts": [
                                {"name": "report", "mountPath": REPORT, "readOnly": True},
                                {"name": "metrics", "mountPath": _METRICS},
                            ],
                        }
                    ],
                    "volumes": [
                        last_result(),
                        {"name": "metrics", "hostPath": {"path": _METRICS, "type": "DirectoryOrCreate"}},
                    ],
                },
            },
        },
    }


def _metadata(wanted: Wanted, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": wanted.namespace, "labels": {"app": name}}


def shared_memory() -> dict[str, Any]:
    """Return the volume for ``SHARED_MEMORY``."""
    return {"name": "memory", "emptyDir": {"medium": "Memory"}}


def last_result() -> dict[str, Any]:
    """Return the volume with the last result of a node, which stays on the node."""
    return {"name": "report", "hostPath": {"path": "/var/lib/harness", "type": "DirectoryOrCreate"}}


def node_name() -> dict[str, Any]:
    """Return the variable with the name of the node that a pod is on."""
    return {"name": "HARNESS_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not key or not found:
        raise UsageError(f"--selector {text!r}; accepted: KEY=VALUE")
    return key, value


def _lines(value: object, depth: int) -> str:
    """A mapping or a list as a block of YAML."""
    pad = "  " * depth
    made = ""
    if isinstance(value, dict):
        for key, each in value.items():
            made += f"{pad}{_scalar(key)}:{_rest(each, depth)}"
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, dict | list) and each:
                block = _lines(each, depth + 1)
                made += f"{pad}- {block[len(pad) + 2 :]}"
            else:
                made += f"{pad}- {_scalar(each)}\n"
    return made


def _rest(value: object, depth: int) -> str:
    if isinstance(value, dict | list) and value:
        return f"\n{_lines(value, depth + 1)}"
    return f" {_scalar(value)}\n"


def _scalar(value: object) -> str:
    """A text without quotes where YAML can take it for nothing else."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
