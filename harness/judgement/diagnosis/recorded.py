"""The ops of an eager run, each with the lines that led to it, what it read and what it made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import numpy as np

from harness._tensorflow import interface, op_callback
from harness.devices.name import DeviceName
from harness.evidence.arithmetic import MOVEMENT
from harness.evidence.places import places_of_call
from harness.judgement.diagnosis.observed import WRITES, eager_functions, layer_of_call
from harness.judgement.diagnosis.question import Array, Question
from harness.judgement.runs import Program
from harness.judgement.tolerance import epsilon_of
from harness.judgement.values import wide
from harness.parallel.wrappers import stay_installed

#: Look-ups in a hash table: what they give depends on what the table has.
TABLES = frozenset({"LookupTableFindV2", "LookupTableFind"})
#: Ops that only move data.
MOVES = (MOVEMENT - TABLES) | {
    *("Transpose", "ConjugateTranspose", "GatherV2", "GatherNd", "ReverseV2", "Roll", "Tile", "Where"),
    *("DynamicPartition", "DynamicStitch", "ParallelDynamicStitch"),
}
#: What both programs start from.
GIVEN = frozenset({"Const", "ReadVariableOp", "VarHandleOp"})
#: What TensorFlow calls a traced function.
_FUNCTION = re.compile(r"^__(?:inference|forward)_(.+)_\d+$")
#: Of larger programs, the first results alone are kept.
_MOST_BYTES = 2**27
#: Larger constants are not compared.
_MOST_ELEMENTS = 2**12
#: Units in the last place, of the largest element, by which equal results may differ.
_ULPS = 256.0
#: Numbers from here on may be those of a mask, if the others are smaller by this factor.
_MASK, _FAR = 1e6, 1e4
#: So many elements are compared first.
_SAMPLE = 64


@dataclass(frozen=True, eq=False)
class Step:
    """One op. ``places`` are the lines of the user's program that led to it, the innermost first.

    ``inputs`` and ``outputs`` are the ids of tensors; ``results`` the values of the outputs: of numbers and booleans,
    as far as there was room. ``constants`` are inputs that no op made, by their number, and ``attributes`` what else
    says what the op does; ``given`` are all of these, names and values in turn. ``layer`` is the Keras layer that runs
    it. Of a backward op, ``gradient_of`` is the type of the forward op, and ``places``, ``device`` and ``layer`` are
    its.
    """

    kind: str
    places: tuple[str, ...]
    device: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    results: tuple[Array | None, ...]
    gradient_of: str = ""
    constants: Mapping[int, Array] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    layer: str | None = None
    given: tuple[Any, ...] = ()

    @property
    def place(self) -> str | None:
        """The innermost line."""
        return self.places[0] if self.places else None

    @property
    def on(self) -> str:
        """The short name of its device; empty where it has none."""
        return DeviceName.parse(self.device).short if self.device else ""

    @property
    def first(self) -> Array | None:
        """The first result, where it has one of numbers or booleans."""
        return self.results[0] if self.results else None

    @property
    def result(self) -> Array | None:
        """The first result, where it is a floating one."""
        return self.first if self.first is not None and epsilon_of(self.first.dtype) else None

    def gave(self, results: Sequence[Array]) -> bool:
        """Whether these are its results, but for rounding."""
        return len(results) == len(self.results) and all(map(equal, results, self.results))

    @property
    def computes(self) -> bool:
        """Whether it makes floating numbers from others."""
        return self.kind not in MOVEMENT | GIVEN and self.result is not None


class Recording(list[Step]):
    """The ops of a run, in order.

    ``played`` are the results whose gradient a tape asked for, by the tensors' ids; ``watched`` what a tape watched
    when an op read it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.played: set[int] = set()
        self.watched: set[int] = set()
        self._room = _MOST_BYTES
        self._made: set[int] = set()
        self._by_attributes: dict[int, tuple[Any, Step]] = {}
        #: Of each gradient being computed: the type, lines, device and layer of its forward op, and how many lines led
        #: to it.
        self._gradients: list[tuple[str, tuple[str, ...], str, str | None, int]] = []

    def on_op(self, kind: str, inputs: Any, attributes: Any, outputs: Any, graph: Any) -> None:
        """Note an op that ran."""
        if graph is not None or not all(hasattr(each, "_id") for each in (*inputs, *outputs)):
            return
        on_a_tape = interface().pywrap.TFE_Py_TapeSetShouldRecordBackprop
        self.watched.update(each._id for each in inputs if on_a_tape([each]))
        names = tuple(each._id for each in inputs), tuple(each._id for each in outputs)
        places, forward, layer = places_of_call(None), "", layer_of_call()
        device = outputs[0].device if outputs else ""
        if self._gradients:
            # A gradient function of the user's has lines of its own.
            forward, lines, beside, layer, outer = self._gradients[-1]
            device = beside or device
            places = (*places[: len(places) - outer], *lines) if len(places) > outer else lines
        step = Step(
            kind=_FUNCTION.sub(r"tf.function \1", kind),
            places=places,
            device=device,
            inputs=names[0],
            outputs=names[1],
            results=tuple(map(self._value, outputs)),
            gradient_of=forward,
            constants={
                number: np.asarray(each.numpy()) for number, each in enumerate(inputs) if self._is_constant(each)
            },
            attributes=_plain(attributes or ()),
            layer=layer,
            given=tuple(attributes or ()),
        )
        self._made.update(step.outputs)
        self.append(step)
        if attributes:
            self._by_attributes[id(attributes)] = attributes, step

    def _is_constant(self, tensor: Any) -> bool:
        known = tensor._id in self._made or tensor.dtype.name in ("resource", "string", "variant")
        return not known and bool(tensor.shape.num_elements() <= _MOST_ELEMENTS)

    def _value(self, tensor: Any) -> Array | None:
        if self._room < 0 or tensor.dtype.name in ("resource", "string", "variant"):
            return None
        array = np.asarray(tensor.numpy())
        self._room -= array.nbytes
        return array

    def on_gradient(self, kind: str, attributes: Any, run: Callable[[], Any]) -> Any:
        """Note whose gradient the ops are that ``run`` runs."""
        _, step = self._by_attributes.get(id(attributes), (None, None))
        if step is None:
            return self._within(kind, (), "", None, run)
        self.played.update(step.outputs)
        return self._within(kind, step.places, step.device, step.layer, run)

    def on_region(self, name: str, inputs: Any, outputs: Any) -> Callable[[Callable[[], Any]], Any]:
        """Note the same for a custom gradient, or another region with its own backward function."""
        given = {each._id for each in inputs if hasattr(each, "_id")}
        made = [each._id for each in outputs if hasattr(each, "_id")]
        places, layer = places_of_call(None), layer_of_call()
        device = next((each.device or "" for each in outputs), "")

        def backward(run: Callable[[], Any]) -> Any:
            self._play(given, made)
            return self._within(_FUNCTION.sub(r"\1", name), places, device, layer, run)

        return backward

    def _within(
        self, kind: str, places: tuple[str, ...], device: str, layer: str | None, run: Callable[[], Any]
    ) -> Any:
        self._gradients.append((kind, places, device, layer, len(places_of_call(None))))
        try:
            return run()
        finally:
            self._gradients.pop()

    def _play(self, inputs: set[int], outputs: list[int]) -> None:
        makers = {name: step for step in self for name in step.outputs}
        waiting = [name for name in outputs if name not in inputs]
        while waiting:
            step = makers.get(waiting.pop())
            if step is not None and not self.played.issuperset(step.outputs):
                self.played.update(step.outputs)
                waiting += [name for name in step.inputs if name not in inputs]


