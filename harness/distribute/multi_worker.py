"""Trainings under ``MultiWorkerMirroredStrategy``: starts the processes, judges their histories, and runs in each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from harness.distribute.compare import MOVED_RUNS, compare
from harness.distribute.equivalence import CollectiveCount, Equivalence, count_collectives, exercised_by
from harness.distribute.facts import Facts
from harness.distribute.history import Array, History
from harness.distribute.judgement import Judgement
from harness.distribute.rules import judge_collectives_of_workers, judge_rows, judge_updates, judge_workers
from harness.distribute.single_device import Reference, TrainingArguments, facts_of, make_session
from harness.distribute.training import Data
from harness.judgement.tolerance import epsilon_of_name
from harness.lazy import tf
from harness.records import Exercised, Finding
from harness.runner.ask import Ended, ask, work_at_addresses
from harness.runner.job import Job, WorkerFiles, typed_task
from harness.runner.limits import LAST_RESORT_S, STARTUP_LIMIT_S
from harness.runner.messages import Answer, Started
from harness.runner.users_error import one_line, users_code
from harness.runner.worker import Send


@dataclass(frozen=True)
class WorkerAnswer:
    """What a worker ran in one step of each loop, and the loops that Keras refused, with the reason."""

    collectives: tuple[CollectiveCount, ...]
    exercised: Exercised
    refused: dict[str, str]


def train_with_workers(
    training: TrainingArguments, data: Data, workers: int, limit_s: float, folder: Path
) -> Equivalence:
    """Run the training on one device, then in all workers, and judge it."""
    given: dict[str, object] = {"training": training, "folder": str(folder.absolute())}
    longest_s = max(limit_s, STARTUP_LIMIT_S)
    job = Job(f"{__name__}:run_reference", given, limit_s=longest_s + LAST_RESORT_S)
    answer = ask(job, WorkerFiles.create(folder, "one-device"), limit_s=longest_s)
    facts = TypeAdapter(Facts).validate_python(answer["facts"])

    def jobs(addresses: Sequence[str]) -> list[tuple[Job, WorkerFiles]]:
        task, own = f"{__name__}:run_worker", {**given, "addresses": list(addresses)}
        return [
            (
                Job(task, {**own, "index": index}, longest_s + LAST_RESORT_S),
                WorkerFiles.create(folder, f"worker-{index}"),
            )
            for index in range(workers)
        ]

    ended = work_at_addresses(workers, jobs, limit_s)
    judgement = Judgement("multi_worker", training.loops, training.steps)
    names = [f"worker {number} of {workers}" for number in range(workers)]
    judgement.findings += errors_of(names, ended, training.steps, limit_s)
    if not judgement.findings:
        answers = [TypeAdapter(WorkerAnswer).validate_python(each.answer) for each in ended]
        refused = answers[0].refused
        judgement.findings += [_refused(loop, why) for loop, why in refused.items()]
        for loop in training.loops:
            if loop not in refused:
                histories = [History.load(_file(folder, loop, "worker", index)) for index in range(workers)]
                moved = [History.load(_file(folder, loop, "moved", number)) for number in range(MOVED_RUNS)]
                _judge(judgement, histories, History.load(_file(folder, loop, "single")), moved, facts, data)
        for each in answers:
            judgement.collectives += each.collectives
            judgement.exercised += each.exercised
    judgement.findings += judge_collectives_of_workers(judgement.collectives, workers)
    return judgement.equivalence(f"{training.steps} steps in {workers} processes match the single-device run")


def errors_of(names: Sequence[str], ended: Sequence[Ended], steps: int, limit_s: float) -> list[Finding]:
    """A finding for each process that did not answer."""
    return [
        Finding("error", name, None, f"{steps} steps within {limit_s:g} s", each.details, each.message)
        for name, each in zip(names, ended, strict=True)
        if each.answer is None
    ]


def _judge(
    judgement: Judgement,
    histories: Sequence[History],
    single: History,
    moved: Sequence[History],
    facts: Facts,
    data: Data,
) -> None:
    found = joined(histories)
    broken = [
        *judge_rows(histories, data),
        *(
            finding
            for number, history in enumerate(histories)
            for finding in judge_updates(history, single, f"worker {number}")
        ),
        *judge_workers(histories),
    ]
    compared = compare(found, single, moved, epsilon_of_name(facts.coarsest))
    judgement.add(found, single, compared, facts, data, broken, None)


def joined(histories: Sequence[History]) -> History:
    """One history of all workers: the shares of the loss and of the gradients are added up, the rest is the first's."""
    first = histories[0]
    values = {kind: dict(named) for kind, named in first.values.items()}
    for quantity in ("loss", "gradient") if first.loop == "custom loop" else ():
        values[quantity] = _added([history.values[quantity] for history in histories])
    return replace(first, values=values)


