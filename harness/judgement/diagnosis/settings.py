"""Differences that TensorFlow or a device makes, not the program: which settings make them go away, and which do not.

An op is accused where the same op, run again with the inputs that it had, gives something else on another device. A
graph is accused where eager code gives the right results, and the graph does too once TensorFlow leaves it as written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.devices.name import DeviceName
from harness.evidence.places import place_of_call
from harness.judgement.diagnosis.place import place_of_function
from harness.judgement.diagnosis.question import Array, Cause, Question
from harness.judgement.diagnosis.recorded import equal
from harness.judgement.diagnosis.replays import repeats, results_of
from harness.judgement.diagnosis.wording import listed
from harness.judgement.runs import Mode, Program, Result, as_result
from harness.judgement.tolerance import epsilon_of_name
from harness.lazy import tf
from harness.plural import plural

#: TensorFlow's optimizers of graphs that are on by default and may change what is computed.
_OPTIMIZERS = ("arithmetic_optimization", "remapping", "layout_optimizer", "constant_folding", "loop_optimization")
#: What is fixed once TensorFlow has started, with what to set before.
_AT_START = (
    "oneDNN off (start the program with TF_ENABLE_ONEDNN_OPTS=0)",
    "deterministic ops (start the program with TF_DETERMINISTIC_OPS=1)",
)


class _CannotTry(Exception):
    """Why a setting cannot be tried."""


@dataclass
class Table:
    """What makes the difference go away, what does not, and what could not be tried here."""

    gone: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)

    def note(self, setting: str, right: Callable[[], bool]) -> bool:
        """Try a setting: whether the results are right with it."""
        try:
            found = right()
        except Exception as error:  # noqa: BLE001 - not every op has a kernel for every setting: the table says so
            why = str(error) if isinstance(error, _CannotTry) else type(error).__name__
            self.untried.append(f"{setting} ({why})")
            return False
        (self.gone if found else self.remains).append(setting)
        return found

    def lines(self) -> tuple[str, ...]:
        """The table, a line for each kind of setting."""
        rows = (
            ("the difference goes away with", self.gone),
            ("the difference stays with", self.remains),
            ("not tried", [*self.untried, *_AT_START]),
        )
        return tuple(f"{title}: {', '.join(names)}" for title, names in rows if names)


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


def on_a_device(question: Question) -> Iterator[Cause]:
    """An op gives something else on its device than on the others, from the same inputs."""
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
    except _CannotTry as error:
        table.untried.append(f"another number of shards ({error})")
    else:
        for count in _fewer(parts):
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


def _fewer(shards: int) -> list[int]:
    """The numbers of shards that are tried instead of this one: 1, 2, 4 and so on."""
    return [2**power for power in range((shards - 1).bit_length())]


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
        raise _CannotTry("the op runs on one device only")
    joined, rows = [], []
    for column in zip(*(tuple(each.numpy() for each in shard) for shard in shards), strict=True):
        first = column[0]
        same = all(equal(first, each) for each in column[1:])
        if not same and (not first.ndim or any(each.shape[1:] != first.shape[1:] for each in column)):
            raise _CannotTry("the op does not work on rows of a batch")
        joined.append(first if same else np.concatenate(column))
        rows.append(not same)
    if len({len(each) for each, has in zip(joined, rows, strict=True) if has}) != 1:
        raise _CannotTry("the op does not work on rows of a batch")
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


def in_a_graph(question: Question) -> Iterator[Cause]:
    """The results are right in eager code, and in a graph that TensorFlow runs as it was written."""
    if question.unsteady or not _right_line_by_line(question):
        return
    table = Table(gone=["eager code"])
    with _options(disable_meta_optimizer=True):
        if not table.note("graph optimization off", lambda: _right(question, _run(question, question.mode))):
            yield from _kept_by_a_trace(question)
            return
    guilty = ""
    for name in _OPTIMIZERS:
        with _options(**{name: False}):
            if table.note(f"{name} off", lambda: _right(question, _run(question, question.mode))):
                guilty = guilty or name
    compiled = replace(question.parallel, fn=tf.function(question.parallel.fn, jit_compile=True))
    table.note("XLA (jit_compile=True)", lambda: _right(question, _run(question, "graph", compiled)))
    fewer = _fewer(len(question.devices))
    if fewer and question.maker is None:
        table.untried.append(
            "another number of shards (needs a program made by make_parallel, or a function as shrink=)"
        )
    else:
        for count in fewer:
            table.note(
                plural(count, "shard"),
                lambda count=count: _right_on(question, count),  # type: ignore[misc]
            )
    wrong = tuple(question.wrong)
    yield Cause(
        f"{listed([leaf.name for leaf in wrong[:4]])} {'is' if len(wrong) == 1 else 'are'} right in eager code and in "
        f"the graph as written: TensorFlow's graph optimization{f' ({guilty})' if guilty else ''} changes the result",
        None,
        "switch this optimization off: tf.config.optimizer.set_experimental_options("
        f"{{{(guilty or 'disable_meta_optimizer')!r}: {not guilty}}})",
        evidence=table.lines(),
    )


def _kept_by_a_trace(question: Question) -> Iterator[Cause]:
    """The results are right where a ``tf.function`` is traced anew: its trace has kept what Python had before."""
    called: dict[int, Any] = {}

    def run(anew: Collection[int] | None) -> bool:
        def call(original: Callable[..., Any], function: Any, *given: Any, **named: Any) -> Any:
            called.setdefault(id(function), function)
            fresh = anew is None or id(function) in anew
            return original(tf.function(function.python_function) if fresh else function, *given, **named)

        with _calls(call):
            return _right(question, _run(question, question.mode))

    # As it is, once more: only what a new trace changes is its fault.
    if not run(None) or run(()):
        return
    for key, function in list(called.items()):
        if run((key,)):
            place = place_of_function(function.python_function)
            at = f" {name}" if (name := getattr(function.python_function, "__name__", "")) else ""
            yield Cause(
                f"{listed([leaf.name for leaf in question.wrong[:4]])} {'is' if len(question.wrong) == 1 else 'are'} "
                f"right where the tf.function{at} is traced anew: its trace keeps a Python value from an earlier trace",
                place,
                "give the value to the function as an argument, or keep it in a tf.Variable",
                final=True,
            )
            return


@contextmanager
def _calls(call: Callable[..., Any]) -> Iterator[None]:
    """Have ``call(original, function, ...)`` make each call of a ``tf.function`` in the body."""
    owner = type(tf.function(lambda: None))
    original = owner.__call__
    owner.__call__ = lambda self, *given, **named: call(original, self, *given, **named)
    try:
        yield
    finally:
        owner.__call__ = original


def _right_line_by_line(question: Question) -> bool:
    """Whether what differs is the reference's where no graph is made, also not of a ``tf.function`` in the program."""
    if all(replace(leaf, wrong=False).explained_by(leaf.expected) for leaf in question.wrong):
        return False  # it is wrong by its dtype, say, which this comparison cannot tell
    if any(leaf.part == "gradients" for leaf in question.wrong):
        return question.mode != "eager" and _right(question, _run(question, "eager"))
    return question.line_by_line is not None and _right(question, question.line_by_line)


