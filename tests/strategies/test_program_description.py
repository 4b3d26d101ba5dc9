from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.errors import InvalidProgram, UsageError
from harness.strategies import Argument, Bias, Combine, Dense, Embed, Program, Reduce, Variable, numpy_dtype

X = Argument("x", (3,))
W = Variable("w0", (3, 2))


def program(**changes: Any) -> Program:
    parts: dict[str, Any] = {
        "arguments": (X,),
        "variables": (W,),
        "steps": (Dense("x", "w0"),),
        "outputs": (("", "v0"),),
        "rows": 5,
    }
    return Program(**parts | changes)


def test_the_description_says_what_it_takes_and_returns() -> None:
    whole = program(arguments=(X, Argument("c0", (2,), broadcast=True)), steps=(Dense("x", "w0"), Bias("v0", "c0")))
    assert whole.kinds == ("dense", "bias")
    assert whole.broadcast == ("c0",)
    assert whole.differentiable
    assert whole.types["v1"].shape == (2,)
    assert not program(dtype="int64").differentiable


def test_it_prints_no_more_than_it_has_to() -> None:
    text = "Program((Argument('x', (3,)),), (Variable('w0', (3, 2)),), (Dense('x', 'w0'),), (('', 'v0'),), rows=5)"
    assert repr(program()) == text


def test_inputs_have_the_rows_along_the_axis_and_are_the_same_each_time() -> None:
    nest = (
        Argument("pair.0", (3,)),
        Argument("pair.1", (4,), "int32", below=6),
        Argument("mask", (2,), "bool"),
        Argument("c0", (3,), broadcast=True),
    )
    one = program(arguments=nest, steps=(Dense("pair.0", "w0"),), axis=1)
    inputs = one.inputs()
    assert sorted(inputs) == ["c0", "mask", "pair"]
    assert [array.shape for array in inputs["pair"]] == [(3, 5), (4, 5)]
    assert [array.dtype.name for array in inputs["pair"]] == ["float32", "int32"]
    assert 0 <= inputs["pair"][1].min() <= inputs["pair"][1].max() < 6
    assert inputs["mask"].shape == (2, 5)
    assert inputs["mask"].dtype == bool
    assert inputs["c0"].shape == (3,)
    again = one.inputs()
    assert all((first == second).all() for first, second in zip(inputs["pair"], again["pair"], strict=True))
    assert (one.inputs(seed=1)["c0"] != inputs["c0"]).any()
    assert one.inputs(rows=0)["mask"].shape == (2, 0)
    assert program(axis=-1).inputs()["x"].shape == (3, 5)


def test_values_are_of_the_types_and_magnitudes_that_are_promised() -> None:
    for dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64"):
        for exact in (False, True):
            one = program(dtype=dtype, exact=exact)
            for part, array in ((X, one.inputs(rows=40)["x"]), (W, W.array(0, dtype, exact=exact))):
                known = part.value(dtype, exact=exact)
                assert array.dtype == numpy_dtype(dtype)
                assert 0 < abs(array.astype(float)).max() <= known.bound
                whole = bool((array.astype(float) % 1 == 0).all())
                assert whole == (exact or dtype.startswith("int"))
                assert not whole or (array != 0).all()


def test_variables_are_as_large_as_their_use_asks() -> None:
    weight = Variable("w", (8, 2, 5)).array(0, "float32", exact=False)
    assert abs(weight).max() <= 1 / np.sqrt(16)
    gain = Variable("w", (9,), "gain").array(0, "float32", exact=False)
    assert 0.5 <= gain.min() <= gain.max() <= 1.5
    assert abs(Variable("w", (9,), "bias").array(0, "float32", exact=False)).max() <= 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": "float8"}, "dtype='float8'"),
        ({"rows": -1}, "rows=-1"),
        ({"outputs": ()}, "or no output"),
        ({"arguments": (Argument("x", (3,), broadcast=True),)}, "no argument with a batch axis, or no output"),
        ({"outputs": (("", "v1"),)}, "'v1' is not a value of the batch"),
        ({"outputs": (("", "w0"),)}, "'w0' is not a value of the batch"),
        ({"steps": (Dense("y", "w0"),)}, r"Dense\('y', 'w0'\): 'y' is not known"),
        ({"steps": (Dense("v0", "w0"),)}, "'v0' is not known"),
        ({"steps": (Dense("x", "w0", transposed=True),)}, "a last axis of 2"),
        ({"variables": (W, Variable("x", (3,)))}, "the name is used twice"),
        ({"variables": (Variable("w0", (3, 2), "heavy"),)}, "init='heavy'"),
        ({"arguments": (Argument("x", (3,), below=4),)}, "below=4 for float32"),
        ({"arguments": (X, Argument("y", (), "int32", below=0))}, "below=1 or more"),
        ({"axis": 2}, "too few axes for axis=2"),
        ({"axis": 1, "steps": (Dense("x", "w0"), Reduce("v0", "sum")), "outputs": (("", "v1"),)}, "axis=1"),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProgram, match=message) as raised:
        program(**changes)
    assert "accepted" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.part


@pytest.mark.parametrize(
    "changes",
    [
        {"arguments": (X, Argument("x.0", (3,)))},
        {"arguments": (Argument("0", (3,)),), "steps": (Dense("0", "w0"),)},
        {"outputs": (("a", "v0"), ("a", "x"))},
        {"outputs": (("0", "v0"), ("2", "x"))},
    ],
)
def test_names_that_make_no_nest_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="accepted"):
        program(**changes)


def test_an_exact_program_refuses_what_would_not_stay_exact() -> None:
    squares = (Combine("mul", "x", "x"), Combine("mul", "v0", "v0"), Combine("mul", "v1", "v1"))
    outputs = (("", "v2"),)
    program(steps=squares, outputs=outputs, exact=True, dtype="float64")
    with pytest.raises(InvalidProgram, match="not exact in bfloat16"):
        program(steps=squares, outputs=outputs, exact=True, dtype="bfloat16")
    with pytest.raises(InvalidProgram, match="this step is not exact for integers"):
        program(steps=(Dense("x", "w0"), Reduce("v0", "mean")), exact=True)


def test_an_exact_program_refuses_more_rows_than_its_gradients_have_room_for() -> None:
    table = Program(
        (Argument("x", (3,), "int32", below=4),),
        (Variable("w0", (4, 2), "table"),),
        (Embed("x", "w0"),),
        (("", "v0"),),
        dtype="bfloat16",
        rows=40,
        exact=True,
    )
    assert table.inputs(rows=42)["x"].shape == (42, 3)
    with pytest.raises(InvalidProgram, match="with 43 rows"):  # 43 rows x 3 lookups x a weight of 2 is more than 256
        table.inputs(rows=43)
