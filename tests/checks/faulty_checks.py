"""The shipped checks with a fault planted under each: what every check must be able to find.

A suite of its own, so that one process, on real devices, runs them all. The id says what is planted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from harness.checking.check import Check, CheckContext
from harness.checking.suite import Suite
from harness.checks import (
    cluster_hosts,
    devices_distinct,
    digits_classifier,
    ensembles,
    generated_programs,
    gradient_colocation,
    matpow,
    mirrored_strategy,
    model_parallel,
    polynomial_fit,
    task_processes,
    vector_add,
)
from harness.checks.registry import SUITE as SHIPPED
from harness.devices.device import Device, Devices
from harness.distribute import check as every_strategy
from harness.judgement.verify import verify
from harness.records import CheckResult, Exercised, Verdict

Run = Callable[[CheckContext], CheckResult]
Fault = Callable[[Run], Run]


def _patched(place: str, planted: Any) -> Fault:
    def fault(run: Run) -> Run:
        def faulty(context: CheckContext) -> CheckResult:
            with patch(place, planted):
                return run(context)

        return faulty

    return fault


def _with_devices(change: Callable[[Devices], Devices]) -> Fault:
    return lambda run: lambda context: run(replace(context, devices=change(context.devices)))


def _twice_the_first(devices: Devices) -> Devices:
    return Devices([devices[0], *devices[:-1]], spec=devices.spec)


def _with_an_absent_one(devices: Devices) -> Devices:
    absent = Device("/job:localhost/replica:0/task:0/device:CPU:77", "logical-cpu", "/physical_device:CPU:0")
    return Devices([*devices[:-1], absent], spec=devices.spec)


def _with_soft_placement(run: Run) -> Run:
    def faulty(context: CheckContext) -> CheckResult:
        import tensorflow as tf

        tf.config.set_soft_device_placement(True)
        try:
            return run(context)
        finally:
            tf.config.set_soft_device_placement(False)

    return faulty


def _product_anywhere(device: str, mode: str) -> Any:
    import tensorflow as tf

    return tf.function(tf.matmul) if mode == "graph" else tf.matmul


def _product_off_by_one(device: str, mode: str) -> Any:
    import tensorflow as tf

    def product(left: Any, right: Any) -> Any:
        with tf.device(device):
            return tf.matmul(left, right) + 1

    return product


def _joined_in_another_order(devices: Devices) -> Any:
    import tensorflow as tf

    def parallel(a: Any, b: Any) -> Any:
        sums = []
        for part_of_a, part_of_b, device in zip(
            tf.split(a, len(devices)), tf.split(b, len(devices)), devices, strict=True
        ):
            with tf.device(device.name):
                sums.append(part_of_a + part_of_b)
        return tf.concat(sums[::-1], axis=0)

    return parallel


def _all_on_one(devices: Devices) -> Any:
    return lambda a, b: a + b


def _once_too_often(matrix: Any, power: int) -> Any:
    import tensorflow as tf

    return matrix if power < 1 else tf.matmul(matrix, _once_too_often(matrix, power - 1))


def _both_chains_on_one(pair: Devices) -> Any:
    return matpow.one_chain_after_the_other


def _never_colocated(fn: Any, devices: Any, **options: Any) -> Any:
    from harness.parallel.data import DataParallel

    return DataParallel(fn, devices, **{**options, "colocate_gradients": False})


def _blind(*args: Any, **kwargs: Any) -> Any:
    """``verify`` that sees no backward op in the wrong place."""
    seen = verify(*args, **kwargs)
    kept = tuple(finding for finding in seen.findings if finding.kind != "gradient-placement")
    return replace(seen, findings=kept, verdict=seen.verdict if kept else Verdict.PASS)


def _loses_the_last_row(fn: Any, devices: Any, *, axis: int = 0, **options: Any) -> Any:
    import tensorflow as tf

    from harness.parallel.data import DataParallel

    right = DataParallel(fn, devices, axis=axis, **options)
    all_but_the_last = (*(slice(None) for _ in range(axis)), slice(0, -1))

    def wrong(**inputs: Any) -> Any:
        return tf.nest.map_structure(lambda output: output[all_but_the_last], right(**inputs))

    return wrong


def _weights_the_last_row_twice(fn: Any, devices: Any, **options: Any) -> Any:
    """Right shapes, and a loss that is off by its share of one row."""
    import tensorflow as tf

    from harness.parallel.data import DataParallel

    right = DataParallel(fn, devices, **options)

    def wrong(**inputs: Any) -> Any:
        loss = right(**inputs)
        return tf.concat([loss[:-1], loss[-1:] * 2], axis=0)

    return wrong


def _mirrored_with_clipping() -> Any:
    """The check's training with gradients that each replica clips for itself."""
    made = mirrored_build()
    made.optimizer.clipnorm = 0.01
    return made


def _nothing_explored(*args: Any, **kwargs: Any) -> Any:
    from harness.strategies.explore import Exploration

    return Exploration(0, None)


def _proves_nothing(program: Any, devices: Any) -> Any:
    from harness.judgement.verification import Verification

    return Verification(Verdict.UNKNOWN, "planted", (), Exercised())


def _few(context: CheckContext) -> CheckResult:
    with patch.dict("harness.checks.generated_programs.EXAMPLES", {context.level: 6}):
        return generated_programs.run(context)


def _stages_swapped(stages: Any, devices: Any, **options: Any) -> Any:
    """The last two stages run on each other's devices."""
    from harness.parallel.model import Pipeline

    own = list(devices)
    own[-2:] = own[:-3:-1]
    return Pipeline(stages, own, **options)


