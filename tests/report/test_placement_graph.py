"""The placement of a program as a graph of few boxes, whatever the number of its ops."""

from __future__ import annotations

from html_rules import Page

from harness import DeviceName, Trace
from harness.evidence.op import Op, Role, Transfer
from harness.report.html.trace_page import trace_page
from harness.report.placement_graph import PlacementGraph, placement_graph

GPU = [DeviceName("localhost", 0, 0, "GPU", index) for index in range(3)]


def op(name: str, device: int | None, *inputs: str, role: Role = "forward", kind: str = "MatMul") -> Op:
    return Op(name, kind, kind, None if device is None else GPU[device], None, role, inputs=inputs)


def boxes(graph: PlacementGraph) -> list[tuple[str, str, str, int]]:
    return [(box.device.short, box.role, box.label, box.count) for box in graph.boxes]


def test_ops_of_one_scope_are_a_box_and_copies_have_their_bytes() -> None:
    ops = (
        op("step/tower_0/dense/MatMul", 0, "argument[0]"),
        op("step/tower_0/dense/Relu", 0, "step/tower_0/dense/MatMul", kind="Relu"),
        op("step/tower_0/Identity", None, "step/tower_0/dense/Relu", role="control", kind="Identity"),
        op("step/tower_1/dense/MatMul", 1, "step/tower_0/Identity"),
        op("step/add", 0, "step/tower_1/dense/MatMul", "step/tower_0/Identity", kind="AddV2"),
    )
    copies = (Transfer(GPU[0], GPU[1], "step/tower_0/dense/Relu:0", 64), Transfer(GPU[1], GPU[0], ops[3].name, 32))
    graph = placement_graph(Trace(ops, copies))
    assert boxes(graph) == [
        ("GPU:0", "forward", "tower_0/dense", 2),
        ("GPU:1", "forward", "tower_1/dense", 1),
        ("GPU:0", "forward", "add", 1),
    ]
    # What is handed on by an identity is read of the op before it, whose copy has no reader of its own on GPU:1.
    assert {(flow.source, flow.target): flow.copied for flow in graph.flows} == {(0, 1): 64, (1, 2): 32, (0, 2): 0}
    assert [box.row for box in graph.boxes] == [0, 1, 2]


def test_ten_thousand_ops_are_folded_into_few_boxes() -> None:
    ops = [op(f"step/block_{at // 100}/layer_{at // 10}/op_{at}", at % 3, f"step/op_{at - 1}") for at in range(10_000)]
    graph = placement_graph(Trace(tuple(ops), ()))
    assert len(graph.boxes) == 3
    assert sum(box.count for box in graph.boxes) == graph.ops == 10_000
    assert {box.label for box in graph.boxes} == {"block/layer"}


def test_what_the_program_is_given_is_a_box_where_it_is_copied() -> None:
    graph = placement_graph(
        Trace((op("step/MatMul", 1, "argument[0]"),), (Transfer(GPU[0], GPU[1], "argument[0]", 8),))
    )
    assert boxes(graph)[1:] == [("GPU:0", "data", "arguments", 0)]
    assert [(flow.source, flow.target, flow.copied) for flow in graph.flows] == [(1, 0, 8)]


def test_the_page_escapes_names_and_says_the_picture_in_words() -> None:
    hostile = "step/<script>alert(1)</script>$x^2$/MatMul"
    page = trace_page(Trace((op(hostile, 0), op("step/b", 1, hostile)), ()), "a<b>.py:step", ["GPU:2 ran <none>."])
    read = Page(page)
    assert read.problems == []
    assert "<script>" not in page
    assert "2 ops in 2 boxes: GPU:0 1, GPU:1 1; 1 arrow between devices" in read.text


def test_a_trace_without_a_known_device_says_so() -> None:
    page = Page(trace_page(Trace((op("step/MatMul", None),), ()), "step", []))
    assert page.problems == []
    assert "No op ran on a known device." in page.text
