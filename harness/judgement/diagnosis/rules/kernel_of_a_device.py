"""An op gives something else on its device than on the others, from the same inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.devices.name import DeviceName
from harness.evidence.places import place_of_call
from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.recorded import equal
from harness.judgement.diagnosis.replays import repeats, results_of
from harness.judgement.diagnosis.rule import Rule
from harness.judgement.diagnosis.rules.graph_optimization import CannotTry, Table, fewer
from harness.judgement.tolerance import epsilon_of_name
from harness.lazy import tf
from harness.plural import plural


@dataclass(frozen=True)
class _Accused:
    """One op of the program, with its first result, the line that called it, and how often it did on this device."""

    kind: str
    inputs: tuple[Any, ...]
    attributes: tuple[Any, ...]
    device: str
    result: Array
    place: str | None
    occurrence: int

    def again(self, device: str, cast: Any = None, inputs: Sequence[Any] | None = None) -> Array:
        """Its first result on this device, with its floating inputs cast to another dtype, or from other inputs."""
        return results_of(self.kind, self.inputs if inputs is None else inputs, self.attributes, device, cast)[0]


def _claims(question: Question) -> Iterator[Cause]:
    places = list(dict.fromkeys([*question.devices.names, question.devices.host]))
    if question.unsteady or all(DeviceName.parse(name).kind == "CPU" for name in places):
        return  # logical CPUs are one processor, with one kernel for each op
    call = _first_accused(question, places)
    if call is None:
        return
    other = next(name for name in places if not equal(call.again(name), call.result))
    right = call.again(other)
    table = Table()
    for name in places:
        table.note(DeviceName.parse(name).short, lambda name=name: equal(call.again(name), right))  # type: ignore[misc]
    if call.result.dtype == np.float32:
        table.note("float64", lambda: equal(call.again(call.device, "float64"), call.again(other, "float64")))
        with _without_tf32():
            table.note("TF32 off", lambda: equal(call.again(call.device), call.again(other)))
    table.note("half of the rows at a time", lambda: equal(_in_halves(call, call.device), _in_halves(call, other)))
    try:
        joined, rows, parts = _joined(_alike(question, call))
    except CannotTry as error:
        table.untried.append(f"another number of shards ({error})")
    else:
        for count in fewer(parts):
            table.note(
                plural(count, "shard"),
                lambda count=count: all(  # type: ignore[misc]
                    equal(call.again(call.device, inputs=part), call.again(other, inputs=part))
                    for part in _split(joined, rows, count)
                ),
            )
    name = DeviceName.parse(call.device).short
    yield Cause(
        f"{call.kind} gives different results on {name} and {DeviceName.parse(other).short} from the same inputs: "
        "the device or its kernel is at fault, not the program",
        call.place,
        f"run harness validate on {name}, or use one of the settings with which the difference goes away",
        evidence=table.lines(),
    )


def _in_halves(call: _Accused, device: str) -> Array:
    first, *rest = call.inputs
    return np.concatenate([call.again(device, inputs=(half, *rest)) for half in tf.split(first, 2)])


def _alike(question: Question, accused: _Accused) -> list[tuple[Any, ...]]:
    """The inputs of the same op on each device that runs it: of the shards of one batch."""
    found: dict[str, tuple[Any, ...]] = {}
    seen: Counter[str] = Counter()

    def on_op(kind: str, inputs: Any, attributes: Any, outputs: Any, graph: Any) -> None:
        alike = graph is None and kind == accused.kind and tuple(attributes) == accused.attributes
        if alike and place_of_call() == accused.place:
            device = outputs[0].device
            seen[device] += 1
            if seen[device] == accused.occurrence:
                found[device] = tuple(inputs)

    question.in_eager_code(question.parallel, on_op)
    return list(found.values())


def _joined(shards: list[tuple[Any, ...]]) -> tuple[list[Array], list[bool], int]:
    """The inputs of an op for the rows of all shards, which of them have rows, and the number of shards."""
    if len(shards) < 2:
        raise CannotTry("the op runs on one device only")
    joined, rows = [], []
    for column in zip(*(tuple(each.numpy() for each in shard) for shard in shards), strict=True):
        first = column[0]
        same = all(equal(first, each) for each in column[1:])
        if not same and (not first.ndim or any(each.shape[1:] != first.shape[1:] for each in column)):
            raise CannotTry("the op does not work on rows of a batch")
        joined.append(first if same else np.concatenate(column))
        rows.append(not same)
    if len({len(each) for each, has in zip(joined, rows, strict=True) if has}) != 1:
        raise CannotTry("the op does not work on rows of a batch")
    return joined, rows, len(shards)


def _split(inputs: list[Array], rows: list[bool], shards: int) -> list[tuple[Array, ...]]:
    columns = (np.array_split(each, shards) if has else [each] * shards for each, has in zip(inputs, rows, strict=True))
    return list(zip(*columns, strict=True))


@contextmanager
def _without_tf32() -> Iterator[None]:
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def _first_accused(question: Question, places: list[str]) -> _Accused | None:
    """The first op of an eager run of the program that gives something else on another device."""
    accused: list[_Accused] = []
    seen: Counter[tuple[Any, ...]] = Counter()
    busy = False

    def on_op(kind: str, inputs: Any, attributes: Any, outputs: Any, graph: Any) -> None:
        nonlocal busy
        if busy or accused or graph is not None or not outputs or not repeats(kind):
            return
        if (
            not inputs
            or any(each.dtype.name in ("resource", "string", "variant") for each in inputs)
            or not epsilon_of_name(outputs[0].dtype.name)
        ):
            return
        device, place = outputs[0].device, place_of_call()
        key = (kind, place, device, str(attributes))
        seen[key] += 1
        call = _Accused(kind, tuple(inputs), tuple(attributes), device, outputs[0].numpy(), place, seen[key])
        others = [name for name in places if name != device]
        busy = True
        try:
            if not equal(call.again(others[0]), call.result):
                # The device is at fault with which most of the others disagree.
                agree = sum(equal(call.again(name), call.result) for name in others)
                accused.extend([call] if 2 * agree < len(others) else [])
        except (tf.errors.OpError, TypeError, ValueError, KeyError, AttributeError):
            pass  # an op that the other device, or Python, does not have
        finally:
            busy = False

    question.in_eager_code(question.parallel, on_op)
    return accused[0] if accused else None


RULE = Rule("C502", "kernel-of-a-device", "an op that one device computes wrongly", _claims, by="platform")
