"""Trainings under every strategy of ``tf.distribute``, on 2, 3, 4 and 8 logical CPUs, in every dtype."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from harness.checking.check import Check, CheckContext, Level
from harness.checking.tally import Tally
from harness.distribute.strategies import IN_ONE_PROCESS
from harness.distribute.training import POLICIES, Training, dense_training, random_data
from harness.errors import HarnessError
from harness.lazy import tf
from harness.records import CheckResult, Finding, Verdict

if TYPE_CHECKING:
    from harness.distribute.equivalence import Equivalence

COUNTS = (2, 3, 4, 8)
STEPS = 3
#: Rows of a batch, for each replica, and of the last batch, which any of the counts can divide.
ROWS_EACH = 2
FEATURES, UNITS, OUTPUTS = 5, 24, 24
#: How long one training may take once its processes are up, in seconds.
LIMIT_S = 300.0


def trainings() -> Iterator[tuple[str, int, str]]:
    """Strategy, number of devices or workers, and dtype policy: every pair of values, not every triple."""
    for shift, strategy in enumerate(IN_ONE_PROCESS):
        for place, count in enumerate(COUNTS):
            yield strategy, count, POLICIES[(place + shift) % len(POLICIES)]
    for strategy in ("multi_worker", "parameter_server"):
        for place, policy in enumerate(POLICIES):
            yield strategy, 2 + place % 2, policy


def run(context: CheckContext) -> CheckResult:  # noqa: ARG001 - each training has devices of its own
    """Run the trainings one after the other, each in processes of its own."""
    tally = Tally()
    done = lagging = 0
    for strategy, count, policy in trainings():
        where = f"{strategy} with {count} {'devices' if strategy in IN_ONE_PROCESS else 'workers'} in {policy}"
        try:
            result = _train(strategy, count, policy)
        except HarnessError as error:
            tally.found(Finding("error", where, None, "a completed training", "none", f"{where}: {error}"))
            continue
        done += 1
        lagging += sum(finding.severity is Verdict.WARN for finding in result.findings)
        failures = tuple(finding for finding in result.findings if finding.severity is Verdict.FAIL)
        tally.add(replace(result, findings=failures), where)
    outcome = tally.result(
        f"{done} training runs passed: every strategy with every dtype, with different numbers of devices or workers",
        "read the findings: each names the strategy, the number of devices or workers, the dtype and the step",
    )
    # A warning about Keras's own counter of steps under parameter servers says nothing about this machine.
    lag = (
        f"Keras's step counter lagged behind in {lagging} of the asynchronous training runs, which can "
        "happen on any machine"
    )
    return replace(outcome, scope=(lag,)) if lagging else outcome


def _train(strategy: str, count: int, policy: str) -> Equivalence:
    from harness.distribute.run import equivalent

    return equivalent(
        strategy,
        f"{__name__}:build_{policy}",
        random_data(policy, 2 * ROWS_EACH * count + count, FEATURES, OUTPUTS, seed=count),
        STEPS,
        batch_size=ROWS_EACH * count,
        devices=f"cpu:{count}" if strategy in IN_ONE_PROCESS else None,
        workers=count,
        loops=("custom",),
        limit_s=LIMIT_S,
    )


def _build(policy: str) -> Training:
    return dense_training(policy, FEATURES, UNITS, OUTPUTS, tf.keras.optimizers.SGD(0.1, momentum=0.9))


#: What the processes find by name, for each of the policies.
build_float32, build_float64, build_mixed_bfloat16, build_mixed_float16 = (
    partial(_build, policy) for policy in POLICIES
)


CHECK = Check(
    id="strategies",
    title="training under every strategy, on 2, 3, 4 and 8 devices, in every dtype",
    proves="under MirroredStrategy, CentralStorageStrategy, MultiWorkerMirroredStrategy and DTensor layouts the "
    "training of a Keras model matches the single-device run, and under ParameterServerStrategy no update is lost",
    minimum_devices=1,
    typical_s=360,
    run=run,
    level=Level.DEEP,
)
