"""What Python holds of TensorFlow in this process: tensors, variables, resources and traced functions.

The garbage collector knows them all. What only TensorFlow holds, such as the entries of a table, is not among them.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from harness.devices.name import DeviceName
from harness.lazy import tf

Kind = Literal["tensor", "variable", "resource", "graph"]
#: What a text takes up besides its characters, which are not counted (``TF_TString``).
_TEXT_BYTES = 24


@dataclass(frozen=True, slots=True)
class Held:
    """One object. ``device`` is its full name; a traced function (``graph``) has none.

    A resource is what an eager tensor refers to, as an iterator: its own size is unknown, and 0 here.
    """

    kind: Kind
    thing: Any
    device: str = ""
    size_bytes: int = 0


def held() -> list[Held]:
    """List what Python holds, once it has collected what nothing refers to any more."""
    gc.collect()
    kinds: dict[type, Kind | None] = {}
    found: list[Held] = []
    for each in gc.get_objects():
        own = type(each)
        if own not in kinds:
            kinds[own] = _kind_of(own)
        if kinds[own] is not None:
            found += described(each, kinds[own])
    return found


def stores() -> list[Any]:
    """List TensorFlow's tables that can grow, and its queues: they have a method ``size``."""
    names = {"MutableHashTable", "DenseHashTable", "QueueBase"}
    return [each for each in gc.get_objects() if names & {base.__name__ for base in type(each).__mro__}]


def _kind_of(own: type) -> Kind | None:
    names = {each.__name__ for each in own.__mro__}
    if "EagerTensor" in names:
        return "tensor"
    if "FuncGraph" in names:
        return "graph"
    return "variable" if "BaseResourceVariable" in names else None


def described(thing: Any, kind: Kind | None) -> Iterator[Held]:
    """Describe an object of a kind. What is gone, or belongs to a graph, gives nothing."""
    if kind == "graph":
        yield Held("graph", thing)
    elif kind == "variable":
        handle = getattr(thing, "_handle", None)
        if handle is not None and hasattr(handle, "backing_device"):
            yield Held("variable", thing, str(thing.device), _variable_bytes(thing))
    elif thing.dtype in (tf.resource, tf.variant):
        yield Held("resource", thing, str(thing.backing_device))
    else:
        each = _TEXT_BYTES if thing.dtype == tf.string else int(thing.dtype.size)
        yield Held("tensor", thing, str(thing.backing_device), math.prod(thing.shape) * each)


def _variable_bytes(variable: Any) -> int:
    shape = variable.shape
    if not shape.is_fully_defined():
        with tf.device(variable.device):
            shape = tf.raw_ops.VariableShape(input=variable.handle, out_type=tf.int64).numpy()
    return math.prod(int(size) for size in shape) * int(variable.dtype.size)


def buffers() -> dict[int, int]:
    """Sizes in bytes of the buffers that tensors and variables on this process's CPUs hold, by address."""
    return {address: each.size_bytes for address, each in cpu_buffers().items()}


def cpu_buffers() -> dict[int, Held]:
    """What holds the buffers of this process's CPUs, by address."""
    found: dict[int, Held] = {}
    for each in held():
        if each.kind not in ("tensor", "variable") or not _on_cpu(each.device):
            continue
        value = each.thing.read_value() if each.kind == "variable" else each.thing
        if value.dtype == tf.string:
            continue
        # Of a tensor on a CPU, NumPy shows the memory itself.
        address = int(np.asarray(value).__array_interface__["data"][0])
        # A tensor may show the memory of a variable.
        if address not in found or each.kind == "variable":
            found[address] = each
    return found


def _on_cpu(device: str) -> bool:
    parsed = DeviceName.parse(device)
    return parsed.in_this_process and parsed.kind == "CPU"
