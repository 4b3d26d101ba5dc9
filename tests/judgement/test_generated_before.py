"""Generated programs that are right, and once gave a finding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import harness
from harness import Devices
from harness.checks.ensembles import verify_models
from harness.checks.model_parallel import verify_staged
from harness.devices.device import Devices as Some
from harness.strategies import (
    Activation,
    Argument,
    Bias,
    Einsum,
    Embed,
    Models,
    Normalise,
    Pool,
    Program,
    StagedProgram,
    Variable,
)

#: The gradient of a bias that a custom loop reads for each micro-batch is added up where the bias is.
_BIAS = StagedProgram(
    Program(
        (Argument("x", (), dtype="int32", below=5),),
        (Variable("w0", (5, 3), init="table"), Variable("w1", (3,), init="bias")),
        (Embed("x", "w0"), Activation("v0", "tanh"), Bias("v1", "w1", fused=True)),
        (("", "v2"),),
        rows=2,
    ),
    (1, 2),
    microbatches=2,
)
#: The gradients of arguments are added up on the host, where the arguments are, whichever model they come from.
_POOLED = Models(
    Program(
        (Argument("x", (4, 3)), Argument("y", (2, 3))),
        (),
        (Pool("x", how="avg"), Einsum("bij,bij->bj", "v0", "y")),
        (("0", "v1"), ("1", "y")),
        dtype="float16",
        rows=0,
    ),
    (0, 1),
    own_inputs=True,
)
_NORMALISED = Models(
    Program((Argument("x", (2, 3)),), (), (Normalise("x"), Activation("v0", "tanh")), (("", "v1"),), rows=0),
    (2, 1),
    own_inputs=True,
)


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("verify", "example"), [(verify_staged, _BIAS), (verify_models, _POOLED), (verify_models, _NORMALISED)]
)
def test_sums_of_gradients_are_where_their_tensor_is(verify: Any, example: Any, devices: Devices) -> None:
    assert verify(example, devices).findings == ()


@pytest.mark.parametrize("rows", [0, 2])
def test_the_gradient_of_an_argument_is_added_up_on_the_host_beside_a_pipeline(rows: int, devices: Devices) -> None:
    steps = (Normalise("x"), Activation("v0", "tanh"), Activation("v1", "sigmoid"))
    staged = StagedProgram(Program((Argument("x", (2, 3)),), (), steps, (("", "v2"),), rows=rows), (1, 2))
    some = Some(list(devices)[1:], spec=devices.spec, host=devices.host)
    assert verify_staged(staged, some).findings == ()


@pytest.mark.parametrize("number", [2, 3])
def test_the_check_of_rows_is_no_work_on_a_shard(number: int, devices: Devices) -> None:
    some = Some(list(devices)[:number], spec=devices.spec, host=devices.host)
    built = Program((Argument("x", (2, 3)),), (), (Activation("x", "tanh"),), (("", "v0"),)).build(some.host)
    inputs = {"x": np.arange(36, dtype=np.float32).reshape(6, 2, 3) / 36}
    parallel = harness.make_parallel(built.fn, some)
    found = harness.verify(parallel, built.fn, inputs, devices=some, modes=("dynamic",))
    assert found.verdict is harness.Verdict.PASS, found
