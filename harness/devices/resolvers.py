"""Which hosts a cluster has: those that the spec names, or those that one of TensorFlow's cluster resolvers does."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from harness.devices.address import distinct
from harness.devices.hosts import Host
from harness.devices.spec import MAX_COUNT, ClusterSpec
from harness.errors import InvalidSpec

#: What the job of hosts is called that a spec names.
JOB = "worker"
#: The job that this process is the only task of.
CLIENT_JOB = "localhost"
#: On which port a server of a Slurm task or of a Kubernetes pod is taken to listen: TensorFlow's own defaults. The
#: second task of a Slurm node has the next port, and so on.
SLURM_PORT, KUBERNETES_PORT = 8888, 8470


def find_hosts(tensorflow: Any, spec: ClusterSpec, *, kubernetes: Any = None) -> tuple[Host, ...]:
    """The hosts of ``spec``, sorted by job and task; nothing is connected to.

    ``tf_config`` reads the environment variable TF_CONFIG, ``slurm`` the variables SLURM_PROCID, SLURM_STEP_NUM_TASKS,
    SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE (the tasks of an ``srun``; ports from 8888), ``kubernetes`` asks
    for the pods with the label ``job-name=tensorflow`` (port 8470 of the machine that each runs on) through the client
    ``kubernetes``, by default that of the installed Python package. The task that this process is itself by TF_CONFIG
    or SLURM_PROCID is left out: it is the client, and the others serve.

    Raises:
        InvalidSpec: there is nothing to read, it cannot be read, or it names no host.
    """
    if spec.resolver is None:
        return tuple(Host(JOB, task, address) for task, address in enumerate(spec.hosts))
    unusable: tuple[type[Exception], ...] = (
        *(ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError),
        *(_kubernetes_errors() if spec.resolver == "kubernetes" else ()),
    )
    try:
        tasks, own = _resolve(tensorflow.distribute.cluster_resolver, spec.resolver, kubernetes)
        if own is not None:
            tasks.pop(own, None)
        addresses = distinct(list(tasks.values()))
    except unusable as error:
        raise InvalidSpec(str(spec), f"{_source(spec.resolver)} cannot be used ({_line(error)})") from error
    if any(job == CLIENT_JOB for job, _ in tasks):
        why = f"{_source(spec.resolver)} has a job {CLIENT_JOB!r}, which is what this process is called"
        raise InvalidSpec(str(spec), why)
    if not tasks:
        raise InvalidSpec(str(spec), f"{_source(spec.resolver)} names no host{' besides this process' if own else ''}")
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
        # Without these numbers it would ask nvidia-smi, and drop the tasks that have no GPU of their own.
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
    """The API of the cluster that this process runs in, else of the one that kubectl would use."""
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
    """What the Kubernetes client raises, where it is installed: its errors have no root in common."""
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
        "kubernetes": "what Kubernetes says of the pods with the label job-name=tensorflow",
    }[resolver]


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
