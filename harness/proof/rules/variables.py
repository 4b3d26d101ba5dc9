"""Constants and variables. A variable that is read after an update has the updated value."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.lazy import tf
from harness.proof.evaluation import Entry, Evaluation
from harness.proof.sizes import Unprovable
from harness.proof.terms import Poly


def _const(ev: Evaluation, op: Any) -> Poly:
    return ev.alg.const(tf.make_ndarray(op.get_attr("value")))


def _read(ev: Evaluation, op: Any, ref: Any) -> Poly:
    return ev.read(ref)


def _assign(ev: Evaluation, op: Any, ref: Any, value: Poly) -> list[Poly]:
    before = ev.read(ref)
    if before.shape != value.shape or before.dtype != value.dtype:
        raise Unprovable("an update of another shape than the variable's")
    # What is added or subtracted is not broadcast.
    sign = {"AssignAddVariableOp": 1, "AssignSubVariableOp": -1}.get(op.type, 0)
    ev.state[ref] = ev.alg.add(before, value, sign) if sign else value
    return []


def _variable_shape(ev: Evaluation, op: Any, ref: Any) -> Poly:
    return ev.alg.const(np.array(ev.read(ref).shape, op.outputs[0].dtype.as_numpy_dtype))


RULES: dict[str, Entry] = {
    "Const": _const,
    "ReadVariableOp": _read,
    "AssignVariableOp": _assign,
    "AssignAddVariableOp": _assign,
    "AssignSubVariableOp": _assign,
    "VariableShape": _variable_shape,
}
