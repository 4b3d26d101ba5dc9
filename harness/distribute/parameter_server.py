"""Trainings under ``ParameterServerStrategy``: starts the processes, judges the result, and runs in each.

An asynchronous training cannot match a serial one; other properties must hold, see :func:`judge_asynchronous`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from harness.devices.name import DeviceName
from harness.distribute.asynchronous import AsynchronousHistory
from harness.distribute.equivalence import Equivalence
from harness.distribute.judgement import Judgement
from harness.distribute.multi_worker import errors_of
from harness.distribute.single_device import TrainingArguments
from harness.lazy import tf
from harness.plural import plural
from harness.records import Exercised, Finding, Verdict
from harness.runner.ask import work_at_addresses
from harness.runner.job import Job, WorkerFiles, typed_task
from harness.runner.limits import LAST_RESORT_S, STARTUP_LIMIT_S
from harness.runner.messages import Answer, Started
from harness.runner.users_error import users_code
from harness.runner.worker import Send


def train_asynchronously(training: TrainingArguments, workers: int, limit_s: float, folder: Path) -> Equivalence:
    """Start a coordinator, a server for the variables and the workers; train, and judge."""
    longest_s = max(limit_s, STARTUP_LIMIT_S) + LAST_RESORT_S
    servers = [("ps", 0), *(("worker", index) for index in range(workers))]
    names = ["coordinator", *(f"{job}-{index}" for job, index in servers)]

    def jobs(addresses: Sequence[str]) -> list[tuple[Job, WorkerFiles]]:
        cluster = {"worker": list(addresses[:workers]), "ps": list(addresses[workers:])}
        made = [Job(f"{__name__}:coordinate", {"training": training, "cluster": cluster}, longest_s)]
        for job, index in servers:
            made.append(Job(f"{__name__}:serve", {"cluster": cluster, "job": job, "index": index}, longest_s))
        return [(job, WorkerFiles.create(folder, name)) for job, name in zip(made, names, strict=True)]

    ended = work_at_addresses(workers + 1, jobs, limit_s, needed=1)
    judgement = Judgement("parameter_server", ("custom",), training.steps)
    judgement.findings += errors_of(names, ended, training.steps, limit_s)
    if judgement.findings:
        return judgement.equivalence("")
    answer = ended[0].answer or {}
    history = TypeAdapter(AsynchronousHistory).validate_python(answer["history"])
    serial = TypeAdapter(tuple[float, ...]).validate_python(answer["serial"])
    judgement.findings += judge_asynchronous(history, serial)
    judgement.exercised = Exercised(programs=1, values=2 + len(history.by_worker) + len(history.variable_devices))
    stale = history.staleness
    judgement.measured = {
        "staleness_mean_updates": sum(stale) / len(stale),
        "staleness_largest_updates": float(max(stale)),
        "loss_before": history.losses[0],
        "loss_after": history.losses[1],
        "loss_of_one_device_after_half": serial[0],
        "loss_of_one_device_after_all": serial[-1],
        **{f"steps_of_worker_{number}": float(count) for number, count in enumerate(history.by_worker)},
    }
    updates = f"{training.steps} asynchronous updates by {workers} workers"
    return judgement.equivalence(f"{updates}, none lost, reach the loss of the single-device run", traced=False)


def judge_asynchronous(history: AsynchronousHistory, serial: Sequence[float]) -> Iterator[Finding]:
    """Judge that no update is lost, every worker takes steps, variables are on parameter servers, and the loss falls.

    ``serial`` are the losses of one device after half of the updates and after each later one. An update from stale
    weights helps less than a fresh one, but must help at least half as much; and around a minimum losses go up and down
    by as much as they do on one device. So a convex problem has to reach the same minimum.
    """
    steps = history.steps
    if history.added != steps:
        yield _lost("the integer variable that the workers add to", steps, history.added)
    for name, value in history.counters:
        if value != steps:
            yield _lost(f"counter {name}", steps, value)
    if history.iterations != steps:
        # Keras 3 writes its counter as what it reads plus 1 (optimizers/base_optimizer.py). Weights are not affected.
        yield replace(
            _lost("the optimizer's counter of its updates", steps, history.iterations),
            message="Keras's step counter misses updates when two workers write it at the same time; learning rate "
            "schedules and Adam's bias correction lag behind",
            severity=Verdict.WARN,
        )
    for number, count in enumerate(history.by_worker):
        if not count:
            yield Finding(
                "unused-device",
                f"worker {number}",
                None,
                f"at least 1 of {steps} steps",
                "none",
                "a worker took no step",
            )
    strays = [(name, device) for name, device in history.variable_devices if DeviceName.parse(device).job != "ps"]
    if strays:
        name, device = strays[0]
        yield Finding(
            "variable-placement",
            f"{name} and {len(strays) - 1} more" if len(strays) > 1 else name,
            device,
            "/job:ps",
            device,
            "a variable is not on a parameter server: it was created outside strategy.scope()",
        )
    after = history.losses[1]
    bound = max(serial) + (max(serial) - min(serial))
    if not after <= bound:  # a NaN is above
        yield Finding(
            "value",
            f"loss of all the data after {steps} updates",
            None,
            f"at most {bound:.4g}: the loss of one device after half as many updates, plus the spread of its later "
            "losses",
            f"{after:.4g}",
            "the training made less progress than one device with half as many updates: gradients are wrong, "
            "or too old when they are applied",
        )


def _lost(what: str, want: int, got: int) -> Finding:
    if got < want:
        message = (
            f"{plural(want - got, 'lost update')}: two workers read the same value, and the later write overwrote the "
            "earlier one; use assign_add"
        )
    else:
        message = f"{plural(got - want, 'update')} too many: a step added to the counter more than once"
    return Finding(
        "update-count",
        what,
        None,
        f"{want}, one for each step",
        str(got),
        message,
    )


@typed_task
def serve(send: Send, cluster: dict[str, list[str]], job: str, index: int) -> None:  # noqa: ARG001 - it has no answer
    """Do the task of a server, until the process is ended. ``cluster`` has the addresses of all servers by job."""
    from harness.devices.loopback import restrict_listening

    # A server takes its devices from these settings alone: hiding GPUs with set_visible_devices has no effect on it.
    settings = tf.compat.v1.ConfigProto(
        device_count={"GPU": 0}, intra_op_parallelism_threads=1, inter_op_parallelism_threads=4
    )
    spec = tf.train.ClusterSpec(cluster)
    server = tf.distribute.Server(spec, job_name=job, task_index=index, protocol="grpc", config=settings)
    restrict_listening()
    print(f"serving {job} {index} as {server.target}", flush=True)  # noqa: T201 - for its log
    threading.Event().wait()


@typed_task
def coordinate(send: Send, training: TrainingArguments, cluster: dict[str, list[str]]) -> None:
    """Do the task of the coordinator: train, and answer with the history and the losses of one device."""
    with users_code(training.builder.target):
        answer = _train(send, training, cluster)
    send(Answer(answer))


def _train(send: Send, training: TrainingArguments, cluster: dict[str, list[str]]) -> dict[str, object]:
    from harness.distribute.asynchronous import AsynchronousTraining, serial_losses

    tf.config.set_visible_devices([], "GPU")
    experiment = training.experiment()
    servers = tf.train.ClusterSpec(cluster)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(servers, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    send(Started("training"))
    session = AsynchronousTraining(experiment, strategy, coordinator, len(cluster["worker"]))
    initial = session.initial()
    history = session.run(experiment.steps)
    return {"history": history, "serial": serial_losses(experiment, initial)}
