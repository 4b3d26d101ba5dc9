"""What TensorFlow's own tables say of an op: for which devices and dtypes it has a kernel."""

from __future__ import annotations

import pytest

from harness.evidence.op_types import has_kernel


@pytest.mark.parametrize(
    ("op_type", "kind", "dtypes", "expected"),
    [
        ("MatMul", "CPU", {"float32"}, True),
        ("MatMul", "CPU", {"string"}, False),
        ("ArgMax", "CPU", {"float32", "int64"}, True),
        ("MatrixSquareRoot", "CPU", {"float32"}, True),
        ("MatrixSquareRoot", "GPU", {"float32"}, False),
        ("MatrixSquareRoot", "CPU", set(), True),  # of dtypes that nobody knows, none is excluded
        ("NoSuchOp", "GPU", {"float32"}, True),
    ],
)
def test_an_op_has_the_kernels_that_tensorflow_registers(
    op_type: str, kind: str, dtypes: set[str], expected: bool
) -> None:
    assert has_kernel(op_type, kind, dtypes) is expected
