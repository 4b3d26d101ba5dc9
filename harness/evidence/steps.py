"""What is written down while a function is traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from harness._tensorflow import CollectedGraph
from harness.evidence.sizes import Shape
from harness.evidence.slices import Place


class RecordedOp:
    """One op as it ran eagerly, or as it was added to a graph (then ``graph`` says to which)."""

    scope: str | None = None
    #: Numbers of the dtypes of the outputs.
    dtypes: tuple[int, ...] = ()
    #: Where an eager op ran, ``None`` where nothing tells.
    device: str | None = None
    #: Inputs that another device held: (tensor id, device, size in bytes).
    held: Sequence[tuple[int, str, int]] = ()
    name: str | None = None
    graph: int | None = None
    forward: RecordedOp | None = None
    in_gradient = False
    #: The graph of a call.
    body: CollectedGraph | None = None
    #: The shapes of the inputs; those of the results, of an op.
    shapes: Sequence[Shape] = ()
    results: Sequence[Shape] = ()
    #: Whether another thread ran it than the one that the trace was started in.
    aside = False
    #: The thread that handed an argument in host memory to a GPU, and whether another one did so meanwhile.
    handed_by: int | None = None
    at_once = False
    #: Definitions of the functions that a dataset runs, by attribute.
    functions: Mapping[str, Any] = MappingProxyType({})
    #: Whether this is a call of a function that computes a gradient.
    backward = False
    #: The line of the user's program that ran an eager op, and where that function was called.
    places: tuple[str, ...] = ()
    #: Where an eager slice cuts.
    cut: Place = ()
    #: Name of the op in the trace; given when the trace is built.
    label = ""

    def __init__(self, type_: str, inputs: list[int], outputs: list[int]) -> None:
        self.type = type_
        self.inputs = inputs
        self.outputs = outputs


@dataclass
class Recording:
    """Everything that was written down."""

    #: Eager ops and calls, in the order in which they ended.
    steps: list[RecordedOp] = field(default_factory=list)
    #: All graphs that TensorFlow handed over, those of ``RecordedOp.body`` included.
    graphs: list[CollectedGraph] = field(default_factory=list)
    #: Definitions (``FunctionDef``) of the functions that were called, and of those that a compiled one calls.
    functions: dict[str, Any] = field(default_factory=dict)
    #: Ids of the tensors that the traced function was given.
    arguments: list[int] = field(default_factory=list)
    #: Of each of them, the dtype and the shape without the rows.
    kinds: list[tuple[object, ...]] = field(default_factory=list)
    #: Types of the ops, and names of the functions, that raised.
    raised: set[str] = field(default_factory=set)
