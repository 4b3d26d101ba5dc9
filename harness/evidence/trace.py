"""A trace: a record of what TensorFlow executed, made once, that any rule can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import EvidenceError
from harness.evidence.op import Op, Transfer
from harness.plural import plural

if TYPE_CHECKING:
    from rich.console import Group

    from harness.devices.device import Device
    from harness.evidence.diff import TraceDiff
    from harness.evidence.sizes import Collective, Shape
    from harness.evidence.slices import Place


@dataclass(frozen=True, repr=False)
class Trace:
    """What ran where. ``outputs`` is what the function returned; like what is found out on demand, it is not saved.

    ``ops`` are in the order in which they ran, those of a function together. ``transfers`` are the copies between
    devices; their sizes are worked out when they are first looked at. ``unproven`` lists the ops that TensorFlow's
    optimizer removed or that it gave no evidence for: they count for nothing.
    """

    ops: tuple[Op, ...]
    transfers: Sequence[Transfer]
    outputs: Any = field(default=None, compare=False, repr=False)
    #: Eager ops to which several threads handed arguments in host memory on one GPU, and whether at the same time.
    shared: Mapping[str, bool] = field(default_factory=dict, compare=False, repr=False)
    #: The dtype and the shape without the rows of each argument, by its name.
    arguments: Mapping[str, tuple[object, ...]] = field(default_factory=dict, compare=False, repr=False)
    #: The variables that an op reads or updates, by the op's name; each variable is a number of this trace.
    variables: Mapping[str, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)
    find_collectives: Callable[[], list[Collective]] = field(default=list, compare=False, repr=False)
    find_work: Callable[[], dict[str, float]] = field(default=dict, compare=False, repr=False)
    find_shapes: Callable[[], dict[str, Sequence[Shape]]] = field(default=dict, compare=False, repr=False)
    find_places: Callable[[], dict[str, tuple[str, ...]]] = field(default=dict, compare=False, repr=False)
    find_slices: Callable[[], dict[str, Place]] = field(default=dict, compare=False, repr=False)

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """Each device's part of the collective ops that ran in functions, with its bytes."""
        return tuple(self.find_collectives())

    @cached_property
    def work(self) -> Mapping[str, float]:
        """An estimate of each op's arithmetic operations from the shapes, by its name, where they are known."""
        return self.find_work()

    @cached_property
    def places(self) -> Mapping[str, tuple[str, ...]]:
        """The line of the user's program that made each op (``towers.py:41``), and where its function was called."""
        return self.find_places()

    @cached_property
    def shapes(self) -> Mapping[str, Sequence[Shape]]:
        """The shapes of what each op made, by its name, where they are known."""
        return self.find_shapes()

    @cached_property
    def slices(self) -> Mapping[str, Place]:
        """Where slices cut, by their names: those of one tensor that cut at the same place make the same rows."""
        return self.find_slices()

    @property
    def unproven(self) -> tuple[Op, ...]:
        """Ops without a device."""
        return tuple(op for op in self.ops if op.device is None)

    def find(self, name: str) -> Op | None:
        """The op of this name, or ``None``."""
        return next((op for op in self.ops if op.name == name), None)

    def save(self, path: str | Path) -> Path:
        """Write the trace as JSON (without its outputs), atomically.

        Raises:
            TraceNotSaved: the folder cannot be written.
        """
        from harness.evidence.storage import save

        return save(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a saved trace.

        Raises:
            InvalidRecord: the file is not a saved trace.
        """
        from harness.evidence.storage import load

        return Trace(*load(Path(path)))

    def diff(self, other: Trace) -> TraceDiff:
        """What moved where from this trace to ``other``; falsy when nothing did.

        Raises:
            EvidenceError: ``other`` is no trace.
        """
        from harness.evidence.diff import diff

        if not isinstance(other, Trace):
            raise EvidenceError(f"diff: other={other!r}; accepted: a trace, as returned by harness.trace")
        return diff(self, other)

    def conclusion(self, devices: Sequence[Device] = ()) -> list[str]:
        """What the trace says in a few sentences, the most important first.

        ``devices`` are those that the program could use: of the others than those that the trace has, it says that
        they did nothing.
        """
        from harness.evidence.conclusion import conclude

        return conclude(self, self.work, [device.parsed for device in devices])

    def table(self) -> Group:
        """The conclusion, and a table of the ops per device, for Rich to print."""
        from harness.evidence.table import table

        return table(self, self.conclusion())

    def __str__(self) -> str:
        from harness.evidence.table import text

        return text(self, self.conclusion())

    def __repr__(self) -> str:
        count = sum(op.device is not None for op in self.ops)
        return f"<Trace of {plural(count, 'op')}: {' '.join(self.conclusion())}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the conclusion, and the ops of each device by their role."""
        from harness.evidence.table import html
        from harness.notebook import block

        return block("Trace", self.conclusion(), html(self))
