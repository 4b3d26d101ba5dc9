"""A trace as a table: the ops of each device, and what was copied between devices."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Sequence

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from harness.devices.name import DeviceName
from harness.evidence.op import Evidence, Op
from harness.evidence.unplaced import reasons
from harness.evidence.updates import update_arithmetic
from harness.notebook import bars
from harness.plural import plural

_SHOWN = ("forward", "gradient", "update", "collective", "variable", "data")


def table(evidence: Evidence, conclusion: Sequence[str] = ()) -> Group:
    """For Rich to print: the conclusion, a table of the ops per device, and one of the transfers if there are any."""
    parts: list[Table | Text] = [*map(Text, conclusion), _ops(evidence)]
    if evidence.transfers:
        parts.append(_transfers(evidence))
    hidden = sum(op.device is None for op in evidence.ops)
    if hidden:
        parts.append(Text(f"{plural(hidden, 'op')} on no known device: {'; '.join(reasons(evidence))}"))
    open_ones = sum(op.branch is not None and op.device is not None for op in evidence.ops)
    if open_ones:
        parts.append(Text(f"unknown whether {plural(open_ones, 'op')} in branches of conditions ran"))
    return Group(*parts)


def html(evidence: Evidence) -> str:
    """The ops of each device by their role, as a notebook shows them."""
    by_device = _by_device(evidence)
    return bars(
        {
            device.short: {r: len(by_device[device][r]) for r in _SHOWN if r in by_device[device]}
            for device in sorted(by_device)
        }
    )


def text(evidence: Evidence, conclusion: Sequence[str] = (), width: int = 80) -> str:
    """The same as plain text."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table(evidence, conclusion))
    file = console.file
    assert isinstance(file, io.StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _ops(evidence: Evidence) -> Table:
    by_device = _by_device(evidence)
    count = sum(len(ops) for roles in by_device.values() for ops in roles.values())
    made = Table(title=f"{plural(count, 'op')} on {plural(len(by_device), 'device')}", title_justify="left")
    made.add_column("device", no_wrap=True)
    made.add_column("role", no_wrap=True)
    made.add_column("ops", justify="right", no_wrap=True)
    made.add_column("types", overflow="fold")
    for device in sorted(by_device):
        for role in _SHOWN:
            ops = by_device[device].get(role)
            if ops:
                made.add_row(device.short, role, f"{len(ops):,}", escape(_types(ops)))
        made.add_section()
    return made


def _by_device(evidence: Evidence) -> dict[DeviceName, dict[str, list[Op]]]:
    updates = update_arithmetic(evidence)
    by_device: dict[DeviceName, dict[str, list[Op]]] = defaultdict(lambda: defaultdict(list))
    for op in evidence.ops:
        if op.device is not None:
            by_device[op.device]["update" if op.name in updates else op.role].append(op)
    return by_device


def _types(ops: list[Op]) -> str:
    counts = Counter(op.type if op.unit is None else f"{op.type} (XLA)" for op in ops)
    return ", ".join(kind if count == 1 else f"{kind} x{count:,}" for kind, count in counts.most_common())


def _transfers(evidence: Evidence) -> Table:
    made = Table(title=f"{plural(len(evidence.transfers), 'transfer')}", title_justify="left")
    made.add_column("from", no_wrap=True)
    made.add_column("to", no_wrap=True)
    made.add_column("copies", justify="right", no_wrap=True)
    made.add_column("bytes", justify="right", no_wrap=True)
    pairs: dict[tuple[DeviceName, DeviceName], list[int | None]] = defaultdict(list)
    for transfer in evidence.transfers:
        pairs[transfer.source, transfer.destination].append(transfer.size_bytes)
    for (source, destination), sizes in sorted(pairs.items()):
        known = [size for size in sizes if size is not None]
        total = f"{sum(known):,}" if len(known) == len(sizes) else (f"{sum(known):,} and more" if known else "unknown")
        made.add_row(source.short, destination.short, f"{len(sizes):,}", total)
    return made
