"""What a program does with its batch, its variables and random numbers, seen in one eager run, and by which lines."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness._tensorflow import op_callback
from harness.evidence.places import in_users, module_of, place, place_of_call
from harness.judgement.diagnosis.wording import listed
from harness.judgement.tolerance import epsilon_of_name
from harness.lazy import tf
from harness.parallel.closure import keras_classes

_CUTS = frozenset({"Split", "SplitV", "StridedSlice", "Slice", "Unpack", "GatherV2", "GatherNd", "ReverseV2", "Roll"})
_DRAWS = ("Random", "TruncatedNormal", "Multinomial", "CandidateSampler", "RngReadAndSkip", "StatelessShuffle")
#: Ops that write to a variable begin with these.
WRITES = ("Assign", "ResourceStridedSliceAssign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")
#: Rows of larger inputs are not looked for.
_MOST_BYTES = 2**26
#: What leads from a wrapper, a partial function or a callable object to the function that it calls.
_WRAPS = ("python_function", "func", "__wrapped__", "fn", "__call__")
#: How many wrappers in a row are seen through.
_FAR = 8


@dataclass(frozen=True)
class Piece:
    """A part of an input: which ``rows`` (indices along ``axis``) of input leaf ``leaf``, and where it was cut."""

    leaf: int
    axis: int
    rows: tuple[int, ...]
    #: The id of the tensor that it was cut from.
    source: int
    place: str | None


@dataclass
class Observed:
    """What was seen."""

    pieces: list[Piece] = field(default_factory=list)
    #: How often each variable, by the id of its handle, was written to, and where last.
    writes: Counter[int] = field(default_factory=Counter)
    write_places: dict[int, str | None] = field(default_factory=dict)
    #: The op types that draw random numbers, each with the Keras layer and the place that asked for it, and how often.
    random: Counter[tuple[str, str | None, str | None]] = field(default_factory=Counter)
    #: Casts to a coarser dtype: the dtypes from and to, with their places.
    coarser: dict[tuple[str, str], str | None] = field(default_factory=dict)
    #: Where the ops stand that made each output.
    output_places: list[str | None] = field(default_factory=list)
    #: Whether a gradient is stopped somewhere, and where.
    stopped: list[str | None] = field(default_factory=list)
    host_calls: list[str | None] = field(default_factory=list)
    #: The random numbers that were drawn, in order.
    drawn: list[NDArray[Any]] = field(default_factory=list)
    #: The handles of the variables that are read.
    read: set[int] = field(default_factory=set)
    #: How many ops ran, or were put into a graph.
    ops: int = 0
    error: str = ""


def draws_numbers(kind: str) -> bool:
    """Whether an op of this type draws random numbers."""
    return any(word in kind for word in _DRAWS) and kind not in (
        "StatelessRandomGetKeyCounter",
        "StatelessRandomGetAlg",
    )


@contextmanager
def eager_functions() -> Iterator[None]:
    """Have ``tf.function`` run its Python line by line in the body."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*run_functions_eagerly.*")
            yield
    finally:
        tf.config.run_functions_eagerly(before)


def observe(run: Callable[[], Any], leaves: Sequence[Any]) -> tuple[Observed, Any]:
    """Run a program once, whose inputs are ``leaves``: what it does and what it returns, ``None`` where it raises."""
    watcher = _Watcher(leaves)
    seen = watcher.seen
    with eager_functions(), op_callback(watcher.on_op):
        try:
            made = run()
        except Exception as error:  # noqa: BLE001 - the program may raise anything; what was seen until then counts
            seen.error = f"{type(error).__name__}: {error}"
            return seen, None
    seen.output_places = [
        watcher.places.get(getattr(leaf, "_id", -1)) for leaf in tf.nest.flatten(made[0], expand_composites=False)
    ]
    return seen, made


