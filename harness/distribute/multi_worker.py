"""The task of one worker of ``MultiWorkerMirroredStrategy``, and that of the process with the single-device run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from harness.runner.builder import Builder
from harness.runner.exception_text import one_line
from harness.runner.messages import Answer, Started, plain
from harness.runner.users_error import users_code

if TYPE_CHECKING:
    from harness.distribute.reference import Asked
    from harness.runner.worker import Send


@dataclass(frozen=True)
class Arguments:
    """The arguments of both tasks. ``folder`` is where courses are kept; ``addresses`` are those of all workers."""

    module: str
    file: str
    function: str
    data: str
    batch_size: int
    steps: int
    loops: tuple[str, ...]
    folder: str
    addresses: tuple[str, ...] = ()
    index: int = 0


def single(folder: Path, loop: str) -> Path:
    """The file of the course on one device."""
    return folder / f"single-{loop}.npz"


def moved(folder: Path, loop: str, number: int) -> Path:
    """The file of a course on one device from moved weights and data."""
    return folder / f"moved-{number}-{loop}.npz"


def initial(folder: Path, loop: str) -> Path:
    """The file of the weights that all begin with."""
    return folder / f"initial-{loop}.npz"


def of_worker(folder: Path, loop: str, index: int) -> Path:
    """The file of the course of a worker."""
    return folder / f"worker-{index}-{loop}.npz"


def run_reference(arguments: dict[str, object], send: Send) -> None:
    """Run the training on one device, keep the courses, and answer with what it is made of."""
    from harness.devices.runtime import configure
    from harness.distribute.reference import Reference, look_at

    asked = TypeAdapter(Arguments).validate_python(arguments)
    folder = Path(asked.folder)

    def work() -> dict[str, object]:
        training = _training(asked)
        configure("cpu:1")
        facts = look_at(training)
        for loop in asked.loops:
            reference = Reference(training, loop, facts)
            course, others = reference.courses(training.data, asked.steps)
            course.save(single(folder, loop))
            for number, other in enumerate(others):
                other.save(moved(folder, loop, number))
            np.savez(initial(folder, loop), *reference.initial)
        return {"facts": asdict(facts), "moved": len(others)}

    with users_code(_builder(asked).target):
        send(Answer(work()))


def run_worker(arguments: dict[str, object], send: Send) -> None:
    """Take part in the training, keep the course, and answer with what ran here in a step."""
    asked = TypeAdapter(Arguments).validate_python(arguments)
    folder = Path(asked.folder)
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": list(asked.addresses)}, "task": {"type": "worker", "index": asked.index}}
    )

    def work() -> dict[str, object]:
        import tensorflow as tf

        from harness.devices.loopback import restrict_listening
        from harness.distribute.equivalence import count_collectives
        from harness.distribute.reference import make_session
        from harness.evidence.trace import trace
        from harness.judgement.arithmetic import proven
        from harness.judgement.placement import gradient_ops

        tf.config.set_visible_devices([], "GPU")
        tf.config.threading.set_intra_op_parallelism_threads(1)
        # Before anything starts the runtime: the strategy sets up its server first.
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        restrict_listening()
        send(Started("training"))
        training = _training(asked)
        answer: dict[str, Any] = {"collectives": [], "devices": [], "ops": 0, "gradient_ops": 0, "refused": []}
        for loop in asked.loops:
            with np.load(initial(folder, loop)) as stored:
                weights = [stored[f"arr_{number}"] for number in range(len(stored.files))]

            def watch(step: Callable[[], Any], loop: str = loop) -> Any:
                seen = trace(step)
                answer["collectives"] += [plain(count) for count in count_collectives(seen, loop)]
                answer["devices"] += sorted({str(op.device) for op in proven(seen)})
                answer["ops"] += len(proven(seen))
                answer["gradient_ops"] += gradient_ops(seen)
                return seen.outputs

            session = make_session(training, loop, strategy, training.data)
            try:
                course = session.run(weights, training.data, asked.steps, watch)
            except ValueError as error:
                # Keras's own code hands a value of all replicas to what takes a tensor, before the first step.
                if loop != "fit" or "PerReplica" not in str(error):
                    raise
                answer["refused"].append([loop, one_line(error)])
                continue
            course.save(of_worker(folder, loop, asked.index))
        return answer

    with users_code(_builder(asked).target):
        send(Answer(work()))


def _training(asked: Arguments) -> Asked:
    from harness.distribute.batches import Data
    from harness.distribute.reference import Asked

    builder = _builder(asked)
    with np.load(asked.data, allow_pickle=False) as stored:
        data = Data(stored["x"], stored["y"], asked.batch_size)
    return Asked(builder.load(), str(builder), data, asked.steps, asked.loops)


def _builder(asked: Arguments) -> Builder:
    return Builder(asked.module, asked.file, asked.function)
