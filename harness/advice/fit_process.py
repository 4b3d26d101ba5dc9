"""The task of a worker process that measures the peaks of a step for several batch sizes."""

from __future__ import annotations

import gc
from pathlib import Path

from harness.devices.device import Devices
from harness.devices.runtime import configure
from harness.lazy import tf
from harness.runner.job import typed_task
from harness.runner.messages import Answer
from harness.runner.target import Target
from harness.runner.users_error import one_line, users_code
from harness.runner.worker import Send

#: So many steps are measured, and the largest peak counts.
_STEPS = 5
#: The parts of the batch that are measured besides the whole one: two give a line, the third one tests it.
_PARTS = (8, 4, 2)


@typed_task
def run(send: Send, spec: str, file: Path, function: str, batch: int | None, shards: int, predict: bool) -> None:
    """Build the program for one device, and send the peak of each batch size as soon as it is measured."""
    from harness.advice.built import load
    from harness.advice.program import STEPS, example_of, facts_of
    from harness.advice.script import Source

    devices = configure(spec)
    target = Target(file, function)
    with users_code(target):
        try:
            example = example_of(load(target))
        except tf.errors.ResourceExhaustedError:
            send(Answer({"too_large": True}))
            send(Answer({"complete": True}))
            return
    facts = facts_of(example, Source.of_file(target.path, target.function), spec, batch)
    rows = facts.rows or 0
    send(Answer({"about": {"step": STEPS[facts.step], "rows": rows}}))
    own = -(-rows // shards)
    sizes = sorted({max(1, own // part) for part in _PARTS})
    if own not in sizes and not predict:
        sizes.append(own)
    del example
    for size in sizes:
        tf.keras.utils.clear_session()
        gc.collect()
        with users_code(target):
            try:
                measured = _measured(target, spec, devices, size)
            except tf.errors.ResourceExhaustedError:
                break
            except Exception as error:
                if size == own or own not in sizes:
                    raise
                # A step may need all rows of its batch.
                send(Answer({"failed": {"rows": size, "why": one_line(error)}}))
                continue
        send(Answer({"peak": {"rows": size, **measured}}))
    send(Answer({"complete": True}))


def _measured(target: Target, spec: str, devices: Devices, rows: int) -> dict[str, int]:
    """What stays between steps, the largest peak of a step, and that of building, without what was there; in bytes."""
    from harness.advice.built import load
    from harness.advice.program import example_of, facts_of
    from harness.advice.running import start
    from harness.advice.script import Source, on_one_device

    name = devices[0].parsed.short

    def held() -> int:
        tf.test.experimental.sync_devices()
        return int(tf.config.experimental.get_memory_info(name)["current"])

    def peak() -> int:
        tf.test.experimental.sync_devices()
        return int(tf.config.experimental.get_memory_info(name)["peak"]) - before

    before = held()
    tf.config.experimental.reset_memory_stats(name)
    tf.keras.utils.set_random_seed(0)
    example = example_of(load(target), rows)
    facts = facts_of(example, Source.of_file(target.path, target.function), spec, rows)
    running = start("one device", on_one_device(facts), devices, lambda: example.parts)
    building, largest = peak(), 0
    tf.config.experimental.reset_memory_stats(name)
    running.warmed_up()
    kept = held() - before
    for _ in range(_STEPS):
        running.step()
        largest = max(largest, peak())
    running.names.clear()  # Python keeps the module, and with it the model
    return {"held_bytes": kept, "size_bytes": largest, "building_bytes": building}