class _Watcher:
    def __init__(self, leaves: Sequence[Any]) -> None:
        self.seen = Observed()
        self.inputs = [
            (index, array)
            for index, leaf in enumerate(leaves)
            if (array := _array(leaf)) is not None and array.ndim and array.size and array.nbytes < _MOST_BYTES
        ]
        #: Which input a tensor is, or was cut from: others may have rows of the same numbers, as labels do.
        self.origin = {leaf._id: index for index, leaf in enumerate(leaves) if hasattr(leaf, "_id")}
        self.indices: dict[tuple[int, int], dict[bytes, list[int]]] = {}
        self.after: dict[tuple[int, int], int] = {}
        self.places: dict[int, str | None] = {}
        self.busy = False

    def on_op(self, kind: str, inputs: Any, _: Any, outputs: Any, graph: Any) -> None:
        self.seen.ops += 1
        if self.busy or graph is not None:
            return
        self.busy = True
        try:
            self.note(kind, inputs, outputs)
        finally:
            self.busy = False

    def note(self, kind: str, inputs: Any, outputs: Any) -> None:
        seen = self.seen
        place = place_of_call()
        for tensor in outputs:
            self.places[tensor._id] = place
        if kind in _CUTS:
            for tensor in outputs:
                self.cut(tensor, inputs, place)
        elif draws_numbers(kind):
            seen.random[kind, layer_of_call(), place] += 1
            if kind != "RngReadAndSkip" and (array := _array(outputs[0])) is not None and array.nbytes < _MOST_BYTES:
                seen.drawn.append(array)
        elif kind.startswith(WRITES):
            seen.writes[inputs[0]._id] += 1
            seen.write_places[inputs[0]._id] = place
        elif kind == "ReadVariableOp":
            seen.read.add(inputs[0]._id)
            # What is read was made where it was written last.
            self.places[outputs[0]._id] = seen.write_places.get(inputs[0]._id) or place
        elif kind in ("StopGradient", "PreventGradient"):
            seen.stopped.append(place)
        elif kind in ("PyFunc", "EagerPyFunc", "PyFuncStateless"):
            seen.host_calls.append(place)
        elif kind == "Cast" and outputs:
            before, after = inputs[0].dtype.name, outputs[0].dtype.name
            if epsilon_of_name(after) > epsilon_of_name(before) > 0.0:
                seen.coarser.setdefault((before, after), place)

    def cut(self, tensor: Any, inputs: Any, place: str | None) -> None:
        owners = {self.origin[each._id] for each in inputs if getattr(each, "_id", None) in self.origin}
        for index, array in self.inputs:
            if tensor.dtype.as_numpy_dtype != array.dtype or (owners and index not in owners):
                continue
            shape = tuple(tensor.shape)
            for axis in range(array.ndim):
                unpacked = axis == 0 and shape == array.shape[1:]
                with_all_rows = (*shape[:axis], array.shape[axis], *shape[axis + 1 :])
                if not unpacked and (len(shape) != array.ndim or with_all_rows != array.shape):
                    continue
                value = tensor.numpy()
                rows = self.rows(index, axis, value[np.newaxis] if unpacked else value)
                if rows is not None:
                    self.seen.pieces.append(Piece(index, axis, rows, inputs[0]._id, place))
                    self.origin[tensor._id] = index

    def rows(self, index: int, axis: int, value: NDArray[Any]) -> tuple[int, ...] | None:
        """Which rows of the input these are; of equal ones, those that follow the piece before."""
        array = dict(self.inputs)[index]
        if (index, axis) not in self.indices:
            table: dict[bytes, list[int]] = {}
            for number, row in enumerate(np.moveaxis(array, axis, 0)):
                table.setdefault(row.tobytes(), []).append(number)
            self.indices[index, axis] = table
        table = self.indices[index, axis]
        found: list[int] = []
        wanted = self.after.get((index, axis), 0)
        for row in np.moveaxis(value, axis, 0):
            candidates = table.get(np.ascontiguousarray(row).tobytes())
            if candidates is None:
                return None
            follow = found[-1] + 1 if found else wanted
            found.append(follow if follow in candidates else candidates[0])
        self.after[index, axis] = found[-1] + 1 if found else wanted
        return tuple(found)


def _array(leaf: Any) -> NDArray[Any] | None:
    shape = getattr(leaf, "shape", None)
    if shape is None or not hasattr(leaf, "numpy") or not hasattr(leaf, "dtype"):
        return None
    array = leaf.numpy()
    return array if isinstance(array, np.ndarray) and array.dtype != object else None


def draws(seen: Observed) -> str:
    """The random ops that ran, with their layers and places; empty where none did."""
    texts = [
        f"{op}{f' in layer {layer}' if layer else ''}{f' ({place})' if place else ''}"
        for op, layer, place in list(seen.random)[:3]
    ]
    return listed(texts) if texts else ""


def place_of_function(fn: object) -> str | None:
    """``file.py:12`` where a function, or the class of a callable object, is defined; ``None`` for one of a library."""
    for _ in range(_FAR):
        code = getattr(fn, "__code__", None)
        # A decorator gives its wrapper the module of what it wraps: the file says whose code it is.
        if code is not None and in_users(module_of(code.co_filename) or str(fn.__module__), code.co_filename):
            return place(code.co_filename, code.co_firstlineno)
        fn = next((inner for name in _WRAPS if (inner := getattr(fn, name, None)) is not None), None)
    return None


def layer_of_call() -> str | None:
    """The name of the innermost Keras layer that is being called, or ``None``."""
    layers = keras_classes("layers.Layer")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and layers:
        # Only of these frames the local names are asked for, which takes long.
        if frame.f_code.co_name in ("__call__", "call") and isinstance(owner := frame.f_locals.get("self"), layers):
            return str(getattr(owner, "name", ""))
        frame = frame.f_back
    return None


def place_of_error(error: BaseException) -> str | None:
    """``file.py:12`` of the innermost frame of the user's program through which ``error`` came, or ``None``."""
    step: TracebackType | None = error.__traceback__
    found = None
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if in_users(str(step.tb_frame.f_globals.get("__name__", "")), file):
            found = place(file, step.tb_lineno)
        step = step.tb_next
    return found