def _plain(attributes: Sequence[Any]) -> dict[str, Any]:
    """The attributes of an eager op, given as names and values in turn, that are numbers or texts."""
    pairs = zip(attributes[::2], attributes[1::2], strict=False)
    return {str(name): value for name, value in pairs if isinstance(value, (bool, int, float, str, bytes, list))}


@contextmanager
def _gradients_seen(recorded: Recording) -> Iterator[None]:
    """Tell ``recorded`` of the gradients in the body: of each op, and of regions with their own backward functions.

    And of functions of NumPy's.
    """
    private = interface()
    gradient, record = private.backprop._gradient_function, private.record.record_operation

    def gradient_of(op_type: Any, attributes: Any, *rest: Any) -> Any:
        kind = op_type if isinstance(op_type, str) else op_type.decode()
        return recorded.on_gradient(kind, attributes, lambda: gradient(op_type, attributes, *rest))

    @wraps(record)
    def region(op_type: Any, outputs: Any, inputs: Any, backward: Any, *rest: Any, **named: Any) -> None:
        around = recorded.on_region(str(op_type), inputs, outputs)
        record(op_type, outputs, inputs, lambda *grads: around(lambda: backward(*grads)), *rest, **named)

    host = private.script_ops.py_func_common

    @wraps(host)
    def on_the_host(func: Any, inp: Any, *rest: Any, **named: Any) -> Any:
        # Eager code calls the function itself, without an op.
        inputs = [private.ops.convert_to_tensor(each) for each in inp]
        made = host(func, inputs, *rest, **named)
        outputs = [each for each in (made if isinstance(made, list) else [made]) if each is not None]
        recorded.on_op("numpy_function", inputs, ("function", getattr(func, "__name__", "")), outputs, None)
        return made

    private.pywrap.TFE_Py_RegisterGradientFunction(gradient_of)
    private.record.record_operation, private.script_ops.py_func_common = region, on_the_host
    try:
        yield
    finally:
        private.script_ops.py_func_common = host
        private.record.record_operation = record
        private.pywrap.TFE_Py_RegisterGradientFunction(private.backprop._gradient_function)


