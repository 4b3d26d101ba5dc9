"""The role of an op, from its type and from where its graph puts it."""

from __future__ import annotations

import re
from functools import lru_cache

from harness.evidence.op import Role

_UPDATE = re.compile(
    r"^(Resource)?(Sparse)?Apply|^Assign|^ResourceScatter|^ResourceStridedSliceAssign"
    r"|^Scatter(Add|Div|Max|Min|Mul|Sub|Update)$|^ScatterNd(Add|Max|Min|Sub|Update)$|^StridedSliceAssign"
)
_COLLECTIVE = re.compile(r"^(Collective|Nccl)")
_VARIABLE = re.compile(
    r"^(ReadVariableOp|VarHandleOp|VariableShape|VarIsInitializedOp|DestroyResourceOp|_VarHandlesOp)$"
)
#: Lookups in a variable, which get its handle: TensorFlow runs them on the variable's device.
LOOKUPS = frozenset({"ResourceGather", "ResourceGatherNd"})
_DATA = re.compile(r"(Dataset|Iterator)")
_CONTROL = frozenset(
    {
        "Assert",
        "Case",
        "Enter",
        "Exit",
        "Identity",
        "IdentityN",
        "If",
        "LoopCond",
        "Merge",
        "NextIteration",
        "NoOp",
        "PartitionedCall",
        "Placeholder",
        "StatefulPartitionedCall",
        "StatelessCase",
        "StatelessIf",
        "StatelessWhile",
        "Switch",
        "While",
        "_Arg",
        "_DeviceArg",
        "_DeviceRetval",
        "_Retval",
    }
)
_CONSTANT = frozenset({"Const", "_EagerConst", "HostConst", "_HostConst", "Fill", "ZerosLike", "OnesLike"})

#: Parts of a node's name that TensorFlow gives to backward ops: the tape, and the symbolic gradient of a function.
_GRADIENT_SCOPE = re.compile(r"(?:^|/)(?:gradient_tape|gradients(?:_\d+)?)/")


def in_gradient_scope(path: str) -> bool:
    """Whether a node's name lies in one of TensorFlow's scopes for backward ops."""
    return _GRADIENT_SCOPE.search(path) is not None


def role_of(op_type: str, path: str = "", *, gradient: bool = False) -> Role:
    """The role of an op of this type. It is a backward op where ``gradient`` or its ``path`` in the graph says so."""
    role = _role_of_type(op_type)
    if role is not None:
        return role
    return "gradient" if gradient or in_gradient_scope(path) else "forward"


@lru_cache(maxsize=2048)
def _role_of_type(op_type: str) -> Role | None:
    if _UPDATE.match(op_type):
        return "update"
    if _COLLECTIVE.match(op_type):
        return "collective"
    if _VARIABLE.match(op_type):
        return "variable"
    if op_type in _CONTROL or op_type.startswith("_Xla"):
        return "control"
    if op_type in _CONSTANT:
        return "constant"
    return "data" if _DATA.search(op_type) else None
