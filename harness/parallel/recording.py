"""Keeps on which device each op ran, for the gradients that a tape asks for later.

Which forward op a gradient is of follows from the op's attributes: TensorFlow hands the very tuple that the op ran with
to its gradient function. So an op's device is noted by that tuple when the op runs, or is added to a graph.

Ops are noted within ``colocate_gradients`` and in pinned parts. The gradient of a pinned op is colocated wherever it is
asked for, and its backward ops are pinned in turn, so that this holds for derivatives of every order.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, TypeAlias

from harness.parallel.places import UNCHANGED, Sums, device_of, device_of_graph_op, device_of_input

#: The attributes of an op, its device, those of its inputs, and whether it is pinned.
Note: TypeAlias = tuple[Any, str, "Sequence[str | None] | None", bool]
#: By the identity of the attributes.
notes: dict[int, Note] = {}
_NOTES_TO_SWEEP_AT = 4096
_sweep_at = _NOTES_TO_SWEEP_AT
#: Whether a tape keeps all inputs of ops of a type, as text and bytes: it goes by the type alone.
_keeps_inputs: dict[str | bytes, bool] = {}


class _Thread(threading.local):
    """What this thread plays back, whether its ops are pinned, and what it met that ran outside of the context."""

    def __init__(self) -> None:
        self.plays: list[Sums] = []
        self.pinned = False
        #: The device of the shard or stage that this thread is in the forward pass of.
        self.shard: str | None = None
        #: Whether TensorFlow colocates by itself the gradients that it is building: ``tf.gradients`` does.
        self.colocates_itself = False
        self.strangers = 0
        #: How often this thread is within the context, and whether it was the one to enter it.
        self.depth = 0
        self.entered = False


class _Runtime:
    """What is asked for at each op. It is set before an op is noted."""

    context: Any
    #: What TensorFlow's context keeps for the thread that asks.
    of_thread: Any = SimpleNamespace(op_callbacks=())
    #: Whether no tape records in this thread, or all tapes are stopped there.
    no_tape: Callable[[], bool]
    stopped: Callable[[], bool]


class Callbacks(list[Callable[..., Any]]):
    """TensorFlow's list of the callbacks of a thread that is within the context, and of its replica threads.

    ``note`` is among them while a tape records, and only then: TensorFlow calls each of them after every op.
    """

    def __init__(self, callbacks: Iterable[Callable[..., Any]]) -> None:
        super().__init__(callbacks)
        #: The threads in which a tape records, or may when it is no longer stopped.
        self._recording: set[int] = set()

    def update(self) -> None:
        """A tape was opened or closed in this thread."""
        if runtime.no_tape() and not runtime.stopped():
            self._recording.discard(threading.get_ident())
        else:
            self._recording.add(threading.get_ident())
        if self._recording and note not in self:
            self.append(note)
        elif not self._recording and note in self:
            self.remove(note)


thread = _Thread()
runtime = _Runtime()


def in_context() -> bool:
    """Whether this thread is within the context. TensorFlow hands its list of callbacks on to replica threads."""
    return type(runtime.of_thread.op_callbacks) is Callbacks


def enter() -> None:
    """Put this thread within the context."""
    callbacks = runtime.of_thread.op_callbacks = Callbacks(runtime.of_thread.op_callbacks)
    callbacks.update()


def leave() -> None:
    """Take this thread out of the context, and leave it the callbacks of others."""
    runtime.of_thread.op_callbacks = [callback for callback in runtime.of_thread.op_callbacks if callback is not note]


def update() -> None:
    """Note ops of this thread, where it is within the context, as long as something records them."""
    callbacks = runtime.of_thread.op_callbacks
    if type(callbacks) is Callbacks:
        callbacks.update()


def run_within(run: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``run`` within the context, whichever thread this is."""
    if active():
        return run(*arguments)
    enter()
    try:
        return run(*arguments)
    finally:
        leave()


def active() -> bool:
    """Whether ops of this thread are noted, and gradients that it asks for colocated."""
    return thread.pinned or in_context()


class Pinned(AbstractContextManager[None]):
    """Pins the ops of this thread: gradients of them are colocated wherever they are asked for."""

    __slots__ = ("_before", "_noting")

    def __enter__(self) -> None:
        context = runtime.context
        self._before = thread.pinned
        thread.pinned = True
        self._noting = (
            context.executing_eagerly()
            and not runtime.no_tape()
            and not in_context()
            and note_pinned not in context.op_callbacks
        )
        if self._noting:
            context.add_op_callback(note_pinned)

    def __exit__(self, *error: object) -> None:
        thread.pinned = self._before
        if self._noting:
            runtime.context.remove_op_callback(note_pinned)


def pinned_if(pinned: bool) -> AbstractContextManager[None]:
    """Pin the ops of this thread if so, and if they are not pinned yet."""
    return Pinned() if pinned and not thread.pinned else UNCHANGED


def note(op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> Any:  # noqa: ARG001
    """Note where an eager op ran. TensorFlow calls this after each; what is returned goes to the next callback."""
    if graph is not None or not attrs or not outputs:
        return outputs
    places = None if _keeps_inputs.get(op_type) else [tensor.device for tensor in inputs]
    notes[id(attrs)] = (attrs, outputs[0].device, places, thread.pinned)
    if len(notes) >= _sweep_at:
        sweep()
    return outputs


def note_pinned(*op: Any, **named: Any) -> Any:
    """As :func:`note`, for pinned parts outside of the context."""
    return note(*op, **named) if thread.pinned else op[3]


#: Callbacks that need no nodes of graphs.
eager_only: list[Callable[..., Any]] = [note, note_pinned]


def note_recorded(op_type: str, attrs: Any, inputs: Any, outputs: Any) -> None:
    """Note an op that a tape records, as in a graph."""
    # The reading of a variable is also recorded as a region, with the variable itself: see ``device_of_graph_op``.
    places = list(map(device_of if op_type == "ReadVariableOp" else device_of_input, inputs))
    # Eager tensors are met too: not every op is run by TensorFlow's fast path.
    place = outputs[0].device if hasattr(outputs[0], "numpy") else device_of_graph_op(outputs[0].op)
    notes[id(attrs)] = (attrs, place, places, thread.pinned)


def sweep() -> None:
    """Drop the notes of ops that no tape keeps any more: nobody else has their attributes."""
    global _sweep_at
    for key, noted in list(notes.items()):
        # Referred to by the note and by the argument of getrefcount.
        if sys.getrefcount(noted[0]) <= 2:
            notes.pop(key, None)
    _sweep_at = max(_NOTES_TO_SWEEP_AT, 2 * len(notes))


def place_of(noted: Note | None, op_type: str, inputs: Any, outputs: Any) -> tuple[str | None, Sequence[str | None]]:
    """The device of a forward op, ``None`` where it is unknown, and those of its inputs; ``noted`` is its note."""
    if noted is not None:
        if noted[2] is None:
            return noted[1], [getattr(tensor, "device", None) for tensor in inputs]
        if op_type not in _keeps_inputs:
            keeps = bool(inputs) and not any(tensor is None for tensor in inputs)
            _keeps_inputs[op_type] = _keeps_inputs[op_type.encode()] = keeps
        return noted[1], noted[2]
    places = [device_of(tensor) for tensor in inputs or ()]
    for tensor in outputs or ():
        if tensor is not None:
            return device_of(tensor), places
    return None, places
