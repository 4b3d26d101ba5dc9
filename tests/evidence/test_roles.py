from __future__ import annotations

import pytest

from harness.evidence.roles import in_gradient_scope, role_of


@pytest.mark.parametrize(
    ("op_type", "role"),
    [
        ("MatMul", "forward"),
        ("AssignAddVariableOp", "update"),
        ("ResourceApplyAdam", "update"),
        ("ResourceScatterAdd", "update"),
        ("ScatterNdUpdate", "update"),
        ("ScatterNd", "forward"),
        ("TensorScatterUpdate", "forward"),
        ("CollectiveReduceV2", "collective"),
        ("NcclAllReduce", "collective"),
        ("ReadVariableOp", "variable"),
        ("ResourceGather", "forward"),
        ("Const", "constant"),
        ("_EagerConst", "constant"),
        ("IteratorGetNext", "data"),
        ("ParallelMapDatasetV2", "data"),
        ("Identity", "control"),
        ("StatefulPartitionedCall", "control"),
        ("StatelessWhile", "control"),
        ("_XlaRun", "control"),
        ("_FusedMatMul", "forward"),
    ],
)
def test_the_role_of_an_op_type(op_type: str, role: str) -> None:
    assert role_of(op_type) == role
    # Only what computes has another role in a backward pass.
    assert role_of(op_type, gradient=True) == ("gradient" if role == "forward" else role)


@pytest.mark.parametrize(
    ("path", "backward"),
    [
        ("gradient_tape/Tanh", True),
        ("StatefulPartitionedCall/gradient_tape/dense/MatMul", True),
        ("gradients/Tanh_grad/TanhGrad", True),
        ("gradients_1/Tanh_grad/TanhGrad", True),
        ("fn.backward/gradients/AddN", True),
        ("Tanh", False),
        ("my_gradients/Tanh", False),
        ("gradients", False),
        ("gradient_tapes/Tanh", False),
    ],
)
def test_backward_ops_are_known_by_their_scope(path: str, backward: bool) -> None:
    assert in_gradient_scope(path) is backward
    assert role_of("Tanh", path) == ("gradient" if backward else "forward")
