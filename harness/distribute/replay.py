"""Computes on one device what a training would give if its replicas did something else, to confirm a cause.

A replica's rows are a part of the batch, as a shard's rows are in ``verify``. So the step on one device is the
reference of the same question, and the same hypotheses are tried: each edits that step, runs it, and is the cause only
if it gives the loss, the gradients and the weights of the replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from harness.devices.device import Devices
from harness.distribute.compare import Compared
from harness.distribute.facts import Facts
from harness.distribute.history import Array, History
from harness.distribute.loops import CustomLoop, share_of_loss
from harness.distribute.session import number, optimizer_slots, results_of
from harness.distribute.single_device import Experiment, make_session
from harness.distribute.training import Data, row_digests
from harness.judgement.diagnosis.diagnose import diagnose
from harness.judgement.diagnosis.observed import Piece, place_of_function
from harness.judgement.diagnosis.question import Leaf, Question
from harness.judgement.runs import Program
from harness.judgement.state import Snapshot, variables_of
from harness.judgement.tolerance import Sensitivity
from harness.lazy import tf
from harness.records import Finding


@dataclass(frozen=True)
class Case:
    """A training that diverged, the single-device run, and what the training is made of."""

    found: History
    single: History
    compared: Compared
    facts: Facts
    data: Data


@dataclass(frozen=True)
class Replay:
    """Runs the training of a case on one device. ``initial`` are the weights that its runs start from."""

    experiment: Experiment
    devices: Devices
    initial: Sequence[Any]

    def step(self, case: Case) -> Iterator[Finding]:
        """Name the cause of the first step that differs, if one of ``verify``'s gives its numbers."""
        if case.found.replicas < 2:
            return
        question = self._question(case)
        cause = diagnose(question, lambda rule: rule.by == "results") if question.wrong else None
        if cause is None:
            return
        place = cause.place or place_of_function(question.reference.fn)
        next_step = f"; {cause.next_step}" if cause.next_step else ""
        yield Finding(
            "value",
            f"step {case.compared.first_step}",
            None,
            "the loss, gradients and weights of the single-device run",
            "those of the single-device run with this change",
            _of_replicas(f"{cause.sentence}{f' ({place})' if place else ''}{next_step}"),
        )

    def _question(self, case: Case) -> Question:
        """What the first step that differs gave, beside that step on one device."""
        session = self._session()
        at = case.compared.first_step
        session.run(self.initial, case.data, at)
        x, y = case.data.batch(at)
        step = _Step(session.part)
        held = {"weight": session.weights, "slot": optimizer_slots(session.optimizer)}
        named = {
            (quantity, name): variable.value
            for quantity, variables in held.items()
            for name, variable in variables.items()
            if name in case.found.values[quantity] and name in case.single.values[quantity]
        }
        variables = [*session.model.variables, *session.optimizer.variables, *session.training.counters]
        variables += [each for metric in session.training.metrics for each in metric.variables]
        inputs = {"x": tf.constant(x), "y": tf.constant(y)}
        program = Program(step, inputs, (), gradients=False, seed=0)
        snapshot = Snapshot.of(variables_of([session.part], variables))
        question = Question(
            "eager", [], program, program, self.devices, snapshot, watched=[*named.values()], findings=()
        )
        result = question.run()
        if result is None:
            return question
        names = [*session.trainable_names]
        outputs = [("loss", "loss"), *(("gradient", names[index]) for index in step.gradients)]
        wrong = {(each.quantity, each.name): each.bound for each in case.compared.differences if each.step == at}

        def leaf(part: Any, index: int, key: tuple[str, str], text: str, expected: Any, start: Any = None) -> None:
            found = case.found.values[key[0]].get(key[1])
            if found is None or len(found) <= at or found[at].size != expected.size:
                return
            if key[0] == "loss" and case.found.loop != CustomLoop.loop:
                found = _of_steps(found, case.data)
            value = found[at].reshape(expected.shape).astype(expected.dtype)
            off = np.full(expected.shape, wrong.get(key, 0.0) / 16.0)
            question.leaves.append(
                Leaf(part, index, text, value, expected, key in wrong, lambda: Sensitivity(off, 1), start)
            )

        for index, (key, expected) in enumerate(zip(outputs, result.outputs, strict=False)):
            text = "the loss" if key[0] == "loss" else f"the gradient of {key[1]}"
            leaf("outputs", index, key, text, expected)
        for index, (key, expected) in enumerate(zip(named, result.state, strict=True)):
            start = snapshot.starts.get(id(question.watched[index]))
            leaf("state", index, key, f"{key[1]} after the call", expected, start)
        pieces = [Piece(number, 0, rows, -1, None) for number in (0, 1) for rows in self._rows(case, at) if rows]
        question.seen.pieces[:] = pieces
        return question

    def metrics(self, case: Case) -> Iterator[Finding]:
        """Name how the replicas' metrics are combined, for those that alone differ, if that gives their values."""
        reported = {"metric", "loss"} if case.found.loop != CustomLoop.loop else {"metric"}
        differences = case.compared.differences
        if not differences or {each.quantity for each in differences} > reported or case.found.replicas < 2:
            return
        session = self._session()
        by_name = {name: metric for metric in session.training.metrics for name in results_of(metric)}
        groups: dict[tuple[str, str], list[str]] = {}
        for each in differences:
            of_loss = each.quantity == "loss"
            metric = tf.keras.metrics.Mean(name="loss") if of_loss else by_name.get(each.name)
            if metric is None:
                continue
            told = self._combined(case, session, metric, each.name, case.found.values[each.quantity][each.name])
            if told is not None:
                groups.setdefault(told, []).append(each.name)
        for (why, remedy), names in groups.items():
            yield Finding(
                "value",
                f"{'metric' if len(names) == 1 else 'metrics'} {', '.join(names)}",
                None,
                "the result for the rows of all replicas, as in the single-device run",
                "the result of this combination, with correct weights, slots and gradients",
                f"{why}: the training is correct, but the reported numbers are not{f'; {remedy}' if remedy else ''}",
            )

    def _combined(
        self, case: Case, session: CustomLoop, metric: Any, name: str, found: Array
    ) -> tuple[str, str] | None:
        """How the replicas' states of a metric are combined so that its results are those found, and a remedy."""
        count, of_results = case.found.replicas, case.found.loop != CustomLoop.loop
        ways = [_Way("mean", kept_apart=True, of_results=True)] if of_results else []
        joins = ("sum", "mean", *map(str, range(count)))
        ways += [_Way(join, kept_apart, of_results=False) for kept_apart in (True, False) for join in joins]
        for way in ways:
            results, off = self._results(case, session, metric, name, way)
            if len(results) == len(found) and np.allclose(results, found, rtol=1e-5, atol=1e-7):
                return _told(way, name, off)
        return None

    def _results(
        self, case: Case, session: CustomLoop, metric: Any, result_name: str, way: _Way
    ) -> tuple[list[Array], list[str]]:
        """The metric's results of one name if its replicas are joined so, and the variables that then differ."""
        metric.reset_state()
        new = [_number(variable) for variable in metric.variables]
        states, whole = [new] * case.found.replicas, new
        results: list[Array] = []
        off: dict[str, None] = {}

        def result(state: Sequence[Any]) -> Array:
            _put(metric.variables, state)
            return np.asarray(number(results_of(metric)[result_name]), np.float64).reshape(-1)

        for at in range(len(case.found.iterations)):
            parts = [self._part(case, at, rows) for rows in self._rows(case, at)]
            states = [
                self._updated(case, session, metric, state, *part, at)
                for state, part in zip(states, parts, strict=True)
            ]
            whole = self._updated(case, session, metric, whole, *case.data.batch(at), at)
            joined = [way.join(list(values)) for values in zip(*states, strict=True)]
            for variable, one, other in zip(metric.variables, joined, whole, strict=True):
                if not np.allclose(one, other, rtol=1e-4, atol=1e-6):
                    off[str(variable.name)] = None
            results.append(way.join(list(map(result, states))) if way.of_results else result(joined))
            if not way.kept_apart:
                states = [joined] * case.found.replicas
        return results, list(off)

    def _updated(
        self, case: Case, session: CustomLoop, metric: Any, state: Sequence[Any], x: Any, y: Any, at: int
    ) -> list[Any]:
        """The metric's state after it has seen these rows with the weights of a step."""
        weights = case.single.values["weight"]
        for index, (name, variable) in enumerate(session.weights.items()):
            value = weights[name][at - 1].reshape(variable.shape) if at else self.initial[index]
            variable.assign(value)
        _put(metric.variables, state)
        if not len(x):
            return list(state)
        own = session.training.step
        if own is not None:
            own(tf.constant(x), tf.constant(y), tf.constant(case.data.rows(at)))
            return [_number(variable) for variable in metric.variables]
        predicted = session.model(x, training=True)
        if any(metric is each for each in session.training.metrics):
            metric.update_state(y, predicted)
        else:
            loss = share_of_loss(session.training.loss, tf.constant(y), predicted, len(x))
            added = [tf.cast(each, loss.dtype) for each in session.model.losses]
            metric.update_state(tf.add_n([loss, *added]), sample_weight=len(x))
        return [_number(variable) for variable in metric.variables]

    def _session(self) -> CustomLoop:
        return cast(CustomLoop, make_session(self.experiment, "custom", None))

    def _part(self, case: Case, at: int, rows: Sequence[int]) -> tuple[Any, Any]:
        x, y = case.data.batch(at)
        return x[list(rows)], y[list(rows)]

    def _rows(self, case: Case, at: int) -> list[tuple[int, ...]]:
        """Which rows of the batch of a step each replica gets: as recorded, else as TensorFlow divides a batch."""
        count, rows = case.found.replicas, case.data.rows(at)
        if at < len(case.found.rows):
            places: dict[str, list[int]] = {}
            for row, digest in enumerate(row_digests(*case.data.batch(at))):
                places.setdefault(digest, []).append(row)
            given = case.found.rows[at]
            if len(given) == count and all(digest in places for own in given for digest in own):
                return [
                    tuple(places[digest].pop(0) if len(places[digest]) > 1 else places[digest][0] for digest in own)
                    for own in given
                ]
        size = -(-rows // count)
        return [tuple(range(min(at * size, rows), min((at + 1) * size, rows))) for at in range(count)]


class _Step:
    """A step as a function of its rows: its loss, and the gradients that it returns (``gradients``: of which)."""

    def __init__(self, part: Callable[..., Any]) -> None:
        self.part = self.__wrapped__ = part
        self.gradients: list[int] = []

    def __call__(self, x: Any, y: Any) -> Any:
        loss, gradients = self.part(x, y, tf.shape(x)[0])
        known = [(index, gradient) for index, gradient in enumerate(gradients or ()) if gradient is not None]
        self.gradients = [index for index, _ in known]
        return loss, [tf.convert_to_tensor(gradient) for _, gradient in known]


def _of_steps(means: Array, data: Data) -> Array:
    """The loss of each step, of the means over the rows of all steps so far that ``fit`` reports."""
    rows = np.array([[data.rows(step)] for step in range(len(means))], np.float64)
    return np.diff(means * np.cumsum(rows, axis=0), axis=0, prepend=0.0) / rows


def _of_replicas(text: str) -> str:
    """The words of ``verify``, for replicas: what it calls a shard is the rows of one."""
    return text.replace("shard", "replica")


@dataclass(frozen=True)
class _Way:
    """A way to combine the replicas' metrics: a ``sum``, a ``mean``, or what a replica has, by its number.

    ``kept_apart``: each replica goes on from its own state. Otherwise all go on from the joined one. ``of_results``:
    not the states are combined, but the results.
    """

    name: str
    kept_apart: bool
    of_results: bool

    def join(self, values: list[Any]) -> Any:
        """What is made of the replicas' values."""
        if self.name in ("sum", "mean"):
            return sum(values) / (len(values) if self.name == "mean" else 1)
        return values[int(self.name)]


def _told(way: _Way, metric: str, off: Sequence[str]) -> tuple[str, str]:
    """Say how a metric is combined, and what to do."""
    if way.of_results:
        why = (
            f"Keras's fit reports the mean of the results that the replicas have for {metric}, each for its own rows; "
            "it is that of the batch only for means over equally many rows"
        )
        return why, "evaluate the model after the training, or compute the metric outside of fit"
    if way.name == "sum" and way.kept_apart:
        keeps = f", but {metric} keeps something else in {', '.join(off)}" if off else ""
        return (
            f"Keras adds up the replicas' states of a metric, which is right for sums and counts{keeps}",
            "keep a sum and a count in the metric's variables, and divide one by the other in result()",
        )
    outside = "compute the metric from the results of all replicas, outside of strategy.run"
    if way.name == "sum":
        why = (
            f"under this strategy, each update of {metric} adds up what the replicas have in its variables, and so "
            "counts what was there before once for each replica"
        )
        return why, outside
    what = "the mean of the replicas' states" if way.name == "mean" else f"the state of replica {way.name} alone"
    why = (
        f"under this strategy, Keras does not combine the replicas' metrics by adding up their states: {metric} is "
        f"computed from {what}"
    )
    return why, outside


def _number(variable: Any) -> Any:
    return np.asarray(variable.value)


def _put(variables: Sequence[Any], values: Sequence[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
