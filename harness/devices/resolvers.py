"""Finds the hosts of a cluster with one of TensorFlow's cluster resolvers."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Literal

from harness.devices.address import distinct
from harness.devices.hosts import Host
from harness.devices.kinds.kind import MAX_COUNT
from harness.errors import InvalidSpec

#: TensorFlow's cluster resolvers, by what they read.
ResolverName = Literal["tf_config", "slurm", "kubernetes"]
#: The job of this process, which is its only task.
CLIENT_JOB = "localhost"
#: The ports of the servers of Slurm tasks and Kubernetes pods, TensorFlow's own defaults. The second task of a Slurm
#: node has the next port, and so on.
SLURM_PORT, KUBERNETES_PORT = 8888, 8470


def find_hosts(tensorflow: Any, resolver: ResolverName, *, kubernetes: Any = None) -> tuple[Host, ...]:
    """Find the hosts that ``resolver`` knows, sorted by job and task, without connecting to them.

    ``tf_config`` reads the environment variable TF_CONFIG, ``slurm`` the variables SLURM_PROCID, SLURM_STEP_NUM_TASKS,
    SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE (the tasks of an ``srun``; ports from 8888), ``kubernetes`` lists
    the pods with the label ``job-name=tensorflow`` (port 8470 of the machine that each runs on) through the client
    ``kubernetes``, by default that of the installed Python package. The task of this process, by TF_CONFIG or
    SLURM_PROCID, is left out: it is the client.

    Raises:
        InvalidSpec: the source is missing or not readable, or it names no host.
    """
    unusable: tuple[type[Exception], ...] = (
        *(ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError),
        *(_kubernetes_errors() if resolver == "kubernetes" else ()),
    )
    try:
        tasks, own = _resolve(tensorflow.distribute.cluster_resolver, resolver, kubernetes)
        if own is not None:
            tasks.pop(own, None)
        addresses = distinct(list(tasks.values()))
    except unusable as error:
        raise InvalidSpec(f"cluster:{resolver}", f"{_source(resolver)} cannot be used ({_line(error)})") from error
    if any(job == CLIENT_JOB for job, _ in tasks):
        why = f"{_source(resolver)} has a job {CLIENT_JOB!r}, the name reserved for this process"
        raise InvalidSpec(f"cluster:{resolver}", why)
    if not tasks:
        why = f"{_source(resolver)} names no host{' besides this process' if own else ''}"
        raise InvalidSpec(f"cluster:{resolver}", why)
    return tuple(Host(job, task, address) for (job, task), address in sorted(zip(tasks, addresses, strict=True)))


#: The addresses of a cluster by job and task, and which task this process is.
_Tasks = tuple[dict[tuple[str, int], str], tuple[str, int] | None]


def _resolve(resolvers: Any, name: str, kubernetes: Any) -> _Tasks:
    own: tuple[str, int] | None = None
    if name == "tf_config":
        resolver = resolvers.TFConfigClusterResolver()
        cluster = resolver.cluster_spec()
        if resolver.task_type is not None and resolver.task_id is not None:
            own = (resolver.task_type, resolver.task_id)
    elif name == "slurm":
        # Without these numbers the resolver calls nvidia-smi, and drops tasks without a GPU of their own.
        resolver = resolvers.SlurmClusterResolver(
            port_base=SLURM_PORT, gpus_per_node=MAX_COUNT, gpus_per_task=1, auto_set_gpu=False
        )
        cluster = resolver.cluster_spec()
        own = resolver.get_task_info()
    else:
        client = _kubernetes_client() if kubernetes is None else kubernetes
        resolver = resolvers.KubernetesClusterResolver(tf_server_port=KUBERNETES_PORT, override_client=client)
        cluster = resolver.cluster_spec()
    return {
        (job, task): cluster.task_address(job, task) for job in cluster.jobs for task in cluster.task_indices(job)
    }, own


def _kubernetes_client() -> Any:
    """Connect to the cluster that this process runs in, else to the one that kubectl would use."""
    try:
        config, client = importlib.import_module("kubernetes.config"), importlib.import_module("kubernetes.client")
    except ImportError as error:
        raise ImportError("the Python package kubernetes is not installed: pip install kubernetes") from error
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    return client.CoreV1Api()


def _kubernetes_errors() -> tuple[type[Exception], ...]:
    """List the errors of the Kubernetes client, where it is installed: they have no root in common."""
    found: list[type[Exception]] = []
    for module, name in (
        ("kubernetes.config", "ConfigException"),
        ("kubernetes.client", "ApiException"),
        ("urllib3.exceptions", "HTTPError"),
    ):
        with contextlib.suppress(ImportError, AttributeError):
            found.append(getattr(importlib.import_module(module), name))
    return tuple(found)


def _source(resolver: str) -> str:
    return {
        "tf_config": "the environment variable TF_CONFIG",
        "slurm": "the environment of a Slurm step (SLURM_PROCID, SLURM_STEP_NODELIST and others)",
        "kubernetes": "the Kubernetes list of pods with the label job-name=tensorflow",
    }[resolver]


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
