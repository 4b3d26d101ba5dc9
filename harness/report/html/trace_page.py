"""The page of a trace: what it concludes, the placement as a graph, and the ops by device and scope."""

from __future__ import annotations

from collections.abc import Sequence

from harness.evidence.op import Evidence
from harness.report.html.charts.placement import placement_chart
from harness.report.html.environment import render
from harness.report.html.tables import table
from harness.report.placement_graph import placement_graph
from harness.report.quantities import size


def trace_page(evidence: Evidence, title: str, conclusion: Sequence[str]) -> str:
    """Write a trace as one self-contained HTML file."""
    graph = placement_graph(evidence)
    boxes = sorted(graph.boxes, key=lambda box: (box.device, box.row))
    ops = [(box.device.short, box.role, box.label or "all", f"{box.count:,}") for box in boxes if box.count]
    copies = [
        (
            graph.boxes[flow.source].device.short,
            graph.boxes[flow.source].label or graph.boxes[flow.source].role,
            graph.boxes[flow.target].device.short,
            graph.boxes[flow.target].label or graph.boxes[flow.target].role,
            size(flow.copied or None),
        )
        for flow in graph.flows
        if graph.boxes[flow.source].device != graph.boxes[flow.target].device
    ]
    head = ("from", "scope", "to", "scope there", "bytes")
    return render(
        "trace.html.j2",
        title=title,
        conclusion=list(conclusion),
        chart=placement_chart("placement-graph", "What ran where, and what was copied", graph) if graph.boxes else None,
        ops=table("Ops by device and scope", ("device", "role", "scope", "ops"), ops, (3,)),
        copies=table("What goes to another device", head, copies, (4,)) if copies else None,
    )