def _added(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    steps = min((len(array) for part in parts for array in part.values()), default=0)
    return {
        name: sum((part[name][:steps] for part in parts[1:] if name in part), parts[0][name][:steps])
        for name in parts[0]
    }


def _refused(loop: str, why: str) -> Finding:
    return Finding(
        "error",
        f"{loop} under MultiWorkerMirroredStrategy",
        None,
        "a training without an error",
        why,
        "Keras's fit does not work with several processes: it fails in Keras's own code; use a custom loop",
    )


def _file(folder: Path, loop: str, *parts: object) -> Path:
    return folder / f"{'-'.join(map(str, (*parts, loop)))}.npz"


@typed_task
def run_reference(send: Send, training: TrainingArguments, folder: Path) -> None:
    """Do the task of one process: run the training on one device, and save the histories and the initial weights."""
    from harness.devices.runtime import configure

    with users_code(training.builder.target):
        experiment = training.experiment()
        configure("cpu:1")
        facts = facts_of(experiment)
        for loop in training.loops:
            reference = Reference(experiment, loop, facts)
            single, moved = reference.run(experiment.data, training.steps)
            single.save(_file(folder, loop, "single"))
            for number, history in enumerate(moved):
                history.save(_file(folder, loop, "moved", number))
            np.savez(_file(folder, loop, "initial"), *reference.initial)
        send(Answer({"facts": facts}))


@typed_task
def run_worker(send: Send, training: TrainingArguments, folder: Path, addresses: list[str], index: int) -> None:
    """Do the task of one process: take part in the training, save the history, and answer with what ran in a step."""
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
    with users_code(training.builder.target):
        answer = asdict(_work(send, training, folder, index))
    send(Answer(answer))


def _work(send: Send, training: TrainingArguments, folder: Path, index: int) -> WorkerAnswer:
    from harness.devices.loopback import restrict_listening
    from harness.evidence.trace import Trace
    from harness.evidence.tracing import trace

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    # Before anything else starts the runtime: the strategy sets up its server first.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    restrict_listening()
    send(Started("training"))
    experiment = training.experiment()
    traces: dict[str, Trace] = {}
    refused: dict[str, str] = {}
    for loop in training.loops:
        with np.load(_file(folder, loop, "initial")) as stored:
            weights = [stored[f"arr_{number}"] for number in range(len(stored.files))]

        def watch(step: Callable[[], Any], loop: str = loop) -> Any:
            traces[loop] = trace(step)
            return traces[loop].outputs

        session = make_session(experiment, loop, strategy)
        try:
            history = session.run(weights, experiment.data, training.steps, watch)
        except ValueError as error:
            # Keras passes a value of all replicas to code that takes a tensor, before the first step.
            if loop != "fit" or "PerReplica" not in str(error):
                raise
            refused[loop] = one_line(error)
            continue
        history.save(_file(folder, loop, "worker", index))
    collectives = tuple(count for loop, seen in traces.items() for count in count_collectives(seen, loop))
    return WorkerAnswer(collectives, sum(map(exercised_by, traces.values()), Exercised()), refused)