def _right_on(question: Question, shards: int) -> bool:
    """Whether the results are right where the program is made for fewer devices."""
    assert question.maker is not None
    made = replace(question.parallel, fn=question.maker(question.devices[:shards]))
    result = _run(question, question.mode, made)
    if any(_shape(leaf.of(result)) != _shape(leaf.expected) for leaf in question.wrong):
        raise _CannotTry("the results' shapes depend on the number of shards")
    return _right(question, result)


def _shape(array: Array | None) -> tuple[int, ...] | None:
    return None if array is None else array.shape


def _run(question: Question, mode: Mode, other: Program | None = None) -> Result:
    program = replace(other or question.parallel, _graphs={})
    with question.from_start():
        return as_result(program.runner(mode)(*program.arguments(mode)), question.watched)


def _right(question: Question, result: Result) -> bool:
    """Whether what differs is the reference's in this run."""
    return all(replace(leaf, found=leaf.of(result), wrong=False).explained_by(leaf.expected) for leaf in question.wrong)


@contextmanager
def _options(**options: bool) -> Iterator[None]:
    """Set options of TensorFlow's graph optimization in the body."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options(options)
    try:
        yield
    finally:
        # All of these are on by default, and what disables everything is not set.
        usual = {name: name != "disable_meta_optimizer" for name in options}
        tf.config.optimizer.set_experimental_options({**usual, **{n: before[n] for n in options if n in before}})
