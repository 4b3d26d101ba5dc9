"""Trainings under the strategies of one process: run, traced and judged in this process, or in one of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.distribute.compare import Compared, compare
from harness.distribute.dtensor_loop import DTensorLoop
from harness.distribute.equivalence import Equivalence, count_collectives, exercised_by
from harness.distribute.facts import Facts
from harness.distribute.history import History
from harness.distribute.judgement import Judgement
from harness.distribute.replay import Replay
from harness.distribute.rules import judge_collectives, judge_rows, judge_sync, judge_updates, judge_variable_devices
from harness.distribute.session import is_collective_clash
from harness.distribute.single_device import Experiment, Reference, TrainingArguments, facts_of, make_session
from harness.distribute.strategies import make_strategy
from harness.errors import HarnessError
from harness.evidence.trace import Trace
from harness.evidence.tracing import trace
from harness.judgement.error_line import error_finding, place_of_raised
from harness.judgement.placement import judge_placement
from harness.lazy import tf
from harness.records import Finding
from harness.runner.job import typed_task
from harness.runner.messages import Answer
from harness.runner.users_error import one_line, users_code
from harness.runner.worker import Send


@typed_task
def run(send: Send, training: TrainingArguments, strategy: str, spec: str) -> None:
    """Do the task of a worker process: configure the devices, and examine the training."""
    from harness.devices.runtime import configure

    devices = configure(spec)
    with users_code(training.builder.target):
        found = examine(strategy, devices, training.experiment())
    # Traces stay here: they hold the outputs of the steps, and are judged already.
    send(Answer(asdict(replace(found, traces={}))))


def examine(strategy_name: str, devices: Devices, experiment: Experiment, reduction: str = "") -> Equivalence:
    """Run a training on one device and under a strategy of one process, and judge it.

    ``reduction``: see :func:`make_strategy`.
    """
    if strategy_name.startswith("dtensor"):
        # DTensor has no strategy, and Keras 3 no fit on it.
        experiment = replace(experiment, loops=("custom",))
        strategy = None
    else:
        strategy = make_strategy(strategy_name, devices.names, reduction)
    facts = facts_of(experiment)
    judgement = Judgement(strategy_name, experiment.loops, experiment.steps)
    for loop in experiment.loops:
        reference = Reference(experiment, loop, facts)
        single, moved = reference.run(experiment.data, experiment.steps)
        traces: list[Trace] = []

        def watch(step: Callable[[], Any], traces: list[Trace] = traces) -> Any:
            traces.append(trace(step))
            return traces[0].outputs

        try:
            if strategy is None:
                found = _run_dtensor(strategy_name, devices, experiment, reference)
                single = replace(single, values={**single.values, "metric": {}})
            else:
                session = make_session(experiment, loop, strategy)
                found = session.run(reference.initial, experiment.data, experiment.steps, watch)
        except HarnessError:
            raise
        except Exception as error:
            if is_collective_clash(one_line(error)):
                raise
            judgement.add_raised(_raised(error, loop, strategy_name, devices))
            continue
        compared = compare(found, single, moved, reference.epsilon)
        rerun = None if strategy is None else partial(_agree, experiment, facts, loop, strategy)
        broken = [
            *judge_rows([found], experiment.data),
            *judge_updates(found, single),
            *judge_sync(found),
            *judge_variable_devices(found, devices.names[:1] if strategy_name == "central_storage" else devices.names),
        ]
        replay = None if strategy is None else Replay(experiment, devices, reference.initial)
        judgement.add(found, single, compared, facts, experiment.data, broken, rerun, replay)
        _measure(judgement, compared, loop)
        if traces:
            _judge_trace(judgement, traces[0], devices, found.loop, strategy_name == "mirrored" and not reduction)
    on = f"on {len(devices)} replicas"
    if devices[0].kind == "software-gpu":
        on += f", which are {devices.counted},"
    passed = f"{experiment.steps} steps {on} match the single-device run"
    return judgement.equivalence(passed, traced=strategy is not None)


def _raised(error: Exception, loop: str, strategy: str, devices: Devices) -> Finding:
    """What raises under a strategy, and runs on one device."""
    finding = error_finding(error, f"the training in the loop {loop!r}", loop, devices)
    what = finding.message.removesuffix(f" ({place_of_raised(error)})")
    if "merge_call" in what:
        what = (
            f"{type(error).__name__}: the replicas would have to exchange values inside tf.cond, tf.while_loop or a "
            "tf.function, which TensorFlow does not allow"
        )
    text = f"the training runs on one device, and raises under {strategy}: {what}"
    return replace(finding, message=text, expected="no error, as on one device")


def _run_dtensor(strategy_name: str, devices: Devices, experiment: Experiment, reference: Reference) -> History:
    session = DTensorLoop(experiment.build, tf.distribute.get_strategy(), experiment.data, name=experiment.name)
    session.lay_out(strategy_name.partition("_")[2], devices.names)
    return session.run(reference.initial, experiment.data, experiment.steps)


def _measure(judgement: Judgement, compared: Compared, loop: str) -> None:
    for comparison in compared.comparisons:
        key = f"largest_share_of_bound_{comparison.where.partition(' ')[0]}_{loop}"
        share = comparison.largest_error / comparison.bound
        judgement.measured[key] = max(judgement.measured.get(key, 0.0), share)


def _judge_trace(judgement: Judgement, seen: Trace, devices: Devices, loop: str, collectives: bool) -> None:
    judgement.traces[loop] = seen
    counts = count_collectives(seen, loop)
    judgement.collectives += counts
    judgement.findings += judge_placement(seen, devices, loop, on_host=False)
    judgement.findings += judge_collectives(counts, loop, devices, collectives)
    judgement.exercised += exercised_by(seen)


def _agree(
    experiment: Experiment, facts: Facts, loop: str, strategy: Any, changes: tuple[str, ...], steps: int
) -> bool:
    """Whether both runs agree with these changes; see ``causes.Rerun``."""
    data = experiment.data
    if "even" in changes:
        data = data.divisible(int(strategy.num_replicas_in_sync))
    own = [change for change in changes if change != "even"]
    reference = Reference(experiment, loop, facts, own)
    single, moved = reference.run(data, steps)
    found = make_session(experiment, loop, strategy, own).run(reference.initial, data, steps)
    return compare(found, single, moved, reference.epsilon).agree
