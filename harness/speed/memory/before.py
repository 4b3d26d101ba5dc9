"""What devices hold before a program is profiled: variables, slots, and tensors that Python refers to."""

from __future__ import annotations

import gc
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness._tensorflow import HOST_DTYPE_NUMBERS, HOST_DTYPES, CollectedGraph
from harness.evidence.op import Op
from harness.evidence.trace import Trace
from harness.judgement.slots import slots_of
from harness.lazy import tf
from harness.parallel.closure import keras_classes
from harness.speed.memory.held import Held, cpu_buffers, held
from harness.speed.memory.labels import Label
from harness.speed.memory.origins import Origins
from harness.speed.memory.record import Kind

#: What the allocator of a GPU rounds sizes up to (``BFCAllocator::kMinAllocationSize``).
GRAIN_BYTES = 256


@dataclass(frozen=True, slots=True)
class Before:
    """Labels and sizes of what is held: on CPUs by the address of the buffer, elsewhere by the device's full name.

    ``layers`` are the names of the Keras layers that exist.
    """

    by_address: Mapping[int, tuple[Label, int]]
    by_device: Mapping[str, Sequence[tuple[Label, int]]]
    layers: tuple[str, ...]


def held_before(origins: Origins) -> Before:
    """Look at what is held now. Nothing of it is kept alive."""
    kinds = keras_classes("optimizers.Optimizer"), keras_classes("layers.Layer")
    objects = gc.get_objects()
    optimizers: list[Any] = [each for each in objects if kinds[0] and isinstance(each, kinds[0])]
    layers: list[Any] = [each for each in objects if kinds[1] and isinstance(each, kinds[1])]
    del objects
    layer_of = {key: _layer(each) for layer in layers for each in layer.variables for key in _keys(each)}
    slots = {key for optimizer in optimizers for each in _variables(optimizer) for key in _keys(each)}
    for optimizer in optimizers:
        for variable, slot in slots_of(optimizer):
            layer_of |= dict.fromkeys(_keys(slot), layer_of.get(_keys(variable)[0], ""))
    names = tuple(dict.fromkeys(str(each.name) for each in layers))
    del optimizers, layers
    found = held()
    labels = _Describing(origins, slots, layer_of)
    by_device: dict[str, list[tuple[Label, int]]] = defaultdict(list)
    for each in found:
        if each.kind in ("variable", "tensor") and each.size_bytes:
            by_device[each.device].append((labels.of(each), rounded(each.size_bytes)))
    del found
    by_address = {address: (labels.of(each), each.size_bytes) for address, each in cpu_buffers().items()}
    return Before(by_address, by_device, names)


@dataclass(frozen=True, slots=True)
class _Describing:
    """``slots`` are variables of optimizers, and ``layer_of`` the names of layers, by the ``id`` of the variable."""

    origins: Origins
    slots: Collection[int]
    layer_of: Mapping[int, str]

    def of(self, each: Held) -> Label:
        """Label what is held."""
        line, key = self.origins.line_of(each.thing), id(each.thing)
        kind: Kind = "inputs" if each.kind == "tensor" else "slots" if key in self.slots else "variables"
        return Label(kind, self.layer_of.get(key, ""), line, each.device)


def constants_in(graphs: Iterable[CollectedGraph], trace: Trace) -> dict[str, dict[str, int]]:
    """Sizes of the constants of executed graphs by their name, by the full name of the device whose memory has them.

    Ops without inputs but constants, such as ``tf.zeros``, are among them: the executor computes them once.
    """
    found: dict[str, dict[str, int]] = defaultdict(dict)
    constant = _constant_ops(trace.ops)
    for op in trace.ops:
        if op.name in constant and op.device is not None and op.dtypes and op.dtypes[0] not in HOST_DTYPES:
            shape = (*trace.shapes.get(op.name, ()), None)[0]
            if shape is not None and None not in shape:
                size = math.prod(each or 0 for each in shape) * tf.dtypes.as_dtype(op.dtypes[0]).size
                found[str(op.device)][op.name.partition("/")[2]] = rounded(size)
    for graph in graphs:
        for part in graph.partitions:
            for node in part.node:
                number = node.attr["dtype"].type
                if node.op == "Const" and number not in HOST_DTYPE_NUMBERS:
                    dimensions = node.attr["value"].tensor.tensor_shape.dim
                    size = math.prod(each.size for each in dimensions) * tf.dtypes.as_dtype(number).size
                    found[node.device][node.name] = rounded(size)
    return found


def _constant_ops(ops: Sequence[Op]) -> set[str]:
    """Names of the ops that compute with constants alone."""
    found = {op.name for op in ops if op.role == "constant" and not op.inputs}
    more = True
    while more:
        new = {op.name for op in ops if op.inputs and op.name not in found and found.issuperset(op.inputs)}
        found |= new
        more = bool(new)
    return found


def rounded(size_bytes: int) -> int:
    """What the allocator of a GPU gives out for a size."""
    return -(-size_bytes // GRAIN_BYTES) * GRAIN_BYTES


def _variables(optimizer: Any) -> Sequence[Any]:
    found = getattr(optimizer, "variables", ())
    return tuple(found() if callable(found) else found)


def _keys(variable: Any) -> tuple[int, ...]:
    """The ids of the TensorFlow variables that a variable of Keras or of a strategy consists of."""
    inner = getattr(variable, "_value", None)
    inner = inner if inner is not None and hasattr(type(inner), "handle") else variable
    parts = getattr(inner, "values", None)
    return tuple(map(id, parts)) if isinstance(parts, tuple) and parts else (id(inner),)


def _layer(variable: Any) -> str:
    """The name of the layer that a Keras variable belongs to: ``dense`` of ``sequential/dense/kernel``."""
    return str(getattr(variable, "path", variable.name)).rpartition("/")[0].rpartition("/")[2]