def _in_a_scope_alone(device: str, fn: Any, args: Any, kwargs: Any) -> Any:
    """Forward ops on the device, backward ops wherever the tape is asked."""
    import tensorflow as tf

    with tf.device(device):
        return fn(*args, **kwargs)


def _members_rotated(models: Any, devices: Any, **options: Any) -> Any:
    """Each model runs on the device of the next one."""
    from harness.parallel.ensemble import Ensemble

    return Ensemble(models, [*devices[1:], devices[0]], **options)


def _results_reversed(models: Any, devices: Any, **options: Any) -> Any:
    from harness.parallel.ensemble import Ensemble

    run = Ensemble(models, devices, **options)

    def wrong(**inputs: Any) -> Any:
        return run(**inputs)[::-1]

    wrong.pattern = run.pattern  # type: ignore[attr-defined]
    return wrong


#: A program that was to fail does not, and another computes something else.
_OTHER_PROGRAMS = {
    **task_processes.PROGRAMS,
    "fails.py": "pass",
    "second.py": task_processes.PROGRAMS["second.py"].replace("tf.ones", "tf.zeros"),
}


@contextmanager
def _one_host_too_few(count: int, folder: Path) -> Iterator[list[str]]:
    yield [f"127.0.0.1:{port}" for port in range(1, count)]


def _unknown_strategy() -> Iterator[tuple[str, int, str]]:
    yield "mirored", 2, "float32"


def _briefly(fault: Fault) -> Fault:
    """A failing example is made small for a moment only."""
    return lambda run: _patched("harness.checks.search.SHRINK_S", 2.0)(fault(run))


def _planted(check: Check, what: str, fault: Fault, run: Run | None = None) -> Check:
    return replace(check, id=f"{check.id}-{what}", run=fault(run if run is not None else check.run))


mirrored_build = mirrored_strategy.build

_MAKE = "harness.parallel.data.make_parallel"
_VERIFY = "harness.judgement.verify.verify"
_DISTINCT, _ADD, _POW = devices_distinct.CHECK, vector_add.CHECK, matpow.CHECK
_COLOCATION, _PROGRAMS = gradient_colocation.CHECK, generated_programs.CHECK
_PIPELINE, _ENSEMBLE = model_parallel.CHECK, ensembles.CHECK
_PIPE, _MEMBERS = "harness.parallel.model.pipeline", "harness.parallel.ensemble.ensemble"
_FIT, _DIGITS = polynomial_fit.CHECK, digits_classifier.CHECK

SUITE = Suite(
    checks=(
        _planted(_DISTINCT, "one-twice", _with_devices(_twice_the_first)),
        _planted(_DISTINCT, "one-absent", _with_devices(_with_an_absent_one)),
        _planted(_DISTINCT, "soft-placement", _with_soft_placement),
        _planted(_DISTINCT, "anywhere", _patched("harness.checks.devices_distinct._product", _product_anywhere)),
        _planted(_DISTINCT, "wrong", _patched("harness.checks.devices_distinct._product", _product_off_by_one)),
        _planted(_ADD, "permuted", _patched("harness.checks.vector_add.split_add_concat", _joined_in_another_order)),
        _planted(_ADD, "all-on-one", _patched("harness.checks.vector_add.split_add_concat", _all_on_one)),
        _planted(_POW, "once-too-often", _patched("harness.checks.matpow.matpow", _once_too_often)),
        _planted(_POW, "all-on-one", _patched("harness.checks.matpow.two_chains", _both_chains_on_one)),
        _planted(_COLOCATION, "never", _patched(_MAKE, _never_colocated)),
        _planted(_COLOCATION, "blind", _patched(_VERIFY, _blind)),
        _planted(_PROGRAMS, "lost-row", _patched(_MAKE, _loses_the_last_row), _few),
        _planted(_PROGRAMS, "none", _patched("harness.strategies.explore.explore", _nothing_explored), _few),
        _planted(
            _PROGRAMS, "blind", _patched("harness.checks.generated_programs.verify_program", _proves_nothing), _few
        ),
        _planted(_PIPELINE, "swapped", _briefly(_patched(_PIPE, _stages_swapped))),
        _planted(_PIPELINE, "uncolocated", _briefly(_patched("harness.parallel.model.call_on", _in_a_scope_alone))),
        _planted(_ENSEMBLE, "rotated", _briefly(_patched(_MEMBERS, _members_rotated))),
        _planted(_ENSEMBLE, "reversed", _briefly(_patched(_MEMBERS, _results_reversed))),
        _planted(task_processes.CHECK, "other", _patched("harness.checks.task_processes.PROGRAMS", _OTHER_PROGRAMS)),
        _planted(_FIT, "off", _patched(_MAKE, _weights_the_last_row_twice)),
        _planted(_FIT, "slow", _patched("harness.checks.polynomial_fit.LEARNING_RATE", 0.05)),
        _planted(_DIGITS, "off", _patched(_MAKE, _weights_the_last_row_twice)),
        _planted(_DIGITS, "lazy", _patched("harness.checks.digits_classifier.LEARNING_RATE", 0.0)),
        _planted(
            mirrored_strategy.CHECK,
            "clipped",
            _patched("harness.checks.mirrored_strategy.build", _mirrored_with_clipping),
        ),
        _planted(cluster_hosts.CHECK, "too-few", _patched("harness.checks.cluster_hosts._serving", _one_host_too_few)),
        _planted(every_strategy.CHECK, "unknown", _patched("harness.distribute.check.trainings", _unknown_strategy)),
    ),
    configure=SHIPPED.configure,
    fingerprint=SHIPPED.fingerprint,
)
