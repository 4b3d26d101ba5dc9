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
def run(
    send: Send,
    spec: str,
    file: Path,
    function: str,
    batch: int | None,
    budget_s: float,
    cards: str | None,
    memory_bytes: int | None,
) -> None:
    """Configure devices, build the program, and send each way as soon as it is judged and timed."""
    from harness.advice.advise import trial_of
    from harness.advice.built import Built, load
    from harness.advice.cards import Cards
    from harness.advice.prediction import software_gpus
    from harness.advice.script import Source

    named = None if cards is None else Cards.parse(cards)
    devices = configure(spec) if named is None else software_gpus(named)
    target = Target(file, function)

    def build() -> Built:
        return load(target)

    source = Source.of_file(file, function)

    def say(text: str) -> None:
        send(Answer({"progress": text}))

    with users_code(target):
        trial = trial_of(build, source, devices, batch, budget_s, say, named)
    trial.memory_bytes = memory_bytes
    send(Answer({"about": trial.about}))
    tf.keras.utils.clear_session()  # layers have their names again
    with users_code(target):
        first = trial.start()
    send(Answer({"about": trial.about}))
    send(Answer({"way": dataclasses.asdict(first)}))
    for way in trial.ways():
        send(Answer({"way": dataclasses.asdict(way)}))
    send(Answer({"complete": True}))
