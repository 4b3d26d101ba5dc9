"""Where slices cut, as far as it is known: two that cut one tensor at the same place make the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harness._tensorflow import uncounted_value
from harness.evidence.userops import UserOp, name_in_trace

#: Where a slice cuts: the values of what it is given beside its tensor, and its attributes.
Place = tuple[object, ...]

SLICES = frozenset({"Slice", "StridedSlice"})
_MASKS = ("begin_mask", "ellipsis_mask", "end_mask", "new_axis_mask", "shrink_axis_mask")


def place_of_slice(inputs: Sequence[Any], attributes: Sequence[Any]) -> Place:
    """Of an eager slice, by its inputs and its attributes as TensorFlow's callbacks have them."""
    named = dict(zip(attributes[::2], attributes[1::2], strict=True))
    return (*(uncounted_value(each).tobytes() for each in inputs[1:]), *(named.get(mask) for mask in _MASKS))


def places_of_slices(ops: Iterable[UserOp], call: str) -> dict[str, Place]:
    """Of the slices of a call of a function at constant places, by their names in the trace."""
    known = list(ops)
    constants = {op.path: op.node.attr["value"].tensor.SerializeToString() for op in known if op.type == "Const"}
    found = {}
    for op in known:
        bounds = [constants.get(path) for path, _ in op.inputs[1:]] if op.type in SLICES else [None]
        if bounds and None not in bounds:
            masks = (op.node.attr[mask].i if mask in op.node.attr else None for mask in _MASKS)
            found[name_in_trace(op.path, call)] = (*bounds, *masks)
    return found
