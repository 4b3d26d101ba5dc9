"""Enters the device of a forward op, and keeps which tensor each gradient of a tape belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

from harness._tensorflow import interface


def device_of(tensor: Any) -> str | None:
    """The device of the op that made ``tensor``: full in eager code, as written in a graph, ``""`` without any."""
    device = getattr(tensor, "device", None)
    return device or ("" if hasattr(tensor, "op") and not hasattr(tensor, "numpy") else None)


def device_of_graph_op(op: Any) -> str:
    """The device of an op of a graph; where it works on a variable, that of the variable, whatever was requested.

    The reading of a variable has no backward op, and there are too many of them to look each up.
    """
    inputs: Any = op.inputs if op.type != "ReadVariableOp" else ()
    if len(inputs) and inputs[0].dtype.name == "resource":
        return device_of_argument(inputs[0].op) or str(op.device)
    return str(op.device)


def device_of_argument(op: Any) -> str:
    """The device of an op of a function, or of what the function was given in its place, such as a variable."""
    while op.type == "Placeholder":
        given = [outside for outside, inside in getattr(op.graph, "captures", ()) if inside.op is op]
        if not given:
            break
        if hasattr(given[0], "numpy"):
            return "" if _is_argument(given[0], op.graph) else given[0].device or ""
        op = given[0].op
    return str(op.device)


def device_of_input(tensor: Any) -> str | None:
    """As :func:`device_of`; of an argument of a function, where the caller has it, whatever scope first read it."""
    if hasattr(tensor, "numpy"):
        return "" if _is_argument(tensor, interface().ops.get_default_graph()) else device_of(tensor)
    op = getattr(tensor, "op", None)
    return device_of(tensor) if op is None or op.type != "Placeholder" else device_of_argument(op)


def _is_argument(tensor: Any, graph: Any) -> bool:
    """Whether it is a variable that is passed to the function that is being traced, or to one around that.

    One trace serves all such variables, wherever they are. So the choice is left to TensorFlow, which takes the device
    of the call. While a function is traced, they are its inputs themselves; later, placeholders are.
    """
    while graph is not None and tensor.dtype.name == "resource":
        if any(given is tensor for given in getattr(graph, "inputs", ())):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


#: A scope that changes nothing. It is entered for most ops, and so made once.
UNCHANGED = nullcontext()


@lru_cache(maxsize=4096)
def spec_of(device: str) -> Any:
    """TensorFlow's own form of a device's name."""
    import tensorflow as tf

    return tf.DeviceSpec.from_string(device)


#: The devices that TensorFlow listed, and the one of them that ops without a scope run on.
_listed: tuple[Any, str | None] = (None, None)


def default_device(context: Any) -> str | None:
    """The device that eager ops run on outside of any scope; ``None`` where that depends on the op.

    It is the first GPU of this host, or the first CPU. On a GPU it takes soft placement for an op to fall back to the
    CPU within a scope, as it always does outside of one.
    """
    global _listed
    devices = context.devices()  # another list when hosts join
    if _listed[0] is not devices:
        host = devices[0].rpartition("/device:")[0]
        here = [name for name in devices if name.startswith(f"{host}/device:")]
        kinds = {name.rsplit(":", 2)[-2] for name in here}
        kind = "GPU" if "GPU" in kinds else "CPU"
        first = min((name for name in here if f":{kind}:" in name), key=lambda name: int(name.rpartition(":")[2]))
        _listed = devices, (first if kinds <= {"CPU", "GPU"} else None)
    device = _listed[1]
    return None if device and ":GPU:" in device and context._soft_device_placement is False else device


def entered(device: str, context: Any = None) -> AbstractContextManager[None]:
    """A device scope that replaces those around it; ``""`` leaves the choice to TensorFlow."""
    private = interface()
    context = context or private.context.context()
    if context.executing_eagerly():
        return UNCHANGED if context.device_name == device else _EagerScope(context, device)
    return _GraphScope(private.ops.get_default_graph(), device)


@lru_cache(maxsize=4096)
def _stacks(device: str) -> tuple[Any, Any]:
    """The stacks of device scopes and of colocation of a graph that has this one scope only."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph, tf.device(device or None):
        return graph._device_function_stack.copy(), graph._colocation_stack.copy()


class _GraphScope(AbstractContextManager[None]):
    """What ``tf.device`` does in a graph, without what is around it, and without a look at the caller's stack."""

    __slots__ = ("_before", "_device", "_graph")

    def __init__(self, graph: Any, device: str) -> None:
        self._graph = graph
        self._device = device

    def __enter__(self) -> None:
        graph = self._graph
        self._before = (graph._device_function_stack, graph._colocation_stack)
        graph._device_function_stack, graph._colocation_stack = (stack.copy() for stack in _stacks(self._device))

    def __exit__(self, *error: object) -> None:
        self._graph._device_function_stack, self._graph._colocation_stack = self._before


class _EagerScope(AbstractContextManager[None]):
    """What ``tf.device`` does in eager code, without merging names that are full; it is entered for every op."""

    __slots__ = ("_before", "_context", "_device")

    def __init__(self, context: Any, device: str) -> None:
        self._context = context
        self._device = device

    def __enter__(self) -> None:
        context = self._context
        self._before = (context.device_name, context.device_spec)
        context._set_device(self._device, spec_of(self._device))

    def __exit__(self, *error: object) -> None:
        self._context._set_device(*self._before)


