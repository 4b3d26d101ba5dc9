"""Who made a tensor and who reads it, across identities, calls, and ops that TensorFlow optimised away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from math import prod

from harness.devices.name import DeviceName
from harness.evidence.arithmetic import CALLS, PYTHON, TABLES, computes, moved, on_device, sources_of as sources_of
from harness.evidence.op import Op
from harness.evidence.op_types import has_kernel
from harness.evidence.roles import LOOKUPS
from harness.evidence.trace import Trace

#: How many identities, calls or optimised ops in a row are seen through.
_FAR = 16
IDENTITIES = frozenset({"EnsureShape", "Identity", "IdentityN", "StopGradient"})


def reached(start: Iterable[Op], onward: Callable[[Op], Iterable[Op]]) -> Iterator[Op]:
    """The ops in ``start`` and all ops that ``onward`` leads to from them, each once."""
    waiting, seen = list(start), set()
    while waiting:
        op = waiting.pop()
        if op.name not in seen:
            seen.add(op.name)
            yield op
            waiting += onward(op)


class Wiring:
    """The connections between the ops of one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.ops = trace.ops
        self.arguments = trace.arguments
        self.by_name = {op.name: op for op in trace.ops}

    def size(self, name: str) -> int | None:
        """The number of elements of what an op makes first, where it is known."""
        shape = next(iter(self.trace.shapes.get(name) or ()), None)
        return None if shape is None or None in shape else prod(size or 0 for size in shape)

    @cached_property
    def _readers(self) -> dict[str, list[Op]]:
        readers: dict[str, list[Op]] = defaultdict(list)
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                readers[name].append(op)
        return readers

    @cached_property
    def _inside(self) -> dict[str, list[Op]]:
        """The ops that compute inside of each call, by the call's name."""
        inside: dict[str, list[Op]] = defaultdict(list)
        for op in self.ops:
            if op.role == "forward" and op.device is not None and computes(op):
                parts = op.name.split("/")
                for length in range(1, len(parts)):
                    inside["/".join(parts[:length])].append(op)
        return inside

    def work_in(self, call: str) -> list[Op]:
        """The ops that compute inside of a call, assertions left out."""
        return [op for op in self._inside.get(call, ()) if op.type != "Assert"]

    def readers(self, op: Op) -> list[Op]:
        """The ops that read what ``op`` makes, those that only wait for it left out."""
        return [reader for reader in self._readers.get(op.name, ()) if reader.type != "NoOp"]

    def is_read(self, op: Op) -> bool:
        """Whether an op reads a result of ``op``, and does not merely wait for it."""
        return any(name == op.name for reader in self.readers(op) for name, _ in sources_of(reader))

    def dtypes(self, op: Op) -> set[str]:
        """The dtypes of what ``op`` reads, where they are known, and of what it makes."""
        found = set(op.dtypes)
        for name, port in sources_of(op):
            maker = self.by_name.get(name)
            if maker is not None and port < len(maker.dtypes):
                found.add(maker.dtypes[port])
        return found

    @cached_property
    def _devices(self) -> set[DeviceName]:
        """The devices on which something ran."""
        return {op.device for op in self.ops if op.device is not None}

    def rearranged(self, op: Op) -> bool:
        """Whether the optimizer of graphs did an op's work elsewhere, merged with that of another op.

        Its scope names a device on which TensorFlow has a kernel for it, so soft placement left it there.
        """
        asked = op.requested
        if asked is None or asked.kind is None or asked.index is None or not moved(op) or "/" not in op.name:
            return False
        if op.unit is not None or op.type in LOOKUPS | PYTHON | TABLES or not on_device(op):
            return False
        exists = any(
            each.device == asked or (each.device is not None and each.device.matches(asked)) for each in self.ops
        )
        return exists and has_kernel(op.type, asked.kind, self.dtypes(op))

    def before(self, op: Op) -> list[Op]:
        """The ops that ``op`` reads from or waits for, as the trace has them."""
        return [self.by_name[name] for name in op.inputs if name in self.by_name]

    def maker(self, name: str) -> Op | None:
        """The op that made a tensor, seen through identities and calls; ``None`` where it is not known.

        For a call it is the last op inside, provided that all that computes inside ran on one device.
        """
        op = self.by_name.get(name)
        for _ in range(_FAR):
            if op is None or op.type in CALLS:
                inside = self._inside.get(name if op is None else op.name, [])
                return inside[-1] if len({each.device for each in inside}) == 1 else op
            if op.type not in IDENTITIES or not op.inputs:
                return op
            name = op.inputs[0]
            op = self.by_name.get(name)
        return op

    def makers(self, op: Op) -> list[Op]:
        """The ops that made what ``op`` reads."""
        return [maker for name in op.inputs if (maker := self.maker(name)) is not None]

    def followers(self, op: Op) -> list[Op]:
        """The ops that ran and first use the result of ``op``.

        Where an op was optimised away, by moving it behind a concat for instance, this is where its work went.
        """
        found: list[Op] = []
        frontier, seen = [op], {op.name}
        for _ in range(_FAR):
            following: list[Op] = []
            for reader in (reader for each in frontier for reader in self.readers(each)):
                if reader.name not in seen:
                    seen.add(reader.name)
                    (following if reader.device is None else found).append(reader)
            frontier = following
        return found

    def users(self, op: Op) -> set[DeviceName]:
        """The devices where the result of ``op`` is first used by an op that ran."""
        return {reader.device for reader in self.followers(op) if reader.device is not None}
