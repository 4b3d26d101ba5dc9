"""What a buffer is: its kind, its layer and the line of the program, from a trace of the same program.

TensorFlow's optimizer renames nodes, and adds some. What the trace does not have by its name is labelled like the op
whose name has the longest beginning in common with it, by whole parts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from harness.evidence.op import Op
from harness.evidence.placed import user_path
from harness.evidence.roles import in_gradient_scope
from harness.evidence.trace import Trace
from harness.speed.memory.changes import Change
from harness.speed.memory.record import Kind
from harness.tensorflow_version import ARRIVAL

_TEMPORARY = "temp"
#: Keras opens the scope of a layer anew in each call, and TensorFlow numbers it.
_NUMBERED = re.compile(r"^(.+)_\d+$")
#: Parts of names that TensorFlow gives to gradients, loops and branches.
_NO_LAYER = re.compile(r"^(gradient_tape|gradients|while|while_grad|body|cond|then|else|branch)(_?\d+)?$")
#: What the optimizer puts before or behind a name.
_OPTIMIZED = re.compile(r"(^|/)(ArithmeticOptimizer|ConstantFolding|LayoutOptimizer|Optimizer)(?=/|$)")


@dataclass(frozen=True, slots=True)
class Label:
    """``device`` is the full name of where the op ran, or empty where that is unknown."""

    kind: Kind = "unknown"
    layer: str = ""
    line: str = ""
    device: str = ""


@dataclass
class Labels:
    """The labels of the ops of a trace. ``layers`` are the names of the program's Keras layers."""

    trace: Trace
    layers: Sequence[str] = ()
    _known: dict[tuple[str, int | None, bool], Label] = field(default_factory=dict)

    def of(self, change: Change, device: str = "") -> Label:
        """The label of a buffer that was given out, on a device of this full name."""
        if change.op == ARRIVAL or not change.op:
            return self._arrived(device, change.asked_bytes) if change.op else Label("temporaries")
        key = change.op, change.eager, change.region == _TEMPORARY
        if key not in self._known:
            self._known[key] = self._label(*key)
        return self._known[key]

    def of_constant(self, name: str) -> Label:
        """The label of a constant of an executed graph, by the name of its node."""
        return replace(self._label(name, None, False), kind="inputs")

    def _label(self, name: str, eager: int | None, temporary: bool) -> Label:
        if eager is not None:
            ran = self._eager.get(name, ())
            op = ran[eager % len(ran)] if ran else None
        else:
            op = self._in_graphs.get(user_path(name)) or self._near(user_path(name))
        if op is None:
            return Label("gradients" if in_gradient_scope(name) else "temporaries")
        path = op.name.partition("/")[2] or op.name
        made = Label(self._kind(op), self._layer(op), self._line(op, path), str(op.device or ""))
        return replace(made, kind="temporaries") if temporary else made

    def _kind(self, op: Op) -> Kind:
        if op.role == "data":
            return "inputs"
        if op.role == "gradient" or op.forward is not None or in_gradient_scope(op.name):
            return "gradients"
        return "temporaries" if op.role == "update" or op.name in self._after_gradients else "activations"

    def _line(self, op: Op, path: str) -> str:
        for name in (op.name, op.forward or ""):
            if places := self.trace.places.get(name):
                return places[0]
        scope = path
        while scope := scope.rpartition("/")[0]:
            if line := self._lines.get(scope):
                return line
        return ""

    def _layer(self, op: Op) -> str:
        scope = (op.forward or op.name).partition("/")[2].rpartition("/")[0]
        parts = [part for part in scope.split("/") if part and not _NO_LAYER.match(part)]
        known = [self._scopes[part] for part in parts if part in self._scopes]
        if known or self.layers:
            return known[-1] if known else ""
        return "/".join(parts)

    def _arrived(self, device: str, size_bytes: int | None) -> Label:
        """A copy from another device: of the tensor of this size that the trace has as sent there."""
        for each in self.trace.transfers:
            if str(each.destination) == device and each.size_bytes == size_bytes:
                made = self._label_of_tensor(each.tensor)
                return replace(made, device=device)
        return Label("temporaries", device=device)

    def _label_of_tensor(self, name: str) -> Label:
        op = self._by_name.get(name)
        if op is None:
            return Label("inputs" if name.endswith(":input") else "temporaries")
        path = op.name.partition("/")[2] or op.name
        kind: Kind = "inputs" if op.role in ("variable", "data", "constant") else self._kind(op)
        return Label(kind, self._layer(op), self._line(op, path))

    def _near(self, name: str) -> Op | None:
        scope = _OPTIMIZED.sub("", name).strip("/")
        while scope:
            if (found := self._in_graphs.get(scope) or self._first_in.get(scope)) is not None:
                return found
            # X-0-TransposeNHWCToNCHW-LayoutOptimizer stands beside X.
            shorter = re.sub(r"[-_][^-_/]*$", "", scope)
            scope = shorter if shorter != scope else scope.rpartition("/")[0]
        return None

    @cached_property
    def _by_name(self) -> Mapping[str, Op]:
        return {op.name: op for op in self.trace.ops}

    @cached_property
    def _in_graphs(self) -> Mapping[str, Op]:
        found: dict[str, Op] = {}
        for op in self.trace.ops:
            if path := op.name.partition("/")[2]:
                found.setdefault(path, op)
        return found

    @cached_property
    def _first_in(self) -> Mapping[str, Op]:
        """An op in each scope: one of which the line is known, if there is one."""
        found: dict[str, Op] = {}
        for path, op in self._in_graphs.items():
            scope = path
            while scope := scope.rpartition("/")[0]:
                known = found.get(scope)
                if known is None or (not self.trace.places.get(known.name) and self.trace.places.get(op.name)):
                    found[scope] = op
        return found

    @cached_property
    def _lines(self) -> Mapping[str, str]:
        found = {scope: self.trace.places.get(op.name, ()) for scope, op in self._first_in.items()}
        return {scope: places[0] for scope, places in found.items() if places}

    @cached_property
    def _eager(self) -> Mapping[str, Sequence[Op]]:
        found: dict[str, list[Op]] = defaultdict(list)
        for op in self.trace.ops:
            if "/" not in op.name:
                found[op.type].append(op)
        return found

    @cached_property
    def _after_gradients(self) -> frozenset[str]:
        """Ops that compute with gradients and are none: what an optimizer does with them."""
        readers: dict[str, list[str]] = defaultdict(list)
        gradients = {op.name for op in self.trace.ops if op.role == "gradient" or op.forward is not None}
        for op in self.trace.ops:
            for name in op.inputs:
                readers[name].append(op.name)
        found: set[str] = set()
        level = [reader for name in gradients for reader in readers[name]]
        while level:
            new = {each for each in level if each not in found and each not in gradients}
            found |= new
            level = [reader for name in new for reader in readers[name]]
        return frozenset(found)

    @cached_property
    def _scopes(self) -> Mapping[str, str]:
        """The layer that each part of a name stands for, as far as it stands for one."""
        parts = dict.fromkeys(part for path in self._in_graphs for part in path.split("/"))
        return layers_of_scopes(parts, self.layers)


def layers_of_scopes(scopes: Iterable[str], layers: Sequence[str]) -> dict[str, str]:
    """The layer of each scope: its name, or its name and a number. Each layer has one scope first.

    So where layers are named ``dense`` and ``dense_1``, and scopes ``dense_1`` and ``dense_1_1``, the first is the
    scope of ``dense``.
    """
    names = set(layers)
    choices = {}
    for scope in scopes:
        match = _NUMBERED.match(scope)
        if found := [name for name in (match[1] if match else "", scope) if name in names]:
            choices[scope] = found
    sure = {scope: found[0] for scope, found in choices.items() if len(found) == 1}
    taken = set(sure.values())
    for scope, found in choices.items():
        if scope not in sure:
            sure[scope] = next((name for name in found if name not in taken), found[0])
            taken.add(sure[scope])
    return sure