class Sums:
    """Which device the gradients belong to that one playing back of a tape has not handed on yet.

    Args:
        active: whether the gradients of all ops are colocated, and not those of pinned ops alone.
        pinned: whether all backward ops are pinned.
    """

    def __init__(self, *, active: bool = False, pinned: bool = False) -> None:
        self.active = active
        self.pinned = pinned
        #: The caller's scope, and TensorFlow's form of it, in eager code that no tape records.
        self.scope: tuple[str, Any] | None = None
        #: The device that it stands for. A gradient that belongs there, and is of one tensor, is not noted.
        self.device: str | None = None
        #: By the gradient: the device of the tensor that it is of.
        self.open: dict[int | None, str] = {}
        #: By the gradient: of how many tensors more it is.
        self._more: dict[int | None, int] = {}
        self.zeros: dict[int, Callable[[], Any]] = {}

    def play_eagerly(self, context: Any) -> None:
        """Note the scope in which the tape is played back, in eager code that no tape records."""
        self.scope = (context.device_name or "", context.device_spec)
        self.device = context.device_name or default_device(context)

    def seeds(self, target: Any, given: Any) -> Any:
        """The gradients of the targets to begin with: ones, each on the device of its target, where none are given."""
        import tensorflow as tf

        targets = list(target) if isinstance(target, (list, tuple)) else [target]
        seeds = list(given) if given is not None else [None] * len(targets)
        if len(seeds) != len(targets):
            return given
        # TensorFlow takes seeds for all targets or for none: beside others, ``None`` says that no gradient comes.
        if given is None and not all(_has_ones(tensor) for tensor in targets):
            return given
        eager = tf.executing_eagerly()
        for at, (tensor, seed) in enumerate(zip(targets, seeds, strict=True)):
            place = device_of(tensor)
            if seed is None:
                if given is not None:
                    continue
                with UNCHANGED if place is None else entered(place):
                    is_known = eager and hasattr(tensor, "numpy") and tensor.dtype != tf.resource
                    seed = _ones(tuple(tensor.shape), tensor.dtype) if is_known else _ones_like(tensor)
            seeds[at] = seed if place is None else self._registered(seed, place)
        return seeds

    def consume(self, out_grads: Sequence[Any]) -> None:
        """These gradients arrive at the op that made their tensors."""
        if not self.open:
            return
        for grad in out_grads:
            key = _key(grad)
            if key not in self._more:
                self.open.pop(key, None)
            elif self._more[key] > 1:
                self._more[key] -= 1
            else:
                del self._more[key]

    def note(self, grads: Any, places: Sequence[str | None], *, is_new: bool = True) -> Any:
        """Note the tensors of gradients that were computed. One that is of tensors on two devices becomes two.

        ``is_new`` says that the op made them, so that no other op returns the same tensors. Zeros are never new:
        TensorFlow keeps them and uses them again.
        """
        if not isinstance(grads, (list, tuple)):
            return self.note([grads], places, is_new=is_new) if grads is not None else grads
        all_noted = bool(not is_new or self.zeros or _repeats(grads))
        if not all_noted and not self.open and places.count(self.device) == len(places):  # as for most ops
            return grads
        for at, (grad, place) in enumerate(zip(grads, places, strict=False)):
            if grad is None or place is None:
                continue
            key = _key(grad)
            if key in self.open:
                own = self._registered(grad, place)
                if own is not grad:
                    grads = [*grads[:at], own, *grads[at + 1 :]]
            elif all_noted or place != self.device:
                self.open[key] = place
        return grads

    def _registered(self, grad: Any, place: str) -> Any:
        key = _key(grad)
        if key not in self.open:
            self.open[key] = place
        elif self.open[key] == place:
            self._more[key] = self._more.get(key, 0) + 1
        elif key is not None:
            import tensorflow as tf

            with entered(place):
                grad = tf.identity(grad)
            self.open[_key(grad)] = place
        return grad

    def add_up(self, grads: Sequence[Any], add: Callable[[Any], Any]) -> Any:
        """Add up the gradients of one tensor where that is."""
        places = [self.open[key] for key in map(_key, grads) if key in self.open]
        if not places:
            return add(grads)
        with entered(places[0]):
            total = add(grads)
        self.consume(grads)
        return total if places[0] == self.device else self._registered(total, places[0])

    def add_zeros(self, made: Any, make: Callable[[], Any]) -> None:
        """TensorFlow made zeros, for an output whose gradient nobody computed, before it says of which op."""
        key = _key(made)
        if key is not None:
            self.zeros[key] = make

    def zeros_here(self, out_grads: Sequence[Any], device: str) -> Sequence[Any]:
        """The gradients that arrive at an op, with zeros made on this device, which has been entered."""
        if not self.zeros:
            return out_grads
        here = list(out_grads)
        for at, grad in enumerate(here):
            make = self.zeros.get(_key(grad) or -1)
            if make is not None and device_of(grad) != device:
                here[at] = make()
        return here


def _ones(shape: tuple[int, ...], dtype: Any) -> Any:
    return interface().backprop._default_vspace.ones_fn(shape, dtype)


def _ones_like(tensor: Any) -> Any:
    """As TensorFlow makes them; for the handle of a variable, those of its value."""
    return interface().backprop._default_vspace.ones_like_fn(tensor)


def _has_ones(tensor: Any) -> bool:
    import tensorflow as tf

    return isinstance(tensor, tf.Tensor) and tensor.dtype not in (tf.string, tf.variant)


def _repeats(grads: Sequence[Any]) -> bool:
    """Whether one gradient is that of several inputs."""
    if len(grads) <= 2:
        return len(grads) == 2 and grads[0] is grads[1] and grads[0] is not None
    given = [id(grad) for grad in grads if grad is not None]
    return len(set(given)) < len(given)


def _key(grad: Any) -> int | None:
    """What names a gradient for good; that of sparse gradients is the name of their values."""
    try:
        return grad._id  # type: ignore[no-any-return]
    except AttributeError:
        return getattr(getattr(grad, "values", None), "_id", None)