@contextmanager
def recording() -> Iterator[Recording]:
    """Record the eager ops of the body."""
    recorded = Recording()
    # Installed within the body, they would be lost with what is put in place here.
    stay_installed()
    with eager_functions(), op_callback(recorded.on_op), _gradients_seen(recorded):
        yield recorded


def run_recorded(question: Question, program: Program, *, gradients: bool = False) -> tuple[Recording, Any, Any]:
    """The ops of a run from the state before the call, and the outputs and gradients that it returned."""
    plain = replace(program, gradients=gradients, _graphs={})
    with question.from_start(), recording() as steps:
        outputs, found = plain.step(*plain.leaves())
    return steps, outputs, found


def named(step: Step) -> str:
    """Its type and its line."""
    return f"{titled(step)} ({step.place})" if step.place else titled(step)


def titled(step: Step) -> str:
    """Its type; of a backward op also that of the forward op; and its layer."""
    of = f" in the gradient of {step.gradient_of}" if step.gradient_of else ""
    return f"{step.kind}{of}{f' in layer {step.layer}' if step.layer else ''}"


def is_write(kind: str) -> bool:
    """Whether an op of this type writes to a variable."""
    return kind.startswith(WRITES)


def writes_to(handle: int | None, steps: Iterable[Step]) -> list[Step]:
    """The steps that write to a variable."""
    return [step for step in steps if is_write(step.kind) and step.inputs[0] == handle]


def steps_of(question: Question, program: Program) -> list[Step]:
    """The ops of such a run."""
    return run_recorded(question, program)[0]


def equal(one: Array | None, other: Array | None) -> bool:
    """Whether two results are known and the same: floating numbers but for rounding, all others exactly."""
    if one is None or other is None or one.shape != other.shape or numbers_of(one) != numbers_of(other):
        return False
    return _alike(one, other) and bool(np.all(close(one, other)))


def numbers_of(array: Array) -> np.dtype:
    """The dtype of an array; of all whole numbers the same one, as indices may have any number of bits."""
    return np.dtype(np.int64) if array.dtype.kind in "iu" else array.dtype


def close(one: Array, other: Array, off: float | None = None) -> Any:
    """The same for each element of two arrays of one dtype that broadcast; ``off`` is the slack of ``other``."""
    if not epsilon_of(one.dtype):
        return one == other
    off = slack(other) if off is None else off
    have, want = wide(one), wide(other)
    alike = np.isclose(have, want, rtol=0.0, atol=off, equal_nan=True)
    if _largest(other) < _MASK:
        return alike
    return alike | np.isclose(have, want, rtol=_ULPS * epsilon_of(one.dtype), atol=0.0)


def slack(array: Array) -> float:
    """By how much an element may differ from one of this array and be the same; 0 if there are no floating numbers."""
    epsilon = epsilon_of(array.dtype)
    if not epsilon:
        return 0.0
    most = _largest(array)
    if most >= _MASK:
        # Beside the numbers of a mask, such as -1e9, all others would be equal.
        sizes = np.abs(array)
        most = float(np.max(sizes, initial=0.0, where=sizes < most / _FAR)) or most
    return _ULPS * epsilon * most


def ulps_of(array: Array) -> float:
    """By which share of itself an element may differ and be the same."""
    return _ULPS * epsilon_of(array.dtype)


def _largest(array: Array) -> float:
    return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))


def may_be_close(one: Array, other: Array, off: float) -> Any:
    """Whether elements may be close: quick, and true for some that are not, such as all that are not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        return ~(np.abs(one - other) > off + (_ULPS * epsilon_of(one.dtype) * np.abs(other) if off else 0.0))


def _alike(one: Array, other: Array) -> bool:
    """Whether some elements of two arrays of one shape and dtype are close: most arrays differ in these already."""
    if one.size <= _SAMPLE or one.dtype.kind == "b":
        return True
    step = one.size // _SAMPLE
    have, want = one.reshape(-1)[::step], other.reshape(-1)[::step]
    return any(np.all(may_be_close(have, want, slack(array))) for array in (want, other))


def is_common(array: Array) -> bool:
    """Whether rows are equal by chance: those of whole numbers, and those of at most two different numbers."""
    if array.dtype.kind in "iu":
        return True
    number = epsilon_of(array.dtype) and not np.iscomplexobj(array)
    return bool(number and array.size and np.all((array == np.min(array)) | (array == np.max(array))))
