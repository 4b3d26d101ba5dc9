"""Which hosts a cluster has, by what TensorFlow's own cluster resolvers say."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from harness.devices.hosts import Host
from harness.devices.kinds.cluster import ClusterSpec
from harness.devices.resolvers import find_hosts
from harness.devices.spec import parse_spec
from harness.errors import InvalidSpec


def _found(text: str, **given: Any) -> tuple[Host, ...]:
    spec = parse_spec(text)
    assert isinstance(spec, ClusterSpec)
    return spec.listed_hosts() if spec.resolver is None else find_hosts(tf, spec.resolver, **given)


def _hosts(text: str, **given: Any) -> list[str]:
    return [str(host) for host in _found(text, **given)]


def _refused(text: str, **given: Any) -> str:
    with pytest.raises(InvalidSpec) as caught:
        _found(text, **given)
    assert caught.value.spec == text
    assert "\n" not in str(caught.value)
    return caught.value.why


def test_hosts_that_are_named_are_tasks_of_one_job_in_their_order() -> None:
    assert _hosts("cluster:b:2,a:1") == ["b:2 (/job:worker/task:0)", "a:1 (/job:worker/task:1)"]


@pytest.mark.parametrize(
    ("config", "hosts"),
    [
        ({"cluster": {"worker": ["a:1", "b:1"]}}, ["a:1 (/job:worker/task:0)", "b:1 (/job:worker/task:1)"]),
        (
            {"cluster": {"worker": ["b:1", "c:1"], "chief": ["a:1"]}, "task": {"type": "chief", "index": 0}},
            ["b:1 (/job:worker/task:0)", "c:1 (/job:worker/task:1)"],
        ),
        (
            {"cluster": {"worker": ["a:1", "b:1"], "ps": ["p:1"]}, "task": {"type": "worker", "index": 0}},
            ["p:1 (/job:ps/task:0)", "b:1 (/job:worker/task:1)"],
        ),
        (
            {"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}},
            ["a:1 (/job:worker/task:0)"],
        ),
    ],
)
def test_tf_config_says_which_hosts_there_are_and_which_task_this_process_is(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], hosts: list[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert _hosts("cluster:tf_config") == hosts


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "the environment variable TF_CONFIG names no host"),
        ("{}", "names no host"),
        ('{"cluster": {}}', "names no host"),
        ("{", "the environment variable TF_CONFIG cannot be used (Expecting"),
        ("3", "cannot be used"),
        ('{"cluster": {"worker": ["a"]}}', "host 'a' has no port"),
        ('{"cluster": {"worker": ["a:1", "a:1"]}}', "host a:1 is listed twice"),
        ('{"cluster": {"worker": 3}}', "cannot be used"),
        ('{"cluster": {"localhost": ["a:1"]}}', "has a job 'localhost'"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}', "besides this process"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "x"}}', "cannot be used"),
    ],
)
def test_a_tf_config_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str | None, why: str
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    assert why in _refused("cluster:tf_config")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Four tasks on three nodes; this process is the first of them."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in {
        "PROCID": "0",
        "STEP_NUM_TASKS": "4",
        "STEP_NODELIST": "n[08-09],m1",
        "STEP_TASKS_PER_NODE": "1(x2),2",
    }.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    return monkeypatch


def test_slurm_says_the_nodes_of_a_step_and_the_tasks_on_each(slurm: pytest.MonkeyPatch) -> None:
    # TensorFlow sorts the nodes by name: this process, the task with number 0, is the first on m1.
    assert _hosts("cluster:slurm") == [
        "m1:8889 (/job:worker/task:1)",
        "n08:8888 (/job:worker/task:2)",
        "n09:8888 (/job:worker/task:3)",
    ]
    slurm.setenv("SLURM_PROCID", "3")
    assert _hosts("cluster:slurm")[0] == "m1:8888 (/job:worker/task:0)"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("SLURM_PROCID", None, "SLURM_PROCID not found in environment. Not running inside a SLURM step?"),
        ("SLURM_STEP_NODELIST", None, "SLURM_STEP_NODELIST not found"),
        ("SLURM_STEP_NODELIST", "n[1-x]", "Invalid hostlist format"),
        ("SLURM_STEP_NUM_TASKS", "7", "Requested 7 tasks but only 4 were assigned"),
    ],
)
def test_a_slurm_environment_that_is_not_whole_is_refused(
    slurm: pytest.MonkeyPatch, name: str, value: str | None, why: str
) -> None:
    if value is None:
        slurm.delenv(name)
    else:
        slurm.setenv(name, value)
    assert why in _refused("cluster:slurm")


class Pods:
    """What is asked of a Kubernetes client."""

    def __init__(self, *pods: tuple[str, str, str]) -> None:
        self.pods = pods
        self.asked: list[str] = []

    def list_pod_for_all_namespaces(self, label_selector: str) -> Any:
        self.asked.append(label_selector)
        return SimpleNamespace(
            items=[
                SimpleNamespace(
                    metadata=SimpleNamespace(name=name), status=SimpleNamespace(phase=phase, host_ip=address)
                )
                for name, phase, address in self.pods
            ]
        )


def test_kubernetes_says_on_which_machines_the_pods_run() -> None:
    pods = Pods(("b", "Running", "10.0.0.2"), ("a", "Running", "10.0.0.1"))
    assert _hosts("cluster:kubernetes", kubernetes=pods) == [
        "10.0.0.1:8470 (/job:worker/task:0)",
        "10.0.0.2:8470 (/job:worker/task:1)",
    ]
    assert pods.asked == ["job-name=tensorflow"]


def test_pods_that_are_not_there_or_do_not_run_or_share_a_machine_are_refused() -> None:
    assert "names no host" in _refused("cluster:kubernetes", kubernetes=Pods())
    waiting = Pods(("a", "Pending", "10.0.0.1"))
    assert 'Pod "a" is not running; phase: "Pending"' in _refused("cluster:kubernetes", kubernetes=waiting)
    same = Pods(("a", "Running", "10.0.0.1"), ("b", "Running", "10.0.0.1"))
    assert "host 10.0.0.1:8470 is listed twice" in _refused("cluster:kubernetes", kubernetes=same)


def test_without_the_kubernetes_package_it_says_which_one_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kubernetes", "kubernetes.config", "kubernetes.client"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "pip install kubernetes" in _refused("cluster:kubernetes")


@pytest.mark.parametrize("within", [True, False])
def test_the_installed_client_is_asked_within_a_cluster_and_outside(
    monkeypatch: pytest.MonkeyPatch, within: bool
) -> None:
    class ConfigException(Exception):
        pass

    class ApiException(Exception):
        pass

    loaded = []

    def within_cluster() -> None:
        if not within:
            raise ConfigException("not within a cluster")
        loaded.append("within")

    pods = Pods(("a", "Running", "10.0.0.1"))
    package, config, client = (ModuleType(name) for name in ("kubernetes", "kubernetes.config", "kubernetes.client"))
    vars(config).update(
        ConfigException=ConfigException,
        load_incluster_config=within_cluster,
        load_kube_config=lambda: loaded.append("outside"),
    )
    vars(client).update(ApiException=ApiException, CoreV1Api=lambda: pods)
    vars(package).update(config=config, client=client)
    for module in (package, config, client):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert _hosts("cluster:kubernetes") == ["10.0.0.1:8470 (/job:worker/task:0)"]
    assert loaded == ["within" if within else "outside"]

    def fails() -> None:
        raise ConfigException("no\nconfiguration")

    monkeypatch.setattr(config, "load_incluster_config", fails)
    monkeypatch.setattr(config, "load_kube_config", fails)
    assert "cannot be used (no configuration)" in _refused("cluster:kubernetes")
