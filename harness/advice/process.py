"""The task of a worker process that tries the ways to run a user's program."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from harness.devices.runtime import configure
from harness.lazy import tf
from harness.runner.job import typed_task
from harness.runner.messages import Answer
from harness.runner.target import Target
from harness.runner.users_error import users_code
from harness.runner.worker import Send


@typed_task
def run(send: Send, spec: str, file: Path, function: str, batch: int | None, budget_s: float) -> None:
    """Configure devices, build the program, and send each way as soon as it is judged and timed."""
    from harness.advice.advise import Attempt
    from harness.advice.built import Built, load
    from harness.advice.script import Source

    devices = configure(spec)
    target = Target(file, function)

    def build() -> Built:
        return load(target)

    source = Source.of_file(file, function)
    with users_code(target):
        attempt = Attempt.of(build, source, devices, batch, budget_s, lambda text: send(Answer({"progress": text})))
    send(Answer({"about": attempt.about}))
    tf.keras.utils.clear_session()  # layers have their names again
    with users_code(target):
        send(Answer({"way": dataclasses.asdict(attempt.trial.start())}))
    for way in attempt.trial.ways():
        send(Answer({"way": dataclasses.asdict(way)}))
    send(Answer({"complete": True}))
