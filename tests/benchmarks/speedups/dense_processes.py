"""Gradients of one batch in processes of their own: by one on a core, by workers side by side, or with a server.

Each of these functions is the task of a process (``harness.runner.worker``). The first thing that it answers with is
where it runs; then it takes a step for each byte that comes, leaves the loss and the gradients in a file that all of a
group have mapped, and answers again.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.devices.loopback import restrict_listening
from harness.runner.messages import Answer
from harness.runner.worker import Send

#: So many float32 [units, units] there are, and the batch is float32 [rows, units].
LAYERS = 6
UNITS = 256
#: Takes a step, and returns the scalar loss and the gradients.
Step = Callable[[], "Sequence[Any]"]


@dataclass(frozen=True)
class Asked:
    """The arguments of a task.

    ``cpu`` is the one that the process may run on, ``None`` for any; ``rows`` are those of the whole batch; ``steps``
    is the pipe with a byte for each step, ``results`` the file, of which the process fills the tensors ``own``;
    ``cluster`` has the addresses of all by their jobs, and ``job`` and ``index`` say which one this is.
    """

    cpu: int | None
    rows: int
    steps: str = ""
    results: str = ""
    own: tuple[int, ...] = ()
    cluster: dict[str, tuple[str, ...]] | None = None
    job: str = "worker"
    index: int = 0


def sizes() -> list[int]:
    """How many float32 the loss and each gradient have, as they follow each other in the file of results."""
    return [1, *[UNITS * UNITS] * LAYERS]


def flops(rows: int) -> float:
    """Floating-point operations of a step: forward, and twice that for the gradients."""
    return 3 * 2.0 * LAYERS * rows * UNITS**2


def alone(arguments: dict[str, object], send: Send) -> None:
    """The whole batch on one device."""
    asked = _asked(arguments)
    import tensorflow as tf

    _one_thread()
    batch, start = _data(asked.rows)
    variables = [tf.Variable(value) for value in start]
    x = tf.constant(batch)
    step = tf.function(lambda: _gradients(x, variables, asked.rows))
    _take_steps(asked, send, step, _seen(step))


def work(arguments: dict[str, object], send: Send) -> None:
    """A part of the batch, as one worker of ``MultiWorkerMirroredStrategy``."""
    asked = _asked(arguments)
    assert asked.cluster is not None
    os.environ["TF_CONFIG"] = json.dumps({"cluster": asked.cluster, "task": {"type": asked.job, "index": asked.index}})
    import tensorflow as tf

    _one_thread()
    # Before anything starts the runtime: the strategy sets up its server first.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    restrict_listening()
    workers = len(asked.cluster[asked.job])
    batch, start = _data(asked.rows)
    with strategy.scope():
        variables = [tf.Variable(value) for value in start]
    x = tf.constant(np.split(batch, workers)[asked.index])

    def replica() -> Any:
        mine = _gradients(x, variables, asked.rows)
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, mine)

    step = tf.function(lambda: strategy.run(replica))
    _take_steps(asked, send, step, _seen(step))


def serve(arguments: dict[str, object], send: Send) -> None:
    """A server of ``ParameterServerStrategy``, of either job, until it is ended."""
    asked = _asked(arguments)
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    # With one thread between ops, a worker that reads a variable of the server waits for ever. It has one core anyway.
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
    cluster = tf.train.ClusterSpec({job: list(addresses) for job, addresses in (asked.cluster or {}).items()})
    server = tf.distribute.Server(cluster, job_name=asked.job, task_index=asked.index, protocol="grpc", config=config)
    restrict_listening()
    send(Answer({"cpus": sorted(os.sched_getaffinity(0)), "address": server.target}))
    threading.Event().wait()


def coordinate(arguments: dict[str, object], send: Send) -> None:
    """The coordinator of ``ParameterServerStrategy``: each worker adds up its part of the gradients on the server."""
    asked = _asked(arguments)
    assert asked.cluster is not None
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    cluster = tf.train.ClusterSpec({job: list(addresses) for job, addresses in asked.cluster.items()})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    workers = len(asked.cluster["worker"])
    batch, start = _data(asked.rows)
    with strategy.scope():
        variables = [tf.Variable(value) for value in start]
        sums = [tf.Variable(np.zeros(shape, np.float32)) for shape in ((), *(value.shape for value in start))]

    @tf.function  # type: ignore[untyped-decorator]
    def part(index: Any) -> None:
        def replica() -> None:
            # A constant of the function, so that each worker has the batch, and none waits for it in a step.
            x = tf.constant(np.stack(np.split(batch, workers)))[index]
            for total, mine in zip(sums, _gradients(x, variables, asked.rows), strict=True):
                total.assign_add(mine)

        strategy.run(replica)

    @tf.function  # type: ignore[untyped-decorator]
    def take() -> Any:
        """The sums; the next step begins at 0 again."""
        taken = [total.read_value() for total in sums]
        with tf.control_dependencies(taken):
            for total in sums:
                with tf.device(total.device):
                    total.assign(tf.zeros_like(total))
        return taken

    indices = [tf.constant(index) for index in range(workers)]

    def step() -> Any:
        for index in indices:
            coordinator.schedule(part, args=(index,))
        coordinator.join()
        return take()

    _take_steps(asked, send, step)


def _asked(arguments: dict[str, object]) -> Asked:
    """The arguments, once the process is on its core: threads that are started later stay there too."""
    asked = TypeAdapter(Asked).validate_python(arguments)
    if asked.cpu is not None:
        os.sched_setaffinity(0, {asked.cpu})
    return asked


def _one_thread() -> None:
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _data(rows: int) -> tuple[Any, list[Any]]:
    """The batch and the weights, the same in each process."""
    random = np.random.default_rng(0)
    batch = random.standard_normal((rows, UNITS), np.float32)
    scale = np.float32(UNITS**-0.5)
    return batch, [random.standard_normal((UNITS, UNITS), np.float32) * scale for _ in range(LAYERS)]


def _gradients(x: Any, variables: Sequence[Any], rows: int) -> list[Any]:
    """What these rows add to the mean loss over all ``rows``, and its gradients."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        y = x
        for weights in variables:
            y = tf.tanh(tf.matmul(y, weights))
        loss = tf.reduce_sum(tf.reduce_mean(tf.square(y), axis=1)) / rows
    return [loss, *tape.gradient(loss, variables)]


def _seen(step: Step) -> dict[str, object]:
    """Where the arithmetic of a step ran, and the bytes of its collectives, from a trace of it."""
    from harness.evidence.arithmetic import proven
    from harness.evidence.tracing import trace

    seen = trace(step)
    return {
        "devices": sorted({str(op.device) for op in proven(seen)}),
        "all_reduced_bytes": sum(each.size_bytes or 0 for each in seen.collectives),
    }


def _take_steps(asked: Asked, send: Send, step: Step, seen: dict[str, object] | None = None) -> None:
    """Answer with where it runs, and with what was ``seen``. Then take a step for each byte, and answer each time."""
    results = np.load(asked.results, mmap_mode="r+")
    places = np.split(results, np.cumsum(sizes())[:-1])
    step()  # before the first limit of a step: it traces
    with open(asked.steps, "rb", buffering=0) as steps:  # noqa: PTH123 - unbuffered, as a byte comes for each step
        send(Answer({"cpus": sorted(os.sched_getaffinity(0)), **(seen or {})}))
        while steps.read(1):
            tensors = step()
            for number in asked.own:
                places[number][:] = np.ravel(tensors[number])
            send(Answer({}))
