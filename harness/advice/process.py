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
    from harness.advice.built import Built, load
    from harness.advice.program import STEPS, example_of, facts_of
    from harness.advice.trial import Trial
    from harness.speed.label import kind_of, speed_label

    devices = configure(spec)
    target = Target(file, function)

    def build() -> Built:
        tf.keras.utils.set_random_seed(0)
        return load(target)

    with users_code(target):
        first = example_of(build())
    facts = facts_of(first, target, spec, batch)
    label = speed_label(devices)
    about: dict[str, object] = {
        "spec": devices.spec or spec,
        "label": label.text,
        "gates": label.gates,
        "kind": kind_of(devices),
        "step": STEPS[facts.step],
        "rows": facts.rows,
    }
    send(Answer({"about": about}))
    tf.keras.utils.clear_session()  # layers have their names again
    trial = Trial(
        lambda: example_of(build()),
        facts,
        devices,
        budget_s,
        lambda text: send(Answer({"progress": text})),
    )
    with users_code(target):
        send(Answer({"way": dataclasses.asdict(trial.start())}))
    for way in trial.ways():
        send(Answer({"way": dataclasses.asdict(way)}))
    send(Answer({"complete": True}))
