"""A function that XLA compiled: one unit, on one device."""

from __future__ import annotations

from collections.abc import Iterator

from harness._tensorflow import output_dtypes
from harness.devices.name import DeviceName
from harness.evidence.bodies import Graph
from harness.evidence.op import Op
from harness.evidence.roles import role_of
from harness.evidence.userops import name_in_trace, user_ops


def cluster_ops(
    graph: Graph,
    *,
    device: DeviceName | None,
    requested: DeviceName,
    name: str,
    gradient_of: Graph | None = None,
    forward_name: str | None = None,
) -> Iterator[Op]:
    """The ops written in a compiled function, all executed on the cluster's one device.

    Args:
        graph: the function and those that it calls.
        device: where the cluster ran.
        requested: the device that its call asked for.
        name: what the call is named in the trace; the name of the unit too.
        gradient_of: the function whose gradient it computes, if it is a backward function.
        forward_name: the name of that function's call.
    """
    for op in user_ops(graph, requested, gradient_of=gradient_of, unit=name).ops:
        yield Op(
            name=f"{name}/{op.path}",
            type=op.type,
            executed_type="XlaCluster" if device is not None else None,
            device=device,
            requested=op.requested if op.requested != DeviceName() else None,
            role=role_of(op.type, op.path, gradient=op.gradient),
            forward=None if op.forward is None else name_in_trace(op.forward, name, forward_name),
            dtypes=output_dtypes(op.type, op.attributes),
            inputs=tuple([name_in_trace(source, name) for source in op.inputs]),
            unit=name,
        )
