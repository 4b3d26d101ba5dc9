"""Evidence names the ops that the user wrote, whether TensorFlow computes them with oneDNN or not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from harness._tensorflow import CollectedGraph
from harness.devices.name import DeviceName
from harness.evidence.op_types import written_type
from harness.evidence.placed import ops_of


def describe_programs() -> None:
    """Print what was recorded of some programs, as one line of JSON."""
    import numpy as np
    import tensorflow as tf

    import harness
    from harness.evidence.build import build
    from harness.evidence.recorder import record
    from harness.faults.catalogue import FAULTS

    devices = harness.configure("cpu:4")
    x, image, kernel = tf.ones([4, 4]), tf.ones([2, 8, 8, 3]), tf.ones([3, 3, 3, 5])

    def convolve() -> Any:
        with tf.device("CPU:1"), tf.GradientTape() as tape:
            tape.watch(kernel)
            pooled = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(image, kernel, 1, "SAME")), 2, 2, "VALID")
            result = tf.nn.softmax(tf.transpose(pooled))
        return tape.gradient(result, kernel)

    def dense(x: Any) -> Any:
        with tf.device("CPU:2"):
            y = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, x), tf.ones([4])))
            return tf.nn.gelu(tf.matmul(y, x) + y)

    dense_graph = tf.function(dense)
    programs: dict[str, Callable[[], Any]] = {
        "matmul": lambda: tf.matmul(x, x),
        "convolve": convolve,
        "einsum": lambda: tf.einsum("ij,jk->ik", x, tf.matmul(tf.ones([2, 4, 4]), x)[0]),
        "convolve in a graph": tf.function(convolve),
        "dense in a graph": lambda: dense_graph(x),
        "unseen": lambda: tf.py_function(lambda: tf.matmul(x, x), [], tf.float32),
    }
    found: dict[str, Any] = {}
    for name, program in programs.items():
        with record() as recording:
            program()
        made = build(recording)
        nodes = [node.op for graph in recording.graphs for part in graph.partitions for node in part.node]
        found[name] = {
            "ops": sorted((op.name, op.type, str(op.device and op.device.short)) for op in made.ops),
            "executed": sorted({str(op.executed_type) for op in made.ops}),
            "transfers": sorted((t.source.short, t.destination.short, t.tensor) for t in made.transfers),
            "onednn": sum(node.startswith("_Mkl") for node in nodes),
        }
    weights = tf.Variable(np.full((4, 3), 2.0, np.float32))
    exact = lambda x: tf.matmul(x, weights)  # noqa: E731
    verification = harness.verify(harness.make_parallel(exact, devices), exact, {"x": x}, devices=devices)
    found["rules"] = sorted({comparison.rule for comparison in verification.comparisons})
    case = FAULTS["P14-activation"].plant(devices)
    for name, fn in (("fault", case.parallel), ("twin", case.twin)):
        verification = harness.verify(fn, case.reference, case.inputs, devices=devices, gradients=False)
        found[name] = sorted((finding.kind, finding.mode) for finding in verification.findings)
    print(json.dumps(found))


def test_the_record_is_the_same_with_onednn_and_without(
    fresh_process: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    on, off = (
        json.loads(fresh_process(describe_programs, TF_ENABLE_ONEDNN_OPTS=value).stdout.splitlines()[-1])
        for value in "10"
    )
    for name in ("matmul", "convolve", "einsum", "convolve in a graph", "dense in a graph", "unseen"):
        assert on[name].pop("onednn") > 0 == off[name].pop("onednn"), name
        assert not any("Mkl" in executed for executed in on[name]["executed"])
        # With oneDNN more is fused.
        del on[name]["executed"], off[name]["executed"]
        assert on[name] == off[name], name
    assert on["matmul"]["ops"] == [["MatMul", "MatMul", "CPU:0"]]
    assert on["rules"] == off["rules"] == ["exact arithmetic"]
    for found in (on, off):
        assert found["twin"] == []
        assert {kind for kind, _ in found["fault"]} == {"op-placement"}
        assert {mode for _, modes in found["fault"] for mode in modes.split(", ")} == {"eager", "graph"}


@pytest.mark.parametrize(
    ("kernel", "op_type"),
    [
        ("MatMul", "MatMul"),
        ("_FusedMatMul", "_FusedMatMul"),
        ("_MklMatMul", "MatMul"),
        ("_MklNativeConv2D", "Conv2D"),
        ("_MklNativeFusedBatchNormV3", "FusedBatchNormV3"),
        ("_MklNativeFusedMatMul", "_FusedMatMul"),
        ("_MklToTf", "_ToTf"),
    ],
)
def test_a_kernel_of_onednn_stands_for_an_op(kernel: str, op_type: str) -> None:
    assert written_type(kernel) == op_type


def test_a_change_of_memory_layout_is_no_op() -> None:
    import tensorflow as tf

    def graph(*nodes: tuple[str, str]) -> Any:
        made = tf.compat.v1.GraphDef()
        for name, op in nodes:
            made.node.add(name=name, op=op, device="/job:localhost/replica:0/task:0/device:CPU:1")
        return made

    executed = graph(("Mkl2Tf/_1", "_MklToTf"), ("DMT/_0", "_MklInputConversion"), ("exp", "Exp"))
    found = ops_of(CollectedGraph(graph(), graph(), (executed,)), (), DeviceName(), "fn", None)
    assert [(op.name, op.type) for op in found] == [("fn/exp", "Exp")]
