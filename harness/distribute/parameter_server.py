"""The tasks of the processes of ``ParameterServerStrategy``: its coordinator, and the servers that work for it."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.runner.builder import Builder
from harness.runner.messages import Answer, Started
from harness.runner.users_error import users_code

if TYPE_CHECKING:
    from harness.runner.worker import Send


@dataclass(frozen=True)
class ServerArguments:
    """The arguments of a server: the addresses of all, by the names of their jobs, and which one it is."""

    cluster: dict[str, tuple[str, ...]]
    job: str
    index: int


@dataclass(frozen=True)
class CoordinatorArguments:
    """The arguments of the coordinator: as for the other strategies, and the addresses of the servers."""

    module: str
    file: str
    function: str
    data: str
    batch_size: int
    steps: int
    cluster: dict[str, tuple[str, ...]]


def serve(arguments: dict[str, object], send: Send) -> None:  # noqa: ARG001 - it answers the coordinator alone
    """Serve until the process is ended."""
    import tensorflow as tf

    from harness.devices.loopback import restrict_listening

    asked = TypeAdapter(ServerArguments).validate_python(arguments)
    tf.config.set_visible_devices([], "GPU")
    cluster = tf.train.ClusterSpec({job: list(addresses) for job, addresses in asked.cluster.items()})
    settings = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
    server = tf.distribute.Server(cluster, job_name=asked.job, task_index=asked.index, protocol="grpc", config=settings)
    restrict_listening()
    print(f"serving {asked.job} {asked.index} as {server.target}", flush=True)  # noqa: T201 - for its log
    threading.Event().wait()


def coordinate(arguments: dict[str, object], send: Send) -> None:
    """Connect to the servers, train, and answer with the course, and the losses of one device."""
    asked = TypeAdapter(CoordinatorArguments).validate_python(arguments)
    builder = Builder(asked.module, asked.file, asked.function)
    with users_code(builder.target):
        answer = _train(asked, builder, send)
    send(Answer(answer))


def _train(asked: CoordinatorArguments, builder: Builder, send: Send) -> dict[str, object]:
    import tensorflow as tf

    from harness.distribute.asynchronous import AsynchronousTraining, serial_losses
    from harness.distribute.batches import Data

    tf.config.set_visible_devices([], "GPU")
    with np.load(asked.data, allow_pickle=False) as stored:
        data = Data(stored["x"], stored["y"], asked.batch_size)
    build = builder.load()
    cluster = tf.train.ClusterSpec({job: list(addresses) for job, addresses in asked.cluster.items()})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    send(Started("training"))
    workers = len(asked.cluster["worker"])
    training = AsynchronousTraining(build, strategy, coordinator, data, workers, str(builder))
    initial = training.initial()
    course = training.run(asked.steps)
    losses = serial_losses(build, initial, data, asked.steps, str(builder))
    return {"course": asdict(course), "serial": list(losses)}
