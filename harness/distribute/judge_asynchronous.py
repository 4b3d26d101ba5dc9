"""Judges an asynchronous training. It cannot equal a serial one; what must hold is other: see the rules below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.distribute.asynchronous import AsynchronousCourse
from harness.records import Finding, Verdict


def judge_asynchronous(course: AsynchronousCourse, serial: Sequence[float]) -> Iterator[Finding]:
    """No update is lost, every worker contributes, variables are on parameter servers, and training gets somewhere.

    ``serial`` are the losses of one device after half of the updates and after each later one. An update from stale
    weights helps less than a fresh one, but one in two of them must be worth as much; and around a minimum losses go up
    and down by as much as they do on one device. So a convex problem has to reach the same minimum.
    """
    if course.added != course.steps:
        yield _count("what the workers add up in an integer variable", course.steps, course.added)
    for name, held in course.counters:
        if held != course.steps:
            yield _count(f"counter {name}", course.steps, held)
    if course.iterations != course.steps:
        # Keras 3 writes its counter as what it reads plus 1 (optimizers/base_optimizer.py). Weights are not affected.
        yield replace(
            _count("the optimizer's counter of its updates", course.steps, course.iterations),
            message="Keras reads its counter, adds 1 and writes it back, so that workers overwrite one another's; "
            "learning rate schedules, and Adam's correction of its first steps, lag behind",
            severity=Verdict.WARN,
        )
    for number, count in enumerate(course.by_worker):
        if not count:
            yield Finding(
                "unused-device",
                f"worker {number}",
                None,
                f"a part of {course.steps} steps",
                "none",
                "a worker took no step at all",
            )
    strays = [(name, device) for name, device in course.homes if "/job:ps/" not in device]
    if strays:
        yield Finding(
            "variable-placement",
            f"{strays[0][0]} and {len(strays) - 1} more",
            strays[0][1],
            "/job:ps",
            strays[0][1],
            "a variable is on no parameter server: it was made outside of the strategy's scope",
        )
    _, after = course.losses
    bound = max(serial) + (max(serial) - min(serial))
    if not after <= bound:
        yield Finding(
            "value",
            f"loss of the whole data after {course.steps} updates",
            None,
            f"at most {bound:.6g}, from what one device has after half as many and later, and its ups and downs",
            f"{after:.6g}",
            "asynchronous training got less far than half of its updates should: gradients are too stale, or wrong",
        )


def _count(what: str, want: int, got: int) -> Finding:
    lost = f"{want - got} update(s) were lost" if got < want else f"{got - want} update(s) too many"
    return Finding(
        "update-count",
        what,
        None,
        f"{want}, one for each step",
        str(got),
        f"{lost}: workers that read a value, change it and write it back overwrite each other; use assign_add",
    )
