"""A function that XLA compiled: one unit, on one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.devices.name import DeviceName
from harness.evidence.op import Op
from harness.evidence.op_types import output_dtypes
from harness.evidence.roles import role_of
from harness.evidence.userops import UserOp, inputs_in_trace, name_in_trace


def cluster_ops(
    written: Sequence[UserOp], *, device: DeviceName | None, name: str, forward_name: str | None = None
) -> Iterator[Op]:
    """The ops written in a compiled function, all executed on the cluster's one device.

    Args:
        written: the ops of the function and of those that it calls.
        device: where the cluster ran.
        name: what the call is named in the trace; the name of the unit too.
        forward_name: the name of the call whose gradient it computes, if it is a backward function.
    """
    for op in written:
        inputs, ports = inputs_in_trace(op, name)
        yield Op(
            name=f"{name}/{op.path}",
            type=op.type,
            executed_type="XlaCluster" if device is not None else None,
            device=device,
            requested=op.requested if op.requested != DeviceName() else None,
            role=role_of(op.type, op.path, gradient=op.gradient),
            forward=None if op.forward is None else name_in_trace(op.forward, name, forward_name),
            dtypes=output_dtypes(op.type, op.attributes),
            inputs=inputs,
            ports=ports,
            unit=name,
        )
