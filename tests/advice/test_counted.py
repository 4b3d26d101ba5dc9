"""What a step does, counted from a trace; the traces are made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from harness.advice.counted import NotCounted, tasks_of
from harness.advice.step_time import Task
from harness.devices.name import DeviceName
from harness.evidence.op import Op, Transfer
from harness.evidence.trace import Trace

FLOAT = ("float32",)


def device(short: str) -> DeviceName:
    return DeviceName.parse(f"/job:localhost/replica:0/task:0/device:{short}")


def op(name: str, kind: str, *inputs: str, on: str | None = "GPU:0", role: Any = "forward", **more: Any) -> Op:
    """An op; without a device it was optimised away."""
    place = None if on is None else device(on)
    return Op(name, kind, more.pop("executed", kind), place, None, role, None, FLOAT, inputs, **more)


def counted(ops: list[Op], shapes: Mapping[str, tuple[int, ...]], **more: Any) -> dict[str, Task]:
    work = more.pop("work", {})
    traced = Trace(
        tuple(ops),
        more.pop("transfers", ()),
        find_shapes=lambda: {name: [shape] for name, shape in shapes.items()},
        find_work=lambda: work,
        **more,
    )
    return {task.name: task for task in tasks_of(traced)}


def test_a_fused_product_is_one_task_with_what_all_its_parts_are_given() -> None:
    ops = [
        op("x", "Relu"),
        op("w", "ReadVariableOp", role="variable"),
        op("dense/MatMul", "MatMul", "x", "w", executed="_FusedMatMul"),
        op("dense/Relu", "Relu", "dense/MatMul", executed="_FusedMatMul"),
    ]
    found = counted(ops, {"x": (8, 4), "w": (4, 2), "dense/Relu": (8, 2)}, work={"dense/Relu": 128.0})
    assert list(found) == ["x", "w", "dense/Relu"]
    assert found["dense/Relu"].inputs == {"x": 8 * 4 * 4.0, "w": 4 * 2 * 4.0}
    assert found["dense/Relu"].flop == 128
    assert found["dense/Relu"].traffic_bytes == (8 * 4 + 4 * 2 + 8 * 2) * 4
    assert (found["w"].view, found["x"].view) == (True, False)
    assert found["x"].flop == 0


def test_a_shape_that_was_known_is_no_reason_to_wait() -> None:
    ops = [
        op("x", "Relu"),
        op("w", "ReadVariableOp", role="variable"),
        op("shapes", "ShapeN", "x", "w", on=None),
        op("dy", "ReluGrad"),
        op("to_x", "Conv2DBackpropInput", "shapes", "w", "dy"),
    ]
    shapes = {"x": (2, 8, 8, 3), "w": (3, 3, 3, 5), "dy": (2, 6, 6, 5), "to_x": (2, 8, 8, 3)}
    found = counted(ops, shapes, work={"to_x": 540.0})
    assert found["to_x"].flop == 540
    assert set(found["to_x"].inputs) == {"w", "dy"}


def test_what_the_optimizer_took_away_hands_on_the_output_that_is_read() -> None:
    ops = [
        op("a", "Relu"),
        op("b", "Relu", on="GPU:1"),
        op("all", "IdentityN", "a", "b", on=None, role="control"),
        op("first", "Relu", "all"),
        op("second", "Relu", "all", ports=(1,)),
        op("last", "Relu", "first", "second", ports=(0, -1)),
    ]
    found = counted(ops, dict.fromkeys(["a", "b", "first", "second", "last"], (8,)))
    assert found["first"].inputs == {"a": 32.0}
    assert found["second"].inputs == {"b": 32.0}
    assert found["last"].inputs == {"first": 32.0, "second": 0.0}


def test_an_update_reads_and_writes_its_variables() -> None:
    ops = [op("g", "Mul"), op("u", "ResourceApplyAdam", "g", role="update")]
    found = counted(ops, {"g": (100,), "u": ()}, variables={"u": (1, 2, 3)})
    assert found["u"].traffic_bytes == 7 * 400


def test_the_collectives_of_several_devices_are_joined_in_their_order() -> None:
    ops = [
        op(f"{kind}/{n}", "CollectiveReduceV2", f"g/{n}", on=f"GPU:{n}", role="collective")
        for kind in ("a", "b")
        for n in range(2)
    ]
    found = counted(
        [op("g/0", "Mul"), op("g/1", "Mul", on="GPU:1"), *ops],
        {
            **dict.fromkeys(["g/0", "g/1"], (10,)),
            **{each.name: (10,) for each in ops},
        },
    )
    assert found["a/1"].members == ("a/0", "a/1")
    assert found["b/0"].members == ("b/0", "b/1")
    assert found["a/0"].traffic_bytes == 40


def test_the_first_ops_wait_for_arguments_that_are_copied() -> None:
    transfers = (Transfer(device("CPU:0"), device("GPU:0"), "step/x", 1024),)
    ops = [op("w", "ReadVariableOp", role="variable"), op("first", "MatMul", "w"), op("second", "Relu", "first")]
    found = counted(ops, {"w": (4, 2), "first": (8, 2), "second": (8, 2)}, transfers=transfers)
    assert found["first"].inputs == {"w": 32.0, "step/x to GPU:0": 1024}
    assert found["second"].inputs == {"first": 64.0}
    assert found["step/x to GPU:0"].device == "CPU:0"


def test_what_cannot_be_counted_says_why() -> None:
    with pytest.raises(NotCounted, match="how often the loop step/while runs is not known"):
        counted([op("step/while", "While")], {"step/while": (1,)})
    with pytest.raises(NotCounted, match="the shapes of its tensors are not known"):
        counted([op("a", "Relu")], {})
