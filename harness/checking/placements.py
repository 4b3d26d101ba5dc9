"""Where the programs of a check ran, as a record keeps it: the first programs, and the first ops of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from harness.records import PlacedOp, Placement

if TYPE_CHECKING:
    from harness.evidence.trace import Trace

#: Programs of one check that are kept, and ops of each: enough to see a pattern, and a record that opens at once.
MOST_PROGRAMS = 4
MOST_OPS = 200


def placements_of(traces: Mapping[str, Trace], where: str) -> Iterator[Placement]:
    """The placement of each of ``traces`` (by mode, as a ``Verification`` has them) that has an op proven somewhere.

    ``where`` says which part of the check it was. Ops without a proven device are left out and not counted.
    """
    for mode, trace in traces.items():
        proven = [(op, str(op.device)) for op in trace.ops if op.device is not None]
        if proven:
            ops = (
                PlacedOp(order, op.name, op.type, device, op.role)
                for order, (op, device) in enumerate(proven[:MOST_OPS])
            )
            yield Placement(f"{where or 'the program'} ({mode})", tuple(ops), len(proven))
