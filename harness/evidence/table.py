"""A trace as a table: the ops of each device, and what was copied between devices."""

from __future__ import annotations

import io
from collections import Counter, defaultdict

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from harness.devices.name import DeviceName
from harness.evidence.op import Evidence, Op
from harness.plural import plural

_SHOWN = ("forward", "gradient", "update", "collective", "variable", "data")


def table(evidence: Evidence) -> Group:
    """For Rich to print: a table of the ops per device, and one of the transfers where there are any."""
    parts: list[Table | Text] = [_ops(evidence)]
    if evidence.transfers:
        parts.append(_transfers(evidence))
    hidden = sum(op.device is None for op in evidence.ops)
    if hidden:
        parts.append(
            Text(f"{plural(hidden, 'op')} on no known device: removed by TensorFlow's optimizer, or run inside tf.data")
        )
    open_ones = sum(op.branch is not None and op.device is not None for op in evidence.ops)
    if open_ones:
        parts.append(Text(f"unknown whether {plural(open_ones, 'op')} in branches of conditions ran"))
    return Group(*parts)


def text(evidence: Evidence, width: int = 100) -> str:
    """The same as plain text."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table(evidence))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue().rstrip()


def _ops(evidence: Evidence) -> Table:
    by_device: dict[DeviceName, list[Op]] = defaultdict(list)
    for op in evidence.ops:
        if op.device is not None:
            by_device[op.device].append(op)
    count = sum(map(len, by_device.values()))
    made = Table(title=f"{plural(count, 'op')} on {plural(len(by_device), 'device')}", title_justify="left")
    made.add_column("device")
    made.add_column("role")
    made.add_column("ops", justify="right")
    made.add_column("types")
    for device in sorted(by_device):
        for role in _SHOWN:
            ops = [op for op in by_device[device] if op.role == role]
            if ops:
                made.add_row(device.short, role, str(len(ops)), escape(_types(ops)))
        made.add_section()
    return made


def _types(ops: list[Op]) -> str:
    counts = Counter(op.type if op.unit is None else f"{op.type} (XLA)" for op in ops)
    return ", ".join(kind if count == 1 else f"{kind} x{count}" for kind, count in counts.most_common())


def _transfers(evidence: Evidence) -> Table:
    made = Table(title=f"{plural(len(evidence.transfers), 'transfer')}", title_justify="left")
    made.add_column("from")
    made.add_column("to")
    made.add_column("copies", justify="right")
    made.add_column("bytes", justify="right")
    pairs: dict[tuple[DeviceName, DeviceName], list[int | None]] = defaultdict(list)
    for transfer in evidence.transfers:
        pairs[transfer.source, transfer.destination].append(transfer.size_bytes)
    for (source, destination), sizes in sorted(pairs.items()):
        known = [size for size in sizes if size is not None]
        total = f"{sum(known):,}" if len(known) == len(sizes) else (f"{sum(known):,} and more" if known else "unknown")
        made.add_row(source.short, destination.short, str(len(sizes)), total)
    return made
