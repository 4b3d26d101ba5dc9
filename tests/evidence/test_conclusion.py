"""What a trace concludes: from the links between its ops, not from their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import tensorflow as tf

from harness import DeviceName, Devices, Trace, colocate_gradients, ensemble, make_parallel, pipeline, trace
from harness.evidence.conclusion import conclude
from harness.evidence.op import Op, Role
from harness.evidence.unplaced import reasons
from harness.evidence.updates import update_arithmetic

CPU = [DeviceName("localhost", 0, 0, "CPU", index) for index in range(12)]
GPU = [DeviceName("localhost", 0, 0, "GPU", index) for index in range(2)]


def op(name: str, device: DeviceName | None = CPU[0], role: Role = "forward", **fields: Any) -> Op:
    kind = name.rpartition("/")[2].partition("_")[0]
    return Op(name, kind, kind if device is not None else None, device, None, role, **fields)


def towers(places: Sequence[DeviceName], backward: Sequence[DeviceName]) -> list[Op]:
    """A tower on each device, whose two backward ops ran on those of ``backward``."""
    ops = []
    for index, (place, back) in enumerate(zip(places, backward, strict=True)):
        name = f"MatMul_{index}"
        ops.append(op(name, place, inputs=("argument[0]",)))
        ops += [op(f"MatMul_{index}_{side}", back, "gradient", forward=name) for side in "ab"]
    return ops


def concluded(ops: Sequence[Op], devices: Sequence[DeviceName] = ()) -> list[str]:
    return conclude(Trace(tuple(ops), ()), None, devices)


def test_devices_without_their_backward_ops_are_named_with_what_mends_it() -> None:
    assert concluded(towers(CPU[:2], [CPU[0], CPU[0]]))[0] == (
        "CPU:1 runs no backward op: all 2 ran on CPU:0; wrap the step in harness.colocate_gradients."
    )
    assert concluded(towers(GPU, [GPU[0], GPU[0]]))[0].startswith("GPU:1 runs no backward op: all 2 ran on GPU:0;")
    first, second = concluded(towers(CPU[:4], [CPU[0]] * 4))
    assert first.startswith("CPU:1, CPU:2 and CPU:3 run no backward op: all 6 ran on CPU:0; wrap the step in")
    assert second.startswith("4 devices work: CPU:0 75%, CPU:1 8%")
    crossed = concluded(towers(CPU[:2], [CPU[1], CPU[0]]))
    assert crossed[0].startswith("CPU:0 runs no backward op of its own: all 2 ran on CPU:1;")
    ops = towers(CPU[:2], CPU[:2])
    half = [*ops[:-1], replace(ops[-1], device=CPU[0])]
    assert concluded(half)[0].startswith("CPU:1 runs 1 of its 2 backward ops: the others ran on CPU:0; wrap the step")


def test_backward_ops_on_the_devices_of_their_forward_ops_are_right() -> None:
    assert concluded(towers(CPU[:2], CPU[:2]), CPU[:2]) == [
        "Both devices do their share: CPU:0 50%, CPU:1 50% of the ops that compute.",
        "Backward ops ran on the devices of their forward ops.",
    ]


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param([op("MatMul", CPU[0]), op("MatMul_1", CPU[1])], id="inference, or an ensemble"),
        pytest.param([*towers(CPU[:1], CPU[:1]), op("Relu", CPU[1])], id="a teacher without gradients"),
        pytest.param([*towers(CPU[:1], CPU[:1]), op("AddN", CPU[1], "gradient")], id="a sum of gradients"),
        pytest.param(
            [op("Reshape", CPU[1]), op("Reshape_1", CPU[0], "gradient", forward="Reshape")], id="what only moves data"
        ),
    ],
)
def test_a_device_is_not_accused_of_backward_ops_that_are_not_its_own(ops: list[Op]) -> None:
    assert not any("colocate_gradients" in line for line in concluded(ops, CPU[:2]))


def test_what_devices_did_is_told_by_their_estimated_work() -> None:
    ops = [op("MatMul", CPU[0]), op("MatMul_1", CPU[1])]
    assert conclude(Trace(tuple(ops), ()), {"MatMul": 90.0, "MatMul_1": 10.0}) == [
        "2 devices work: CPU:0 90%, CPU:1 10% of the work."
    ]
    assert conclude(Trace(tuple(ops), ()), {"MatMul": 90.0}) == [
        "Both devices do their share: CPU:0 50%, CPU:1 50% of the ops that compute."
    ]
    many = [op(f"MatMul_{index}", device) for index, device in enumerate(CPU)]
    assert concluded(many) == ["All 12 devices do their share: 8.3% to 8.3% of the ops that compute each."]
    host = [op("Relu", CPU[0]), op("MatMul", GPU[0]), op("MatMul_1", GPU[1])]
    assert concluded(host, GPU)[0].startswith("Both devices do their share: GPU:0 50%, GPU:1 50%")


def test_devices_that_did_nothing_are_named_unless_a_condition_may_have_used_them() -> None:
    alone = [op("MatMul", CPU[0])]
    assert concluded(alone, CPU[:3]) == ["All ops that compute ran on CPU:0; CPU:1 and CPU:2 ran none."]
    assert concluded(alone) == ["All ops that compute ran on CPU:0."]
    branch = [*alone, op("cond/Relu", CPU[1], branch="cond")]
    assert concluded(branch, CPU[:2]) == ["All ops that compute outside of conditions ran on CPU:0."]
    assert concluded(branch[1:], CPU[:2])[0].startswith("All ops that compute are in branches of conditions")


def test_a_device_that_was_asked_for_in_vain_is_named_with_the_reason() -> None:
    moved = replace(op("MatMul", CPU[0]), requested=CPU[1])
    assert concluded([moved])[0] == (
        "No op ran on CPU:1, which 1 op asked for: CPU:0 ran it; soft placement moves ops silently."
    )
    assert "XLA ignores device scopes" in concluded([replace(moved, unit="fn")])[0]
    # Integers live on the host, lookups are where their table is, and a device that something ran on is there.
    for right in (
        [replace(moved, dtypes=("int32",))],
        [replace(moved, type="ResourceGather")],
        [moved, op("Relu", CPU[1])],
    ):
        assert not any("asked for" in line for line in concluded(right))


def test_a_trace_without_arithmetic_says_so() -> None:
    assert concluded([]) == ["No op computes on floating-point tensors: the function had nothing to do on a device."]
    assert "works on integers" in concluded([op("Add", dtypes=("int32",))])[0]


#: A step with SGD: the loss reads an argument and a variable, and the update the gradient and a learning rate.
STEP = [
    op("ReadVariableOp", role="variable"),
    op("MatMul", inputs=("argument[0]", "ReadVariableOp")),
    op("MatMul_g", role="gradient", forward="MatMul", inputs=("argument[0]",)),
    op("Pow", inputs=("ReadVariableOp",)),
    op("Identity", role="control", inputs=("MatMul_g",)),
    op("Mul", inputs=("Identity", "Pow")),
    op("AssignSubVariableOp", role="update", inputs=("Mul",)),
    # Batch normalization: it belongs to the forward work.
    op("Mean", inputs=("MatMul",)),
    op("AssignSubVariableOp_1", role="update", inputs=("Mean",)),
]


def test_the_arithmetic_of_an_optimizer_is_an_update() -> None:
    trace = Trace(tuple(STEP), ())
    assert update_arithmetic(trace) == {"Pow", "Mul"}
    rows = [" ".join(line.replace("│", " ").split()) for line in str(trace).splitlines()]
    assert "CPU:0 update 4 AssignSubVariableOp x2, Pow, Mul" in rows
    assert "CPU:0 forward 2 MatMul, Mean" in rows


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param([each for each in STEP if each.role != "gradient"], id="no gradient"),
        pytest.param([*STEP, op("Square", inputs=("Mul",)), op("g", role="gradient", forward="Mul")], id="a penalty"),
        pytest.param([*STEP, op("Norm", inputs=("Mul",)), op("Norm_1", inputs=("Pow",))], id="also a result"),
    ],
)
def test_what_does_not_only_serve_updates_is_forward_work(ops: list[Op]) -> None:
    assert "Mul" not in update_arithmetic(Trace(tuple(ops), ()))


def test_each_op_without_a_device_has_its_reason() -> None:
    gone: list[Op] = [
        op("f/Const", None, "constant"),
        op("f/Cast", None, inputs=("f/Const",)),
        op("f/Shape", None, inputs=("f/MatMul",)),
        op("f/Mul", None, inputs=("f/Cast", "f/Shape")),
        op("f/Identity", None, "control", inputs=("f/MatMul",)),
        op("f/Tanh_1", None, inputs=("f/MatMul",)),
        op("f/Neg", None, inputs=("f/MatMul",)),
        op("f/RealDiv", None, inputs=("f/MatMul",)),
        op("f/If", None, "control", inputs=("f/MatMul",)),
        op("PartitionedCall", None, "control"),
        op("f/map/Exp", None, "data"),
        op("Exp", None),
        replace(op("f/Exp", None), executed_type="Exp"),
    ]
    ran = [
        op("f/MatMul", inputs=("argument[0]",)),
        op("f/Tanh", inputs=("f/MatMul",)),
        op("f/Add", inputs=("f/RealDiv", "f/Tanh_1")),
    ]
    assert reasons(Trace((*gone, *ran), ())) == [
        "3 ops computed from constants before the graph ran",
        "1 constant, kept in what reads it",
        "1 identity or signal that only hands on",
        "1 op merged with an equal one",
        "1 op whose result nothing reads",
        "1 op rewritten by the graph optimizer",
        "1 function call, whose ops are listed themselves",
        "1 function of which TensorFlow reports no graph",
        "1 op of tf.data, which does not report devices",
        "1 op of which TensorFlow reports no device",
        "1 op on several devices at once",
    ]
    assert reasons(Trace(tuple(ran), ())) == []


def test_the_representation_of_a_trace_is_its_conclusion() -> None:
    trace = Trace(tuple(towers(CPU[:2], [CPU[0]] * 2)), ())
    assert repr(trace).startswith("<Trace of 6 ops: CPU:1 runs no backward op: all 2 ran on CPU:0;")
    assert str(trace).splitlines()[0].startswith("CPU:1 runs no backward op")
    assert max(map(len, str(trace).splitlines())) <= 80


def _weights(devices: Devices) -> list[tf.Variable]:
    made = []
    for device in devices:
        with tf.device(device.name):
            made.append(tf.Variable(tf.random.stateless_normal((6, 6), (1, 2))))
    return made


def _step(devices: Devices) -> Callable[[Any], Any]:
    w = tf.Variable(tf.random.stateless_normal((6, 6), (1, 2)))
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build([w])

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = []
            for device, part in zip(devices, tf.split(x, len(devices)), strict=True):
                with tf.device(device.name):
                    losses.append(tf.reduce_sum(tf.tanh(part @ w)))
            loss = tf.add_n(losses)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])
        return loss

    return step


def test_a_step_is_accused_without_colocate_gradients_and_not_with_it(devices: Devices) -> None:
    x, step = tf.random.stateless_normal((8 * len(devices), 6), (3, 4)), _step(devices)
    rest = [device.parsed.short for device in devices[1:]]
    for program in (step, tf.function(step)):
        found = trace(program, x)
        assert all(name in found.conclusion(devices)[0] for name in (*rest, "no backward op", "colocate_gradients"))
        adam = [op for op in found.ops if op.type in ("Sqrt", "Square", "Pow") and op.role == "forward"]
        assert adam
        assert update_arithmetic(found).issuperset(op.name for op in adam)
        assert not any(op.type in ("MatMul", "Tanh") and op.name in update_arithmetic(found) for op in found.ops)
    found = trace(tf.function(colocate_gradients(step)), x)
    shares, backward = found.conclusion(devices)
    assert "devices do their share" in shares
    assert backward == "Backward ops ran on the devices of their forward ops."


def test_right_programs_of_other_patterns_are_not_accused(devices: Devices) -> None:
    x, weights = tf.random.stateless_normal((8, 6), (3, 4)), _weights(devices)
    members = [lambda a, w=w: tf.tanh(a @ w) for w in weights]
    together, stages = ensemble(members, devices), pipeline(members, devices)
    shared = make_parallel(lambda a: tf.tanh(a @ weights[0]), devices)

    def trained(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(stages(x))
        for w, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            w.assign_sub(0.1 * gradient)

    for program in (lambda x: together(a=x), lambda x: shared(a=x), trained):
        lines = trace(tf.function(program), x).conclusion(devices)
        assert f"{devices[-1].parsed.short} " in lines[0]
        assert not any("colocate_gradients" in line or "asked for" in line or "none" in line for line in lines)
